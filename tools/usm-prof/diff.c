/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* usm-prof diff: what changed between two traces of one program, as text and as JSON.
 *
 * Rows of both traces are matched by name.  A call site's name loses the offsets in its functions,
 * so that it stays the same when the program is built again; what has no symbol keeps its offset.
 * Times and energy differ between any two runs: they are shown, and do not count as a
 * difference. */
#include "prof.h"

#include "base/json.h"
#include "base/os.h"
#include "base/text.h"
#include "columns.h"
#include "profile/peaks.h"

#include <usm/version.h>

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define COLUMNS 2

typedef enum unit { COUNT, BYTES, TIME, ENERGY } unit; /* ENERGY: microjoules */

typedef struct column {
    const char *name, *key;
    unit        unit;
} column;

/* [0]: before, [1]: after. */
typedef struct row {
    char     name[USM__SITE_NAME];
    uint64_t n[2][COLUMNS];
} row;

typedef struct table {
    const char *title, *first, *key; /* `key` and those of the columns: in JSON */
    column      columns[COLUMNS];    /* rows are sorted by the growth of the first */
    size_t      n, room;
    row        *rows;
} table;

typedef struct difference {
    size_t ntotals;
    column names[12];
    row    totals[12]; /* one number each */
    table  peaks, sites, devices, queues, energy;
    bool   is_equal, is_sampled;
} difference;

/* --- rows ------------------------------------------------------------------------------------ */

static bool add(table *t, int side, const char *name, uint64_t a, uint64_t b)
{
    row *r;

    if (!usm__heap_room(&t->rows, t->n, &t->room, sizeof(*t->rows)))
        return false;
    r             = &t->rows[t->n++];
    *r            = (row){0};
    r->n[side][0] = a;
    r->n[side][1] = b;
    (void)snprintf(r->name, sizeof(r->name), "%s", name);
    return true;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const row *)a)->name, ((const row *)b)->name);
}

static int by_growth(const void *a, const void *b)
{
    const row *x = a, *y = b;
    int64_t    p = (int64_t)(x->n[1][0] - x->n[0][0]), q = (int64_t)(y->n[1][0] - y->n[0][0]);

    return p != q ? (p < q ? 1 : -1) : by_name(a, b);
}

/* Makes one row of all that have one name, and sorts them. */
static void match(table *t)
{
    size_t n = 0;

    if (t->n == 0)
        return;
    qsort(t->rows, t->n, sizeof(*t->rows), by_name);
    for (size_t i = 1; i < t->n; i++) {
        if (strcmp(t->rows[i].name, t->rows[n].name) != 0) {
            t->rows[++n] = t->rows[i];
            continue;
        }
        for (int k = 0; k < 2 * COLUMNS; k++)
            t->rows[n].n[k / COLUMNS][k % COLUMNS] += t->rows[i].n[k / COLUMNS][k % COLUMNS];
    }
    t->n = n + 1;
    qsort(t->rows, t->n, sizeof(*t->rows), by_growth);
}

static bool is_same(const row *r)
{
    return memcmp(r->n[0], r->n[1], sizeof(r->n[0])) == 0;
}

static size_t count_changed(const table *t)
{
    size_t n = 0;

    for (size_t i = 0; i < t->n; i++)
        n += !is_same(&t->rows[i]);
    return n;
}

/* --- the two traces -------------------------------------------------------------------------- */

/* "grid_alloc+0x45 (app) < cycle+0x83 (app)" becomes "grid_alloc (app) < cycle (app)". */
static void drop_offsets(const char *name, char *out)
{
    while (*name != '\0') {
        size_t n = strncmp(name, "+0x", 3) == 0 ? 3 : 0;

        while (n >= 3 && isxdigit((unsigned char)name[n]))
            n++;
        if (n > 3 && strncmp(name + n, " (", 2) == 0)
            name += n;
        else
            *out++ = *name++;
    }
    *out = '\0';
}

static void add_totals(difference *d, int side, const usm__analysis *a)
{
    const struct {
        column   column;
        uint64_t value;
    } totals[] = {
        {{"allocations", "allocations", COUNT}, a->all.allocations},
        {{"bytes allocated", "bytes", BYTES}, a->all.bytes},
        {{"allocations that failed", "failed", COUNT}, a->all.failed},
        {{"most blocks live", "blocks_peak", COUNT}, a->all.blocks_peak},
        {{"blocks live at the end", "blocks_at_end", COUNT}, a->all.blocks},
        {{"bytes live at the end", "live_at_end", BYTES}, a->all.live},
        {{"reuse: allocations without a driver call", "hits", COUNT}, a->all.hits},
        {{"driver calls that take memory", "takes", COUNT}, a->takes},
        {{"driver calls that give it back", "gives", COUNT}, a->gives},
        {{"time in driver calls", "driver_ns", TIME}, a->driver_ns},
        {{"energy of launches", "launches_uj", ENERGY}, a->energy.all},
        {{"energy while processors had none", "idle_uj", ENERGY}, a->energy.idle},
    };

    d->ntotals = sizeof(totals) / sizeof(*totals);
    for (size_t i = 0; i < d->ntotals; i++) {
        d->names[i]             = totals[i].column;
        d->totals[i].n[side][0] = totals[i].value;
    }
}

static bool add_rows(difference *d, int side, const usm__analysis *a, const usm__profile_peaks *p)
{
    char name[USM__SITE_NAME];
    bool is_done = true;

    for (size_t i = 0; i < p->n && is_done; i++)
        is_done =
            add(&d->peaks, side, p->rows[i].name, p->rows[i].live_peak, p->rows[i].reserved_peak);
    for (size_t i = 0; i < a->sites.n && is_done; i++) {
        drop_offsets(a->sites.rows[i].name, name);
        is_done = add(&d->sites, side, name, a->sites.rows[i].bytes, a->sites.rows[i].allocations);
    }
    for (size_t i = 0; i < a->work.ndevices && is_done; i++) {
        const usm__profile_work_device *one = &a->work.devices[i];

        is_done = add(one->commands > 0 ? &d->queues : &d->devices, side, one->name, one->kernel_ns,
                      one->copy_ns);
    }
    return is_done;
}

/* Devices and kernels by their names, whatever their numbers are. */
static bool add_energy(difference *d, int side, const usm__profile *t, const usm__analysis *a)
{
    bool is_done = true;

    for (size_t i = 0; i < a->energy.n && is_done; i++) {
        const usm__profile_energy_row *r = &a->energy.rows[i];
        char                           name[USM__SITE_NAME];

        (void)snprintf(name, sizeof(name), "%s on %s", usm__profile_work_kernel_name(t, r->kernel),
                       usm__profile_work_member_name(t, r->member));
        is_done = add(&d->energy, side, name, r->is_stated ? 0 : r->microjoules,
                      r->is_stated ? r->microjoules : 0);
    }
    return is_done;
}

static bool take_in(difference *d, int side, const usm__profile *t, const usm__analysis *a)
{
    usm__profile_peaks found;
    bool               is_done;

    if (usm__profile_peaks_find(t, 0, &found) != 0)
        return false;
    add_totals(d, side, a);
    for (size_t i = 0; i < t->nsources; i++)
        d->is_sampled |= t->sources[i].header.stack_bytes > 1;
    is_done = add_rows(d, side, a, &found) && add_energy(d, side, t, a);
    usm__profile_peaks_free(&found);
    return is_done;
}

static void compare(difference *d)
{
    match(&d->peaks);
    match(&d->sites);
    match(&d->devices);
    match(&d->queues);
    match(&d->energy);
    d->is_equal = count_changed(&d->peaks) == 0 && count_changed(&d->sites) == 0;
    for (size_t i = 0; i < d->ntotals; i++)
        d->is_equal &=
            d->names[i].unit == TIME || d->names[i].unit == ENERGY || is_same(&d->totals[i]);
}

/* --- text ------------------------------------------------------------------------------------ */

static void put_value(columns *c, unit u, uint64_t value)
{
    if (u == BYTES)
        columns_bytes(c, value);
    else if (u == TIME)
        columns_time(c, (double)value);
    else if (u == ENERGY)
        columns_add(c, "%.3f J", (double)value / 1e6);
    else
        columns_add(c, "%llu", (unsigned long long)value);
}

static void put_change(columns *c, unit u, uint64_t before, uint64_t after)
{
    uint64_t    size = after > before ? after - before : before - after;
    const char *sign = after > before ? "+" : after < before ? "-" : "";
    char        text[32];

    if (u == BYTES)
        (void)usm__format_bytes(size, text, sizeof(text));
    else if (u == TIME)
        (void)time_text((double)size, text, sizeof(text));
    else if (u == ENERGY)
        (void)snprintf(text, sizeof(text), "%.3f J", (double)size / 1e6);
    else
        (void)snprintf(text, sizeof(text), "%llu", (unsigned long long)size);
    columns_add(c, "%s%s", sign, size ? text : "0");
}

static void put_values(columns *c, unit u, const row *r, size_t k)
{
    put_value(c, u, r->n[0][k]);
    put_value(c, u, r->n[1][k]);
    put_change(c, u, r->n[0][k], r->n[1][k]);
}

static void print_totals(const difference *d)
{
    columns *c = columns_new(4);

    columns_add(c, "%s", "");
    columns_add(c, "before");
    columns_add(c, "after");
    columns_add(c, "change");
    for (size_t i = 0; i < d->ntotals; i++) {
        columns_add(c, "%s", d->names[i].name);
        put_values(c, d->names[i].unit, &d->totals[i], 0);
    }
    columns_print(c);
}

static void print_table(const table *t, size_t top)
{
    size_t   changed = count_changed(t), shown = 0, most = top && top < changed ? top : changed;
    columns *c;

    printf("\n%s\n", t->title);
    if (changed == 0) {
        puts("  no difference");
        return;
    }
    c = columns_new(1 + 3 * COLUMNS);
    columns_add(c, "%s", t->first);
    for (size_t k = 0; k < COLUMNS; k++) {
        columns_add(c, "%s before", t->columns[k].name);
        columns_add(c, "after");
        columns_add(c, "change");
    }
    for (size_t i = 0; i < t->n && shown < most; i++) {
        if (is_same(&t->rows[i]))
            continue;
        columns_add(c, "%s", t->rows[i].name);
        for (size_t k = 0; k < COLUMNS; k++)
            put_values(c, t->columns[k].unit, &t->rows[i], k);
        shown++;
    }
    columns_print(c);
    if (shown < changed)
        printf("  ... and %zu more (--top 0 shows all)\n", changed - shown);
}

static void print_text(const difference *d, char *const *files, size_t top)
{
    printf("Before: %s\nAfter:  %s\n\n", files[0], files[1]);
    print_totals(d);
    print_table(&d->peaks, top);
    if (d->sites.n > 0)
        print_table(&d->sites, top);
    if (d->devices.n > 0)
        print_table(&d->devices, top);
    if (d->queues.n > 0)
        print_table(&d->queues, top);
    if (d->energy.n > 0)
        print_table(&d->energy, top);
    if (d->is_equal)
        puts("\nNo difference: all counts and sizes are the same.");
}

/* --- JSON ------------------------------------------------------------------------------------ */

static void json_pair(usm__json *j, const char *key, uint64_t before, uint64_t after)
{
    usm__json_object_begin(j, key);
    usm__json_number(j, "before", before);
    usm__json_number(j, "after", after);
    usm__json_object_end(j);
}

static void json_table(usm__json *j, const table *t)
{
    usm__json_array_begin(j, t->key);
    for (size_t i = 0; i < t->n; i++) {
        usm__json_object_begin(j, NULL);
        usm__json_text(j, "name", t->rows[i].name);
        for (size_t k = 0; k < COLUMNS; k++)
            json_pair(j, t->columns[k].key, t->rows[i].n[0][k], t->rows[i].n[1][k]);
        usm__json_object_end(j);
    }
    usm__json_array_end(j);
}

static void print_json(const difference *d, char *const *files)
{
    usm__json j = {.out = {.file = stdout}, .form = USM__JSON_INDENTED};

    usm__json_object_begin(&j, NULL);
    usm__json_number(&j, "schema", 1);
    usm__json_text(&j, "version", USM_VERSION_STRING);
    usm__json_text(&j, "before", files[0]);
    usm__json_text(&j, "after", files[1]);
    usm__json_bool(&j, "equal", d->is_equal);
    usm__json_object_begin(&j, "totals");
    for (size_t i = 0; i < d->ntotals; i++)
        json_pair(&j, d->names[i].key, d->totals[i].n[0][0], d->totals[i].n[1][0]);
    usm__json_object_end(&j);
    json_table(&j, &d->peaks);
    json_table(&j, &d->sites);
    json_table(&j, &d->devices);
    json_table(&j, &d->queues);
    json_table(&j, &d->energy);
    usm__json_object_end(&j);
}

static const table peaks = {
    .title   = "Peaks by kind and device",
    .first   = "memory",
    .key     = "peaks",
    .columns = {{"live", "live_peak", BYTES}, {"reserved", "reserved_peak", BYTES}}};
static const table sites = {
    .title   = "Call sites, the largest growth first",
    .first   = "call site",
    .key     = "call_sites",
    .columns = {{"bytes", "bytes", BYTES}, {"allocations", "allocations", COUNT}}};
static const table devices = {
    .title   = "Devices in split launches",
    .first   = "device",
    .key     = "devices",
    .columns = {{"kernels", "kernel_ns", TIME}, {"copies", "copy_ns", TIME}}};
static const table queues = {
    .title   = "Queues of the program",
    .first   = "queue",
    .key     = "queues",
    .columns = {{"kernels", "kernel_ns", TIME}, {"copies", "copy_ns", TIME}}};
static const table energy = {
    .title   = "Energy of launches (powercap: measured; USM_WATTS: from what it says)",
    .first   = "kernel and device",
    .key     = "energy",
    .columns = {{"powercap", "counted_uj", ENERGY}, {"USM_WATTS", "stated_uj", ENERGY}}};

bool diff(char *const *files, const usm__profile *const *traces,
          const usm__analysis *const *analyses, bool as_json, size_t top)
{
    difference *d       = usm__heap_alloc(sizeof(*d));
    bool        is_done = d != NULL;

    if (d == NULL)
        return false;
    d->peaks   = peaks;
    d->sites   = sites;
    d->devices = devices;
    d->queues  = queues;
    d->energy  = energy;
    for (int side = 0; side < 2 && is_done; side++)
        is_done = take_in(d, side, traces[side], analyses[side]);
    if (d->is_sampled)
        d->sites.title = "Call sites, the largest growth first (estimated from sampled stacks)";
    if (is_done) {
        compare(d);
        if (as_json)
            print_json(d, files);
        else
            print_text(d, files, top);
    }
    usm__heap_free(d->peaks.rows);
    usm__heap_free(d->sites.rows);
    usm__heap_free(d->devices.rows);
    usm__heap_free(d->queues.rows);
    usm__heap_free(d->energy.rows);
    usm__heap_free(d);
    return is_done;
}
