/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* A lock of MPICH that the module's thread is left with.
 *
 * MPI_Finalize() of MPICH (4.0.2; its relatives share the code) begins by declaring the process
 * single-threaded, before the delete callbacks of MPI_COMM_SELF, by which the module learns of it.
 * A thread that is within MPI at that moment has taken the global lock, and does not release it
 * when it returns, because locks are skipped from then on.  The end of MPI_Finalize() destroys the
 * lock, finds it taken, and aborts the job ("pthread_mutex_destroy: Device or resource busy": one
 * run in five with a busy lender).  Nothing in MPI's interface helps, or says where the lock is: no
 * callback comes before that declaration (MPII_Finalize(), src/mpi/init), and from then on no call
 * releases a lock.  A session of MPI-4 that is held open delays that, but also all of
 * MPI_Finalize(), callbacks included: the program would run to its end meanwhile.
 *
 * So the thread, as its last action, looks for mutexes in MPI's own data that it owns, and unlocks
 * them: it is outside of MPI for good, and must not own any.  No other thread takes locks of MPI
 * then.  A program that calls usm_mpi_detach() before MPI_Finalize() never gets here. */
#include "internal.h"

#include <dlfcn.h>
#include <link.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifdef __GLIBC__

typedef struct search {
    const void *base; /* of MPI's library */
    int         tid;
    unsigned    found;
} search;

/* The thread owns the mutex, once: as glibc records it in a mutex of its ordinary kind. */
static bool is_mine(const pthread_mutex_t *m, int tid)
{
    return m->__data.__owner == tid && m->__data.__nusers == 1 && m->__data.__count == 0 &&
           (m->__data.__lock == 1 || m->__data.__lock == 2) && m->__data.__kind == 0;
}

/* Whether a mutex of this glibc has the layout that is_mine() assumes. */
static bool is_known(int tid)
{
    pthread_mutex_t m = PTHREAD_MUTEX_INITIALIZER;
    bool            is_known;

    if (is_mine(&m, tid) || pthread_mutex_lock(&m) != 0)
        return false;
    is_known = is_mine(&m, tid);
    (void)pthread_mutex_unlock(&m);
    return is_known && !is_mine(&m, tid) && pthread_mutex_destroy(&m) == 0;
}

static void search_segment(search *s, char *at, size_t size)
{
    for (; size >= sizeof(pthread_mutex_t); at += 8, size -= 8) {
        pthread_mutex_t *m = (pthread_mutex_t *)(void *)at;

        if (!is_mine(m, s->tid))
            continue;
        (void)pthread_mutex_unlock(m);
        s->found++;
    }
}

static int search_library(struct dl_phdr_info *info, size_t size, void *arg)
{
    search *s = arg;

    (void)size;
    if ((const void *)(uintptr_t)info->dlpi_addr != s->base)
        return 0;
    for (unsigned i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *h = &info->dlpi_phdr[i];

        if (h->p_type == PT_LOAD && (h->p_flags & PF_W))
            search_segment(s,
                           (char *)(uintptr_t)(info->dlpi_addr + usm_align_up_ptr(h->p_vaddr, 8)),
                           h->p_memsz - (usm_align_up_ptr(h->p_vaddr, 8) - h->p_vaddr));
    }
    return 1;
}

void mpi_release_orphans(const usm_host_api *api)
{
    char    version[MPI_MAX_LIBRARY_VERSION_STRING + 1] = "";
    int     n                                           = 0;
    Dl_info info;
    search  s = {.tid = (int)syscall(SYS_gettid)};

    (void)MPI_Get_library_version(version, &n);
    if (strstr(version, "Open MPI") || !is_known(s.tid) ||
        !dladdr((void *)(uintptr_t)&MPI_Isend, &info))
        return;
    s.base = info.dli_fbase;
    (void)dl_iterate_phdr(search_library, &s);
    if (s.found)
        api->log(USM_LOG_DEBUG, "%u locks of MPI were left to libusm's thread by MPI_Finalize()",
                 s.found);
}

#else

void mpi_release_orphans(const usm_host_api *api)
{
    (void)api;
}

#endif
