/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* zeModuleDynamicLink and zeModuleInspectLinkageExt.
 *
 * An OpenCL runtime links once, into a program of its own.  So each module with missing imports is
 * built anew together with the modules that it needs, directly or through others.  Functions work
 * so in full; a global variable is another one in each module that was linked with its exporter.
 * Native modules neither import nor export.
 *
 * The tables are in module.c. */
#include "module.h"

#include <stdlib.h>

static pthread_mutex_t link_lock = PTHREAD_MUTEX_INITIALIZER; /* one links at a time */

/* The modules handed in, and which of them the one being linked needs. */
typedef struct set {
    soft_module **modules;
    bool         *is_in;
    size_t        count;
} set;

static bool exports(const soft_code *code, const char *name)
{
    for (size_t i = 0; i < code->nunits; i++)
        if (soft_names_have(&code->units[i].exports, name))
            return true;
    return false;
}

/* Takes the module that exports the name; false when two do.  Nobody: the build says so. */
static bool take_exporter(set *s, const char *name, bool *has_grown, soft_text *log)
{
    size_t found = s->count;

    for (size_t i = 0; i < s->count; i++) {
        if (!exports(s->modules[i]->code, name) ||
            (found < s->count && s->modules[found]->code == s->modules[i]->code))
            continue;
        if (found < s->count) {
            soft_text_add(log, "more than one module exports %s\n", name);
            return false;
        }
        found = i;
    }
    if (found < s->count && !s->is_in[found]) {
        s->is_in[found] = true;
        *has_grown      = true;
    }
    return true;
}

static bool take_exporters_for(set *s, const soft_code *code, bool *has_grown, soft_text *log)
{
    for (size_t i = 0; i < code->nunits; i++)
        for (size_t j = 0; j < code->units[i].imports.count; j++)
            if (!take_exporter(s, code->units[i].imports.names[j], has_grown, log))
                return false;
    return true;
}

/* What module `first` needs, until nothing new is needed. */
static bool collect(set *s, size_t first, soft_text *log)
{
    bool has_grown = true;

    for (size_t i = 0; i < s->count; i++)
        s->is_in[i] = i == first;
    while (has_grown) {
        has_grown = false;
        for (size_t i = 0; i < s->count; i++)
            if (s->is_in[i] && !take_exporters_for(s, s->modules[i]->code, &has_grown, log))
                return false;
    }
    return true;
}

static ze_result_t build_set(const set *s, soft_text *log, void **program)
{
    const soft_unit **units;
    size_t            n = 0;
    ze_result_t       result;

    for (size_t i = 0; i < s->count; i++)
        n += s->is_in[i] ? s->modules[i]->code->nunits : 0;
    units = calloc(n + 1, sizeof(*units));
    if (!units)
        return ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    n = 0;
    for (size_t i = 0; i < s->count; i++)
        for (size_t j = 0; s->is_in[i] && j < s->modules[i]->code->nunits; j++)
            units[n++] = &s->modules[i]->code->units[j];
    result = soft_cl_build(units, n, log, program);
    free(units);
    return result;
}

static bool is_linked(const soft_code *code)
{
    return code->object || atomic_load(&code->program);
}

static ze_result_t link_one(set *s, size_t which, soft_text *log)
{
    soft_code  *code    = s->modules[which]->code;
    void       *program = NULL;
    ze_result_t result;

    if (is_linked(code))
        return ZE_RESULT_SUCCESS;
    if (!collect(s, which, log))
        return ZE_RESULT_ERROR_MODULE_LINK_FAILURE;
    result = build_set(s, log, &program);
    if (result == ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY)
        return result;
    if (result)
        return ZE_RESULT_ERROR_MODULE_LINK_FAILURE;
    atomic_store(&code->program, program);
    return ZE_RESULT_SUCCESS;
}

static ze_result_t open_set(set *s, uint32_t n, ze_module_handle_t *handles)
{
    *s = (set){calloc(n + 1u, sizeof(*s->modules)), calloc(n + 1u, sizeof(*s->is_in)), n};
    if (!s->modules || !s->is_in)
        return ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    for (uint32_t i = 0; i < n; i++) {
        EXEC_HANDLE(s->modules[i], handles[i], SOFT_MODULE);
    }
    return ZE_RESULT_SUCCESS;
}

static void close_set(set *s)
{
    free(s->modules);
    free(s->is_in);
}

ze_result_t ZE_APICALL soft_zeModuleDynamicLink(uint32_t n, ze_module_handle_t *modules,
                                                ze_module_build_log_handle_t *out_log)
{
    soft_text   log = {0};
    set         s;
    ze_result_t result;

    SOFT_CALL();
    if (!modules)
        return ZE_RESULT_ERROR_INVALID_NULL_POINTER;
    result = open_set(&s, n, modules);
    pthread_mutex_lock(&link_lock);
    for (size_t i = 0; i < s.count && !result; i++)
        result = link_one(&s, i, &log);
    pthread_mutex_unlock(&link_lock);
    if ((!result || result == ZE_RESULT_ERROR_MODULE_LINK_FAILURE) && soft_log_give(&log, out_log))
        result = ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    soft_text_free(&log);
    close_set(&s);
    return result;
}

/* --- inspection ------------------------------------------------------------------------ */

static bool set_exports(const set *s, const char *name)
{
    for (size_t i = 0; i < s->count; i++)
        if (exports(s->modules[i]->code, name))
            return true;
    return false;
}

static void list_names(const set *s, uint32_t which, soft_text *log)
{
    for (size_t i = 0; i < s->count; i++)
        for (size_t j = 0; j < s->modules[i]->code->nunits; j++) {
            const soft_unit  *unit = &s->modules[i]->code->units[j];
            const soft_names *names =
                which == ZE_LINKAGE_INSPECTION_EXT_FLAG_EXPORTS ? &unit->exports : &unit->imports;

            for (size_t k = 0; k < names->count; k++)
                if (which != ZE_LINKAGE_INSPECTION_EXT_FLAG_UNRESOLVABLE_IMPORTS ||
                    !set_exports(s, names->names[k]))
                    soft_text_add(log, "  %s\n", names->names[k]);
        }
}

static void inspect(const set *s, uint32_t flags, soft_text *log)
{
    static const struct {
        uint32_t    which;
        const char *title;
    } lists[] = {{ZE_LINKAGE_INSPECTION_EXT_FLAG_IMPORTS, "imports"},
                 {ZE_LINKAGE_INSPECTION_EXT_FLAG_UNRESOLVABLE_IMPORTS, "unresolvable imports"},
                 {ZE_LINKAGE_INSPECTION_EXT_FLAG_EXPORTS, "exports"}};

    for (size_t i = 0; i < sizeof(lists) / sizeof(*lists); i++) {
        if (flags && !(flags & lists[i].which))
            continue;
        soft_text_add(log, "%s:\n", lists[i].title);
        list_names(s, lists[i].which, log);
    }
}

ze_result_t ZE_APICALL soft_zeModuleInspectLinkageExt(ze_linkage_inspection_ext_desc_t *desc,
                                                      uint32_t n, ze_module_handle_t *modules,
                                                      ze_module_build_log_handle_t *out_log)
{
    soft_text   log = {0};
    set         s;
    ze_result_t result;

    SOFT_CALL();
    if (!desc || !modules || !out_log)
        return ZE_RESULT_ERROR_INVALID_NULL_POINTER;
    if (desc->flags > 0x7)
        return ZE_RESULT_ERROR_INVALID_ENUMERATION;
    result = open_set(&s, n, modules);
    if (!result) {
        inspect(&s, desc->flags, &log);
        result = soft_log_give(&log, out_log);
    }
    soft_text_free(&log);
    close_set(&s);
    return result;
}
