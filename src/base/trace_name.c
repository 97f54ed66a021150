/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The name of the trace file, and who writes it: host, rank, process, command line.
 * Called by trace_writer.c when a file is opened. */
#include "base/os.h"
#include "base/text.h"
#include "base/trace.h"
#include "base/trace_ring.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Of Open MPI, of Hydra (MPICH, Intel MPI), of PMIx, of Slurm, of PALS. */
static const char *const rank_variables[] = {"OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK",
                                             "SLURM_PROCID", "PALS_RANKID"};

static int32_t find_rank(void)
{
    uint64_t n;

    for (size_t i = 0; i < sizeof(rank_variables) / sizeof(rank_variables[0]); i++) {
        /* NOLINTNEXTLINE(concurrency-mt-unsafe): read once, at the start */
        const char *text = getenv(rank_variables[i]);

        if (text != NULL && usm__span_number(usm__span_of(text), &n) && n <= INT32_MAX)
            return (int32_t)n;
    }
    return -1;
}

static void find_host(char *host, size_t size)
{
    if (gethostname(host, size) != 0 || host[0] == '\0')
        (void)snprintf(host, size, "unknown");
    host[size - 1] = '\0';
    for (char *c = host; *c != '\0'; c++)
        if (*c == '/')
            *c = '_'; /* it becomes part of a file's name */
}

bool usm__trace_check_name(const char *value, char *why, size_t why_size)
{
    (void)snprintf(why, why_size,
                   "a file, in whose name %%h stands for the host, %%r for the rank, %%p for the "
                   "process, %%%% for %%");
    if (strlen(value) >= sizeof(usm__trace_config_now.name) / 2)
        return false;
    for (const char *c = strchr(value, '%'); c != NULL; c = strchr(c + 2, '%'))
        if (c[1] == '\0' || strchr("hrp%", c[1]) == NULL)
            return false;
    return true;
}

static void expand_one(char what, char *out, size_t size)
{
    int32_t rank = find_rank();

    out[0] = '\0';
    if (what == 'h')
        find_host(out, size);
    else if (what == 'r')
        (void)snprintf(out, size, "%d", rank < 0 ? 0 : (int)rank);
    else if (what == 'p')
        (void)snprintf(out, size, "%d", (int)getpid());
    else
        (void)snprintf(out, size, "%c", what);
}

bool usm__trace_expand(const char *name, char *out, size_t size)
{
    size_t n = 0;
    char   part[65];

    for (const char *c = name; *c != '\0'; c++) {
        if (c[0] == '%' && c[1] != '\0')
            expand_one(*++c, part, sizeof(part) - 1);
        else
            (void)snprintf(part, sizeof(part), "%c", *c);
        if (n + strlen(part) >= size)
            return false;
        memcpy(out + n, part, strlen(part) + 1);
        n += strlen(part);
    }
    return n > 0;
}

void usm__trace_describe(usm__trace_header *h)
{
    size_t size    = 0;
    char  *command = usm__os_read_file("/proc/self/cmdline", &size);

    memset(h, 0, sizeof(*h));
    memcpy(h->magic, USM__TRACE_MAGIC, sizeof(h->magic));
    h->version     = USM__TRACE_VERSION;
    h->header_size = sizeof(*h);
    h->byte_order  = USM__TRACE_BYTE_ORDER;
    h->pid         = (uint32_t)getpid();
    h->rank        = find_rank();
    h->stack_bytes = usm__trace_config_now.stack_bytes;
    find_host(h->host, sizeof(h->host));
    if (command == NULL)
        return;
    if (size >= sizeof(h->command))
        size = sizeof(h->command) - 1;
    memcpy(h->command, command, size);
    usm__heap_free(command);
    for (size_t i = 0; i + 1 < size; i++) /* arguments end with 0 bytes */
        if (h->command[i] == '\0')
            h->command[i] = ' ';
}
