/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Reads logs: finds their format, and converts them to one list of operations.  The file of each
 * format interprets its lines, and calls loader_alloc() and loader_free(). */
#include "replay.h"

#include "base/os.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>

#define NONE UINT32_MAX

/* An address, and the block that has it; NONE: it was freed. */
typedef struct place {
    uint64_t space, address;
    uint32_t block;
    bool     used;
} place;

struct loader {
    replay_log *log;
    place      *table;
    size_t      places, table_cap; /* a power of two */
    uint32_t   *below; /* by block: the one that had the address before and is still live, or
                          NONE */
    uint64_t   *sizes; /* by block */
    size_t      blocks_cap;
    uint64_t   *threads; /* the log's own numbers */
    size_t      threads_cap;
    uint64_t    live;
};

replay_log *loader_log(loader *l)
{
    return l->log;
}

/* ---- addresses ---------------------------------------------------------------------- */

static place *place_in(place *table, size_t cap, uint64_t space, uint64_t address)
{
    size_t at = (size_t)((address ^ space * 0x9e3779b97f4a7c15u) * 0xff51afd7ed558ccdu >> 17);

    for (;; at++) {
        place *p = &table[at & (cap - 1)];

        if (!p->used || (p->space == space && p->address == address))
            return p;
    }
}

static bool grow_table(loader *l)
{
    size_t cap   = l->table_cap ? l->table_cap * 2 : 1024;
    place *table = calloc(cap, sizeof *table);

    if (!table)
        return false;
    for (size_t i = 0; i < l->table_cap; i++)
        if (l->table[i].used)
            *place_in(table, cap, l->table[i].space, l->table[i].address) = l->table[i];
    free(l->table);
    l->table     = table;
    l->table_cap = cap;
    return true;
}

/* The address's place, which is made if it is new; NULL: no memory. */
static place *place_of(loader *l, uint64_t space, uint64_t address)
{
    place *p;

    if (l->places * 2 >= l->table_cap && !grow_table(l))
        return NULL;
    p = place_in(l->table, l->table_cap, space, address);
    if (!p->used) {
        *p = (place){space, address, NONE, true};
        l->places++;
    }
    return p;
}

/* ---- operations ------------------------------------------------------------------------ */

/* There are few threads: a list suffices.  0 and NONE if there is no memory. */
static uint32_t thread_index(loader *l, uint64_t thread)
{
    uint32_t n = l->log->threads;

    for (uint32_t i = n; i > 0; i--)
        if (l->threads[i - 1] == thread)
            return i - 1;
    if (!usm__heap_room(&l->threads, n, &l->threads_cap, sizeof *l->threads))
        return NONE;
    l->threads[n]   = thread;
    l->log->threads = n + 1;
    return n;
}

bool loader_add(loader *l, uint64_t size, uint32_t block, uint64_t thread, uint64_t event)
{
    replay_log *log   = l->log;
    uint32_t    index = thread_index(l, thread);

    if (index == NONE ||
        !usm__heap_room(&log->operations, log->n, &log->cap, sizeof *log->operations))
        return false;
    log->operations[log->n++] = (operation){size, block, index, event};
    return true;
}

bool loader_alloc(loader *l, uint64_t space, uint64_t address, uint64_t size, uint64_t thread,
                  uint64_t event)
{
    place   *p     = place_of(l, space, address);
    uint32_t block = l->log->blocks;
    size_t   cap   = l->blocks_cap;

    if (!p || block == NONE || size == REPLAY_FREE ||
        !usm__heap_room(&l->below, block, &cap, sizeof *l->below) ||
        !usm__heap_room(&l->sizes, block, &l->blocks_cap, sizeof *l->sizes))
        return false;
    l->below[block] = p->block;
    l->sizes[block] = size;
    p->block        = block;
    l->log->blocks++;
    l->live += size;
    if (l->live > l->log->live_peak)
        l->log->live_peak = l->live;
    return loader_add(l, size, block, thread, event);
}

bool loader_free(loader *l, uint64_t space, uint64_t address, uint64_t thread, uint64_t event)
{
    place   *p = place_of(l, space, address);
    uint32_t block;

    if (!p)
        return false;
    block = p->block;
    if (block == NONE) {
        l->log->unmatched++;
        return true;
    }
    p->block = l->below[block];
    l->live -= l->sizes[block];
    return loader_add(l, REPLAY_FREE, block, thread, event);
}

void loader_wrong(loader *l, uint64_t event, const char *what)
{
    if (l->log->left_out++ == 0)
        snprintf(l->log->damage, sizeof l->log->damage, "%s %llu: %s", l->log->unit,
                 (unsigned long long)event, what);
}

void loader_failed(loader *l)
{
    l->log->failed++;
}

bool loader_lines(loader *l, const char *path, loader_line_fn *fn, char *why, size_t why_size)
{
    FILE    *file   = fopen(path, "re");
    char    *line   = NULL;
    size_t   cap    = 0;
    uint64_t at     = 0;
    bool     memory = true;

    if (!file) {
        snprintf(why, why_size, "%s: %s", path, strerror(errno));
        return false;
    }
    while (memory && getline(&line, &cap, file) != -1) {
        const char *wrong = fn(l, line, ++at, &memory);

        if (wrong)
            loader_wrong(l, at, wrong);
    }
    free(line);
    fclose(file);
    if (!memory)
        snprintf(why, why_size, "%s: no memory for a log of this size", path);
    return memory;
}

/* ---- formats ------------------------------------------------------------------------------ */

typedef struct format {
    const char *name, *unit;
    log_reader *read;
} format;

/* Recognises a format by the file's first bytes; NULL: no known format. */
static const format *format_of(const char *head)
{
    static const format trace  = {"libusm trace", "event", log_read_trace};
    static const format rmm    = {"RMM log", "line", log_read_rmm};
    static const format umpire = {"Umpire log", "line", log_read_umpire};

    if (strncmp(head, "USMTRACE", 8) == 0)
        return &trace;
    if (strncmp(head, "Thread,", 7) == 0)
        return &rmm;
    /* Umpire's lines are mixed with the program's own output. */
    if (strstr(head, "\"kind\":\"replay\"") || strstr(head, "\"kind\": \"replay\"") ||
        (strstr(head, "\"category\"") && strstr(head, "\"timestamp\"")))
        return &umpire;
    return NULL;
}

static const format *find_format(const char *path, char *why, size_t why_size)
{
    static char   head[65536];
    FILE         *file = fopen(path, "re");
    size_t        n    = file ? fread(head, 1, sizeof head - 1, file) : 0;
    const format *f;

    if (!file || ferror(file)) {
        snprintf(why, why_size, "%s: %s", path, strerror(errno));
        if (file)
            fclose(file);
        return NULL;
    }
    fclose(file);
    head[n] = '\0';
    f       = format_of(head);
    if (!f)
        snprintf(why, why_size,
                 "%s is not a log known here: neither a trace of libusm, nor RMM's CSV "
                 "(Thread,Time,Action,Pointer,Size,Stream), nor Umpire's replay (JSON lines)",
                 path);
    return f;
}

bool log_load(const char *path, uint32_t only_pool, replay_log *log, char *why, size_t why_size)
{
    loader        l    = {.log = log};
    const format *f    = find_format(path, why, why_size);
    bool          good = f != NULL;

    *log = (replay_log){.path = path};
    if (good) {
        log->format = f->name;
        log->unit   = f->unit;
        good        = f->read(&l, path, only_pool, why, why_size);
    }
    if (good && log->n == 0) {
        snprintf(why, why_size, "%s: there is no allocation in it%s%s", path,
                 log->damage[0] ? "; " : "", log->damage);
        good = false;
    }
    free(l.table);
    free(l.below);
    free(l.sizes);
    free(l.threads);
    if (!good)
        log_free(log);
    return good;
}

void log_free(replay_log *log)
{
    free(log->operations);
    log->operations = NULL;
    log->n          = 0;
}
