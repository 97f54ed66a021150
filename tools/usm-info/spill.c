/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The tiers of USM_SPILL, as text, as JSON and as findings.  Each tier is opened, offered a little
 * memory to register (how much it takes shows the user's limit), asked for its description, and
 * closed again. */
#include "spill.h"
#include "table.h"

#include "base/os.h"
#include "base/settings.h"
#include "base/text.h"
#include "device/module.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define TRIAL      ((size_t)16 << 20) /* bytes that are offered */
#define BLOCK_SIZE ((size_t)1 << 20)  /* of the store; the engine may use another */

static void find_path(spill_tier *t)
{
    usm__registry_store list[16];
    size_t              n = usm__registry_transports(list, 16);

    for (size_t i = 0; i < n && i < 16; i++)
        if (strcmp(list[i].name, t->name) == 0)
            snprintf(t->path, sizeof t->path, "%s", list[i].path);
}

/* Reads an open store's description, with `memory` of TRIAL bytes or NULL. */
static void ask(spill_tier *t, const usm_transport_ops *ops, void *store, void *memory)
{
    size_t registered = 0;
    char   text[1024];

    if (memory && ops->register_memory(store, memory, TRIAL, &registered) != USM_OK)
        memory = NULL;
    ops->describe(store, text, sizeof text);
    t->is_ok = ops->capacity(store, &t->capacity) == USM_OK;
    t->text  = tool_printf("%s", t->is_ok ? text : usm_last_error());
    if (memory)
        ops->unregister_memory(store);
}

/* Memory of other ranks: the tool is not a rank of a program. */
static void look_at_job(spill_tier *t)
{
    static const char *const builds[] = {"openmpi", "mpich", "mpich12", "abi"};
    char                     module[32], found[64] = "";

    for (size_t i = 0; i < sizeof builds / sizeof builds[0]; i++) {
        size_t used = strlen(found);

        snprintf(module, sizeof module, "mpi_%s", builds[i]);
        if (usm__module_exists("transport", module))
            snprintf(found + used, sizeof found - used, "%s%s", used ? ", " : "", builds[i]);
    }
    t->is_later = *found != 0;
    t->text     = t->is_later ? tool_printf("memory of other ranks, once a program has called "
                                                "usm_mpi_attach(); there are modules for: %s",
                                            found)
                              : tool_printf("there is no module libusm_transport_mpi_*.so");
}

static void look_at(spill_tier *t)
{
    const usm_transport_ops *ops    = usm__registry_transport(t->name);
    usm_transport_params     params = {.struct_size = sizeof params,
                                       .api         = &usm__registry_api,
                                       .config      = t->config,
                                       .block_size  = BLOCK_SIZE};
    void                    *store, *memory = NULL;

    if (ops)
        find_path(t);
    if (!ops || ops->open(&params, &store) != USM_OK) {
        t->text = tool_printf("%s", usm_last_error());
        return;
    }
    if (ops->caps & USM_TRANSPORT_CAP_REGISTER)
        memory = usm__os_map(TRIAL, PROT_READ | PROT_WRITE);
    ask(t, ops, store, memory);
    ops->close(store);
    if (memory)
        (void)usm__os_unmap(memory, TRIAL);
}

static void parse_tier(spill_tier *t, usm__span field)
{
    const char *colon = memchr(field.at, ':', field.len);
    size_t      n     = colon ? (size_t)(colon - field.at) : field.len;

    snprintf(t->name, sizeof t->name, "%.*s", (int)n, field.at);
    t->config =
        colon ? tool_printf("%.*s", (int)(field.len - n - 1), colon + 1) : tool_printf("%s", "");
}

spill_tier *spill_collect(size_t *n)
{
    usm__span   rest  = usm__span_of(usm__setting_text("spill")), field;
    spill_tier *tiers = NULL;

    *n = 0;
    if (usm__span_is(usm__span_trimmed(rest), "off"))
        return NULL;
    while (usm__span_next(&rest, ';', &field)) {
        tiers = tool_realloc(tiers, (*n + 1) * sizeof *tiers);
        memset(&tiers[*n], 0, sizeof *tiers);
        parse_tier(&tiers[*n], field);
        (strcmp(tiers[*n].name, "mpi") == 0 ? look_at_job : look_at)(&tiers[*n]);
        (*n)++;
    }
    return tiers;
}

void spill_free(spill_tier *tiers, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        free(tiers[i].config);
        free(tiers[i].text);
    }
    free(tiers);
}

void show_spill(void)
{
    table      *t = table_new(2, 2);
    size_t      n;
    spill_tier *tiers = spill_collect(&n);
    char        total[32], room[32];

    if (n == 0)
        table_note(t, 2, "off: what does not fit into memory fails");
    for (size_t i = 0; i < n; i++) {
        const usm_transport_capacity *c = &tiers[i].capacity;

        table_cell(t, "%s", tiers[i].name);
        if (tiers[i].is_ok)
            table_cell(t, "%s of %s", usm__format_bytes(c->available, room, sizeof room),
                       usm__format_bytes(c->total, total, sizeof total));
        else
            table_cell(t, tiers[i].is_later ? "in a job" : "refused");
        table_cell(t, "%s", tiers[i].text);
        table_row(t);
    }
    table_print(t, stdout);
    spill_free(tiers, n);
}

void show_spill_json(usm__json *j)
{
    size_t      n;
    spill_tier *tiers = spill_collect(&n);

    usm__json_array_begin(j, "spill");
    for (size_t i = 0; i < n; i++) {
        const spill_tier *t = &tiers[i];

        usm__json_object_begin(j, NULL);
        usm__json_text(j, "transport", t->name);
        usm__json_text(j, "config", t->config);
        usm__json_text(j, "state", t->is_ok ? "ok" : t->is_later ? "in a job" : "refused");
        usm__json_text(j, "path", *t->path ? t->path : NULL);
        usm__json_text(j, "text", t->text);
        if (t->is_ok) {
            usm__json_number(j, "total", t->capacity.total);
            usm__json_number(j, "available", t->capacity.available);
            usm__json_number(j, "depth", t->capacity.depth);
            usm__json_number(j, "registered", t->capacity.registered);
            usm__json_number(j, "offered", TRIAL);
        }
        usm__json_object_end(j);
    }
    usm__json_array_end(j);
    spill_free(tiers, n);
}

void doctor_check_spill(doctor *d)
{
    bool          is_default = strcmp(usm__setting_origin("spill"), "default") == 0;
    finding_level bad        = is_default ? FINDING_NOTE : FINDING_PROBLEM;
    size_t        n;
    spill_tier   *tiers = spill_collect(&n);

    for (size_t i = 0; i < n; i++)
        if (tiers[i].is_ok)
            doctor_add(d, FINDING_OK, "spilling",
                       tool_printf("%s works: %s.", tiers[i].name, tiers[i].text), NULL);
        else if (tiers[i].is_later)
            doctor_add(d, FINDING_OK, "spilling",
                       tool_printf("%s is %s.", tiers[i].name, tiers[i].text), NULL);
        else
            doctor_add(
                d, bad, "spilling",
                tool_printf("Nothing can be spilled to %s: %s.", tiers[i].name, tiers[i].text),
                tool_printf("Set USM_SPILL to a folder on a disk, as in file:/var/tmp, or to "
                            "off."));
    spill_free(tiers, n);
}
