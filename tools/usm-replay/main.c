/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* usm-replay: how would another pool, or a smaller device, have handled a program's allocations?
 *
 * This file has the command line.  load.c reads logs, run.c replays them, print.c prints the
 * results.  The manual is docs/man/usm-replay.1. */
#include "replay.h"
#include "spill.h"

#include "base/text.h"

#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define POOLS_MAX 32u

enum { REPLAY_FINE = 0, REPLAY_FAILED = 1, REPLAY_MISUSED = 2, REPLAY_OOM = 3 };

static const char help[] =
    "usage: usm-replay LOG [--pool POOL]... [--device-mem SIZE] [OPTION]...\n"
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

enum {
    OPTION_NO_MAP = 256,
    OPTION_ONLY_POOL,
    OPTION_BLOCKS,
    OPTION_BLOCK_SIZE,
    OPTION_ROUNDS,
    OPTION_SEED,
    OPTION_BANDWIDTH,
    OPTION_LATENCY,
    OPTION_DEPTH,
    OPTION_WORK,
    OPTION_WINDOW
};

static const struct option long_options[] = {
    {"pool", required_argument, NULL, 'p'},
    {"device-mem", required_argument, NULL, 'm'},
    {"kind", required_argument, NULL, 'k'},
    {"area-size", required_argument, NULL, 'a'},
    {"device", required_argument, NULL, 'd'},
    {"no-map", no_argument, NULL, OPTION_NO_MAP},
    {"only-pool", required_argument, NULL, OPTION_ONLY_POOL},
    {"threads", no_argument, NULL, 't'},
    {"repeat", required_argument, NULL, 'r'},
    {"spill", required_argument, NULL, 's'},
    {"frames", required_argument, NULL, 'f'},
    {"blocks", required_argument, NULL, OPTION_BLOCKS},
    {"block-size", required_argument, NULL, OPTION_BLOCK_SIZE},
    {"rounds", required_argument, NULL, OPTION_ROUNDS},
    {"seed", required_argument, NULL, OPTION_SEED},
    {"bandwidth", required_argument, NULL, OPTION_BANDWIDTH},
    {"latency-us", required_argument, NULL, OPTION_LATENCY},
    {"depth", required_argument, NULL, OPTION_DEPTH},
    {"work-us", required_argument, NULL, OPTION_WORK},
    {"window", required_argument, NULL, OPTION_WINDOW},
    {"json", no_argument, NULL, 'j'},
    {"version", no_argument, NULL, 'V'},
    {"help", no_argument, NULL, 'h'},
    {NULL, 0, NULL, 0},
};

static int misuse(const char *what)
{
    fprintf(stderr, "usm-replay: %s\nTry usm-replay --help.\n", what);
    return REPLAY_MISUSED;
}

/* -1: go on; else the exit status. */
static int take_size(uint64_t *size, const char *what)
{
    return usm__span_size(usm__span_of(optarg), size) && *size > 0 ? -1 : misuse(what);
}

static int take_number(uint64_t least, uint64_t most, unsigned *number, const char *what)
{
    uint64_t n = 0;

    if (!usm__span_number(usm__span_of(optarg), &n) || n < least || n > most)
        return misuse(what);
    *number = (unsigned)n;
    return -1;
}

static int take_kind(replay_options *o)
{
    static const char *const names[] = {
        [USM_HOST] = "host", [USM_DEVICE] = "device", [USM_SHARED] = "shared"};

    for (int k = USM_HOST; k <= USM_SHARED; k++)
        if (strcmp(optarg, names[k]) == 0) {
            o->kind = (usm_kind)k;
            return -1;
        }
    return misuse("--kind is host, device or shared");
}

static int take_pool(command_line *c)
{
    if (c->npools == POOLS_MAX)
        return misuse("at most 32 pools");
    c->pools[c->npools++] = optarg;
    return -1;
}

static int take_us(double *ns, const char *what)
{
    uint64_t n = 0;

    if (!usm__span_number(usm__span_of(optarg), &n) || n > 1000000)
        return misuse(what);
    *ns = (double)n * 1e3;
    return -1;
}

static int take_spill(command_line *c)
{
    if (strcmp(optarg, "list") == 0) {
        spill_workload_list();
        return REPLAY_FINE;
    }
    c->spill = optarg;
    return -1;
}

static int take_spill_option(command_line *c, int option)
{
    switch (option) {
    case 's':
        return take_spill(c);
    case 'f':
        return take_number(1, 1u << 24, &c->s.frames, "--frames wants a number above 0");
    case OPTION_BLOCKS:
        return take_number(1, 1u << 28, &c->s.blocks, "--blocks wants a number above 0");
    case OPTION_BLOCK_SIZE:
        return take_size(&c->s.block_size, "--block-size wants a size, such as 1M");
    case OPTION_ROUNDS:
        return take_number(1, 10000, &c->s.rounds, "--rounds wants a number from 1 to 10000");
    case OPTION_SEED:
        return usm__span_number(usm__span_of(optarg), &c->s.seed) && c->s.seed > 0
                   ? -1
                   : misuse("--seed wants a number above 0");
    case OPTION_BANDWIDTH:
        return take_size(&c->s.bandwidth, "--bandwidth wants bytes a second, such as 2000M");
    case OPTION_LATENCY:
        return take_us(&c->s.latency_ns, "--latency-us wants microseconds");
    case OPTION_DEPTH:
        return take_number(1, 1024, &c->s.depth, "--depth wants a number from 1 to 1024");
    case OPTION_WORK:
        return take_us(&c->s.work_ns, "--work-us wants microseconds");
    case OPTION_WINDOW:
        return take_number(1, 4096, &c->s.window, "--window wants a number from 1 to 4096");
    default:
        return misuse("see above"); /* getopt has printed the error */
    }
}

static int take_option(command_line *c, int option)
{
    switch (option) {
    case 'p':
        return take_pool(c);
    case 'm':
        return take_size(&c->o.device_mem, "--device-mem wants a size, such as 8G");
    case 'k':
        return take_kind(&c->o);
    case 'a':
        return take_size(&c->o.area_size, "--area-size wants a size, such as 32M");
    case 'd':
        c->o.device = optarg;
        return -1;
    case OPTION_NO_MAP:
        c->o.no_map = true;
        return -1;
    case OPTION_ONLY_POOL:
        return take_number(1, UINT32_MAX, &c->o.only_pool,
                           "--only-pool wants the number of a pool");
    case 't':
        c->o.threads = true;
        return -1;
    case 'r':
        return take_number(1, 1000, &c->o.repeat, "--repeat wants a number from 1 to 1000");
    case 'j':
        c->o.as_json = c->s.as_json = true;
        return -1;
    case 'V':
        puts("usm-replay " USM_VERSION_STRING);
        return REPLAY_FINE;
    case 'h':
        fputs(help, stdout);
        return REPLAY_FINE;
    default:
        return take_spill_option(c, option);
    }
}

static int parse(command_line *c, int argc, char **argv)
{
    int option, rc = -1;

    *c = (command_line){.o = {.kind = USM_DEVICE, .device = "null:0", .repeat = 5},
                        .s = SPILL_OPTIONS_INIT};
    while (rc < 0 &&
           (option = getopt_long(argc, argv, "p:m:k:a:d:tr:s:f:jVh", long_options, NULL)) != -1)
        rc = take_option(c, option);
    if (rc >= 0)
        return rc;
    if (c->spill)
        return argc == optind ? -1 : misuse("--spill wants no log beside its workload");
    if (argc - optind != 1)
        return misuse(argc == optind ? "which log?" : "one log at a time");
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
