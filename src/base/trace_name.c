/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The name of the trace file, and its header: host, rank, process, command line.  Called by
 * trace_writer.c when a file is opened. */
#include "base/job.h"
#include "base/os.h"
#include "base/text.h"
#include "base/trace.h"
#include "base/trace_ring.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* The rank when the file is opened; -1 without a job. */
static int32_t find_rank(void)
{
    usm__launcher_place p = usm__launcher_place_get();

    if (strcmp(p.source, "mpi") != 0 && strcmp(p.source, "socket") != 0)
        p = usm__launcher_place_read();
    return p.is_job ? (int32_t)p.rank : -1;
}

bool usm__trace_check_name(const char *value, char *why, size_t why_size)
{
    (void)snprintf(why, why_size,
                   "a file, in whose name %%h stands for the host, %%r for the rank, %%p for the "
                   "process, %%%% for %%");
    if (strlen(value) >= sizeof(usm__traced.config.name) / 2)
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
        (void)snprintf(out, size, "%s", usm__launcher_host());
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
    char  *command = usm__os_read_file("/proc/self/cmdline", SIZE_MAX, &size);

    memset(h, 0, sizeof(*h));
    memcpy(h->magic, USM__TRACE_MAGIC, sizeof(h->magic));
    h->version     = USM__TRACE_VERSION;
    h->header_size = sizeof(*h);
    h->byte_order  = USM__TRACE_BYTE_ORDER;
    h->pid         = (uint32_t)getpid();
    h->rank        = find_rank();
    h->stack_bytes = usm__traced.config.stack_bytes;
    (void)snprintf(h->host, sizeof(h->host), "%s", usm__launcher_host());
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
