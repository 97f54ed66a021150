/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* What the device gives without a library: fio, direct I/O over io_uring, as `usm-bench spill`
 * compares with.  Its bandwidth is without its start and without laying out the file.  Called by
 * spill.c. */
#include "spill.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define OUTPUT_MAX ((size_t)1 << 20)

static const struct {
    const char *name, *rw, *block, *depth;
    bool        is_small;
} jobs[SPILL_RAWS] = {
    [SPILL_RAW_WRITE]        = {"fio write, new file", "write", "1M", "8", false},
    [SPILL_RAW_READ]         = {"fio read", "read", "1M", "8", false},
    [SPILL_RAW_RANDOM]       = {"fio random read", "randread", "1M", "8", false},
    [SPILL_RAW_OVERWRITE]    = {"fio overwrite", "write", "1M", "8", false},
    [SPILL_RAW_MIXED]        = {"fio mixed / 2", "randrw", "1M", "16", false},
    [SPILL_RAW_SINGLE]       = {"fio random read, 2 MiB, QD1", "randread", "2M", "1", false},
    [SPILL_RAW_SMALL_RANDOM] = {"fio random read, 8 KiB, QD1", "randread", "8k", "1", true},
    [SPILL_RAW_SMALL_MIXED]  = {"fio mixed / 2, 8 KiB, QD1", "randrw", "8k", "1", true},
};

const char *spill_raw_name(spill_raw raw)
{
    return jobs[raw].name;
}

static _Noreturn void become(spill_raw raw, const char *path, uint64_t size, int to)
{
    char        file[600], bytes[64], block[32], depth[32], rw[32], io[64];
    const char *most = jobs[raw].is_small ? "--runtime=3" : "--runtime=30";

    snprintf(file, sizeof file, "--filename=%s", path);
    snprintf(bytes, sizeof bytes, "--size=%" PRIu64, size);
    snprintf(block, sizeof block, "--bs=%s", jobs[raw].block);
    snprintf(depth, sizeof depth, "--iodepth=%s", jobs[raw].depth);
    snprintf(rw, sizeof rw, "--rw=%s", jobs[raw].rw);
    /* Small ones are slow: a part of the file says as much. */
    snprintf(io, sizeof io, "--io_size=%" PRIu64,
             jobs[raw].is_small ? size / 16 < 8 << 20 ? 8 << 20 : size / 16 : size);
    if (dup2(to, 1) < 0 || !freopen("/dev/null", "w", stderr))
        _exit(127);
    execlp("fio", "fio", "--name=raw", "--ioengine=io_uring", "--direct=1", "--norandommap",
           "--output-format=json", "--group_reporting", file, bytes, block, depth, rw, io, most,
           (char *)NULL);
    _exit(127);
}

/* All that fio prints; NULL: it could not be run.  The caller frees it. */
static char *output_of(spill_raw raw, const char *path, uint64_t size)
{
    char   *text = malloc(OUTPUT_MAX);
    size_t  n    = 0;
    ssize_t got  = 1;
    int     pipes[2], status = -1;
    pid_t   pid;

    if (!text || pipe2(pipes, O_CLOEXEC) != 0) {
        free(text);
        return NULL;
    }
    pid = fork();
    if (pid == 0)
        become(raw, path, size, pipes[1]);
    close(pipes[1]);
    while (pid > 0 && n + 1 < OUTPUT_MAX && got > 0) {
        got = read(pipes[0], text + n, OUTPUT_MAX - 1 - n);
        n += got > 0 ? (size_t)got : 0;
    }
    close(pipes[0]);
    text[n] = '\0';
    if (pid > 0 && waitpid(pid, &status, 0) == pid && status == 0)
        return text;
    free(text);
    return NULL;
}

/* "bw_bytes" of the object "read" or "write" of the first job. */
static double bandwidth(const char *json, const char *direction)
{
    const char *job = strstr(json, "\"jobs\""), *object = job ? strstr(job, direction) : NULL;
    const char *field = object ? strstr(object, "\"bw_bytes\"") : NULL;
    const char *colon = field ? strchr(field, ':') : NULL;

    return colon ? strtod(colon + 1, NULL) : 0;
}

double spill_fio(spill_raw raw, const char *path, uint64_t size, const char **why)
{
    char  *json = output_of(raw, path, size);
    double reads, writes;

    if (!json) {
        *why = "fio is not installed, or has no io_uring here";
        return 0;
    }
    reads  = bandwidth(json, "\"read\" :");
    writes = bandwidth(json, "\"write\" :");
    free(json);
    if (reads + writes <= 0)
        *why = "fio's output says no bandwidth";
    return (reads > 0 && writes > 0 ? (reads + writes) / 2 : reads + writes) / MIB;
}
