/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* usm-replay: how would another pool, or a smaller device, have handled a program's allocations?
 *
 * This file has the command line.  load.c reads logs, run.c replays them, print.c prints the
 * results, budget.c compares a log's peak with a budget.  The manual is docs/man/usm-replay.1. */
#include "options.h"
#include "replay.h"
#include "spill.h"

#include "base/text.h"

#include <errno.h>
#include <getopt.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define POOLS_MAX 32u

static const char help[] =
    "usage: usm-replay LOG [--pool POOL]... [--device-mem SIZE] [OPTION]...\n"
    "       usm-replay LOG --budget SIZE [--fail] [--kind KIND] [--only-pool N] [--json]\n"
    "       usm-replay --spill WORKLOAD [--frames N] [OPTION]...\n"
    "\n"
    "Replays the allocations of a log on pools of libusm, without the program that made them.\n"
    "LOG is a trace of libusm (USM_TRACE), a CSV log of RMM, or a replay log of Umpire.\n"
    "\n"
    "  -p, --pool POOL        slab, arena, direct, ..., with options as in USM_POOL:\n"
    "                         slab,area_size=32M; several are compared (default: slab and direct)\n"
    "  -m, --device-mem SIZE  memory of the device: 8G\n"
    "  -k, --kind KIND        device (default), host or shared memory\n"
    "  -a, --area-size SIZE   what a pool takes at a time (default: its own preference)\n"
    "  -d, --device SELECTOR  another device than null:0, whose memory nobody can touch\n"
    "      --no-map           null:0 cannot reserve and map\n"
    "      --only-pool N      of a trace: the blocks of its pool N\n"
    "  -t, --threads          one thread for each of the log, in its order\n"
    "  -r, --repeat N         passes that are timed (5)\n"
    "  -b, --budget SIZE      does the log's most live memory of the kind fit (8G)?  If not, says\n"
    "                         who held it, by call site; nothing is replayed\n"
    "      --fail             exits with 1 if it does not\n"
    "  -s, --spill WORKLOAD   how buffers larger than memory would do: a trace, or workloads by\n"
    "                         name, joined by +: W1+R+X; list: their names\n"
    "  -f, --frames N         blocks that fit in memory (256)\n"
    "      --blocks N         of a workload by name (2048); --block-size SIZE (1M);\n"
    "      --rounds N         how often some repeat (4); --seed N\n"
    "      --bandwidth SIZE   of the device, a second (2000M); --latency-us N of a transfer (35);\n"
    "      --depth N          transfers at a time (16); --work-us N of the program (66)\n"
    "      --window N         most blocks of readahead (as the engine: 32 MiB, a quarter of "
    "memory)\n"
    "  -j, --json             for programs; the members are in usm-replay(1)\n"
    "  -V, --version\n"
    "  -h, --help\n"
    "\n"
    "Exits with 3 when a pool ran out of memory.\n";

typedef struct command_line {
    replay_options o;
    const char    *pools[POOLS_MAX];
    size_t         npools;
    const char    *spill; /* NULL: the allocations of a log */
    spill_options  s;
} command_line;

static int take_kind(const tool *t, const tool_option *o, void *line, const char *value)
{
    static const char *const names[] = {
        [USM_HOST] = "host", [USM_DEVICE] = "device", [USM_SHARED] = "shared"};
    command_line *c = line;

    for (int k = USM_HOST; k <= USM_SHARED; k++)
        if (strcmp(value, names[k]) == 0) {
            c->o.kind = (usm_kind)k;
            return -1;
        }
    return tool_misuse(t, o->wants);
}

static int take_pool(const tool *t, const tool_option *o, void *line, const char *value)
{
    command_line *c = line;

    if (c->npools == POOLS_MAX)
        return tool_misuse(t, o->wants);
    c->pools[c->npools++] = value;
    return -1;
}

static int take_us(const tool *t, const tool_option *o, void *line, const char *value)
{
    uint64_t n = 0;

    if (!usm__span_number(usm__span_of(value), &n) || n > 1000000)
        return tool_misuse(t, o->wants);
    memcpy((char *)line + o->at, &(double){(double)n * 1e3}, sizeof(double));
    return -1;
}

static int take_seed(const tool *t, const tool_option *o, void *line, const char *value)
{
    command_line *c = line;

    return usm__span_number(usm__span_of(value), &c->s.seed) && c->s.seed > 0
               ? -1
               : tool_misuse(t, o->wants);
}

static int take_spill(const tool *t, const tool_option *o, void *line, const char *value)
{
    (void)t, (void)o;
    if (strcmp(value, "list") == 0) {
        spill_workload_list();
        return REPLAY_FINE;
    }
    ((command_line *)line)->spill = value;
    return -1;
}

static int take_json(const tool *t, const tool_option *o, void *line, const char *value)
{
    command_line *c = line;

    (void)t, (void)o, (void)value;
    c->o.as_json = c->s.as_json = true;
    return -1;
}

#define AT(member) offsetof(command_line, member)

static const tool_option options[] = {
    {.name = "pool", 'p', TOOL_CALL, 0, take_pool, "at most 32 pools"},
    {.name = "device-mem",
     'm',
     TOOL_SIZE,
     AT(o.device_mem),
     NULL,
     "--device-mem wants a size, such as 8G"},
    {.name = "kind", 'k', TOOL_CALL, 0, take_kind, "--kind is host, device or shared"},
    {.name = "area-size",
     'a',
     TOOL_SIZE,
     AT(o.area_size),
     NULL,
     "--area-size wants a size, such as 32M"},
    {.name = "device", 'd', TOOL_TEXT, AT(o.device)},
    {.name = "no-map", 0, TOOL_FLAG, AT(o.no_map)},
    {.name = "only-pool",
     0,
     TOOL_NUMBER,
     AT(o.only_pool),
     NULL,
     "--only-pool wants the number of a pool",
     1,
     UINT32_MAX},
    {.name = "budget", 'b', TOOL_SIZE, AT(o.budget), NULL, "--budget wants a size, such as 8G"},
    {.name = "fail", 0, TOOL_FLAG, AT(o.fails)},
    {.name = "threads", 't', TOOL_FLAG, AT(o.threads)},
    {.name = "repeat",
     'r',
     TOOL_NUMBER,
     AT(o.repeat),
     NULL,
     "--repeat wants a number from 1 to 1000",
     1,
     1000},
    {.name = "spill", 's', TOOL_CALL, 0, take_spill},
    {.name = "frames",
     'f',
     TOOL_NUMBER,
     AT(s.frames),
     NULL,
     "--frames wants a number above 0",
     1,
     1u << 24},
    {.name = "blocks",
     0,
     TOOL_NUMBER,
     AT(s.blocks),
     NULL,
     "--blocks wants a number above 0",
     1,
     1u << 28},
    {.name = "block-size",
     0,
     TOOL_SIZE,
     AT(s.block_size),
     NULL,
     "--block-size wants a size, such as 1M"},
    {.name = "rounds",
     0,
     TOOL_NUMBER,
     AT(s.rounds),
     NULL,
     "--rounds wants a number from 1 to 10000",
     1,
     10000},
    {.name = "seed", 0, TOOL_CALL, 0, take_seed, "--seed wants a number above 0"},
    {.name = "bandwidth",
     0,
     TOOL_SIZE,
     AT(s.bandwidth),
     NULL,
     "--bandwidth wants bytes a second, such as 2000M"},
    {.name = "latency-us",
     0,
     TOOL_CALL,
     AT(s.latency_ns),
     take_us,
     "--latency-us wants microseconds"},
    {.name = "depth",
     0,
     TOOL_NUMBER,
     AT(s.depth),
     NULL,
     "--depth wants a number from 1 to 1024",
     1,
     1024},
    {.name = "work-us", 0, TOOL_CALL, AT(s.work_ns), take_us, "--work-us wants microseconds"},
    {.name = "window",
     0,
     TOOL_NUMBER,
     AT(s.window),
     NULL,
     "--window wants a number from 1 to 4096",
     1,
     4096},
    {.name = "json", 'j', TOOL_PLAIN, 0, take_json},
    {.name = NULL},
};
static const tool replay = {"usm-replay", help, options};

static int parse(command_line *c, int argc, char **argv)
{
    int rc;

    *c = (command_line){.o = {.kind = USM_DEVICE, .device = "null:0", .repeat = 5},
                        .s = SPILL_OPTIONS_INIT};
    rc = tool_parse(&replay, argc, argv, false, c);
    if (rc >= 0)
        return rc;
    if (c->o.fails && c->o.budget == 0)
        return tool_misuse(&replay, "--fail goes with --budget");
    if (c->o.budget && (c->spill || c->npools || c->o.device_mem))
        return tool_misuse(&replay, "--budget replays nothing: it goes without pools, "
                                    "--device-mem and --spill");
    if (c->spill)
        return argc == optind ? -1
                              : tool_misuse(&replay, "--spill wants no log beside its workload");
    if (argc - optind != 1)
        return tool_misuse(&replay, argc == optind ? "which log?" : "one log at a time");
    if (c->npools == 0) {
        c->pools[c->npools++] = "slab";
        c->pools[c->npools++] = "direct";
    }
    return -1;
}

/* The library reads these variables when it starts, which is at its first call.  The replay must
 * not be traced, nor affected by settings for the program that was recorded. */
static void set_up(const replay_options *o)
{
    char size[32];

    setenv("USM_DEVICE_SELECTOR", o->device, 1);
    unsetenv("USM_TRACE");
    if (o->device_mem) {
        snprintf(size, sizeof size, "%llu", (unsigned long long)o->device_mem);
        setenv("USM_NULL_MEMORY", size, 1);
    }
    if (o->no_map)
        setenv("USM_NULL_VMEM", "0", 1);
}

static int replay_all(const command_line *c, const replay_log *log)
{
    replay_result results[POOLS_MAX];
    int           rc = REPLAY_FINE;

    for (size_t i = 0; i < c->npools; i++) {
        replay_run(log, c->pools[i], &c->o, &results[i]);
        if (results[i].error[0])
            rc = REPLAY_FAILED;
        else if (results[i].oom_size && rc == REPLAY_FINE)
            rc = REPLAY_OOM;
    }
    if (c->o.as_json)
        print_json(log, &c->o, results, c->npools);
    else
        print_text(log, &c->o, results, c->npools);
    return fflush(stdout) == 0 ? rc : REPLAY_FAILED;
}

int main(int argc, char **argv)
{
    command_line c;
    replay_log   log;
    char         why[500];
    int          rc = parse(&c, argc, argv);

    if (rc >= 0)
        return rc;
    if (c.spill)
        return spill_main(c.spill, &c.s);
    set_up(&c.o);
    if (c.o.budget)
        return budget_main(argv[optind], &c.o);
    if (!log_load(argv[optind], c.o.only_pool, &log, why, sizeof why)) {
        fprintf(stderr, "usm-replay: %s\n", why);
        return REPLAY_FAILED;
    }
    if (log.damage[0])
        fprintf(stderr, "usm-replay: %s: %s; replayed is what can be read%s\n", log.path,
                log.damage, log.left_out > 1 ? " (more lines are left out)" : "");
    rc = replay_all(&c, &log);
    log_free(&log);
    return rc;
}
