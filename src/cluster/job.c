/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Which rank this process is: usm_job_get_info().  base/job.c reads what the launcher says.  This
 * file asks the job, when the process attaches, and finds out which ranks share this node: each
 * rank sends the others a hash of the node's name and of the kernel's boot id.  So containers count
 * as nodes of their own, and two machines of the same name as two. */
#include "base/job.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/os.h"
#include "cluster/internal.h"
#include "device/init.h"

#include <stdio.h>
#include <string.h>

static usm__hash name_of_node(void)
{
    usm__hash   h    = USM__HASH_INIT;
    size_t      size = 0;
    const char *host = usm__launcher_host();
    char       *boot = usm__os_read_file("/proc/sys/kernel/random/boot_id", 4096, &size);

    usm__hash_add(&h, host, strlen(host) + 1);
    if (boot)
        usm__hash_add(&h, boot, size);
    usm__heap_free(boot);
    return h;
}

/* Counts the ranks whose node has the same name as this one. */
static void count_local(usm__launcher_place *p, const usm__hash *all)
{
    p->local_rank = p->local_size = 0;
    for (uint32_t rank = 0; rank < p->size; rank++) {
        if (memcmp(&all[rank], &all[p->rank], sizeof all[rank]) != 0)
            continue;
        if (rank < p->rank)
            p->local_rank++;
        p->local_size++;
    }
    p->is_local_known = true;
}

void usm__job_learn(const char *source, uint32_t timeout_ms)
{
    usm__launcher_place p    = usm__launcher_place_get();
    usm__hash           node = name_of_node();
    usm__hash          *all;

    if (usm__job_ranks(&p.rank, &p.size) != USM_OK)
        return;
    p.is_job = true;
    p.source = source;
    all      = usm__heap_alloc(p.size * sizeof *all);
    if (all && usm__job_agree(&node, sizeof node, all, timeout_ms, NULL) == USM_OK)
        count_local(&p, all);
    else /* what the launcher says stays, if it says something */
        usm__info("which ranks share this node is not known: %s",
                  all ? usm_last_error() : "no host memory");
    usm__heap_free(all);
    if (p.local_rank >= p.size || p.local_size > p.size) { /* the launcher's numbers are another
                                                              job's */
        p.local_rank     = 0;
        p.local_size     = 1;
        p.is_local_known = false;
    }
    usm__launcher_place_set(&p);
}

/* The first line of the module's description: the library and its version. */
static void ask_mpi(char *text, size_t size)
{
    const usm_transport_ops *ops;
    void                    *job;
    char                     all[2048];

    text[0] = 0;
    if (usm__job_enter(&ops, &job) != USM_OK)
        return;
    all[0] = 0;
    ops->job_describe(job, all, sizeof all);
    usm__job_leave();
    (void)snprintf(text, size, "%.*s", (int)strcspn(all, "\n"), all);
}

usm_status usm_job_get_info(usm_job_info *info)
{
    usm__launcher_place p;
    usm_job_info        i = {.struct_size = sizeof i};
    usm_status          st =
        usm__struct_check("usm_job_get_info", "info", info, sizeof *info, "USM_JOB_INFO_INIT");

    if (st != USM_OK)
        return st;
    (void)usm__start();
    p             = usm__launcher_place_get();
    i.rank        = p.rank;
    i.size        = p.size;
    i.local_rank  = p.local_rank;
    i.local_size  = p.local_size;
    i.is_job      = p.is_job;
    i.is_attached = usm__job_is_attached();
    (void)snprintf(i.source, sizeof i.source, "%s", p.source);
    (void)snprintf(i.host, sizeof i.host, "%s", usm__launcher_host());
    if (i.is_attached)
        usm__quietly(ask_mpi(i.mpi, sizeof i.mpi));
    i.struct_size = info->struct_size;
    *info         = i;
    return USM_OK;
}
