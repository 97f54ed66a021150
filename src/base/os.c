/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* System and heap calls with their fault points.  All of src calls the system through these
 * functions, and modules through usm__os_api; cgroup.c determines memory sizes. */
#include "base/os.h"

#include "base/fault.h"
#include "base/inline/clock.h"
#include "base/os_ipc.h"
#include "base/os_secret.h"
#include "base/os_storage.h"
#include "base/os_wait.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/membarrier.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

/* LeakSanitizer's function, if it is in the process: the program may have brought it. */
/* NOLINTNEXTLINE(bugprone-reserved-identifier): it is its name */
extern void __lsan_register_root_region(const void *p, size_t size) __attribute__((weak));

/* --- heap ----------------------------------------------------------------- */

void *usm__heap_alloc(size_t size)
{
    return usm__fault_errno("heap.alloc", ENOMEM) ? NULL : calloc(1, size ? size : 1);
}

void *usm__heap_realloc(void *p, size_t size)
{
    return usm__fault_errno("heap.alloc", ENOMEM) ? NULL : realloc(p, size ? size : 1);
}

bool usm__heap_room(void *list, size_t n, size_t *cap, size_t each)
{
    size_t more = *cap ? *cap * 2 : 16;
    void  *p;

    if (n < *cap)
        return true;
    memcpy(&p, list, sizeof(p)); /* for any type of pointer */
    p = usm__heap_realloc(p, more * each);
    if (p == NULL)
        return false;
    memcpy(list, &p, sizeof(p));
    *cap = more;
    return true;
}

void usm__heap_free(void *p)
{
    free(p);
}

char *usm__heap_strdup(const char *text)
{
    return usm__fault_errno("heap.alloc", ENOMEM) ? NULL : strdup(text);
}

/* --- pages ---------------------------------------------------------------- */

static void *map(void *at, size_t size, int prot, int flags, int fd)
{
    void *p;

    if (usm__fault_errno("os.mmap", ENOMEM))
        return NULL;
    p = mmap(at, size, prot, flags, fd, 0);
    return p == MAP_FAILED ? NULL : p;
}

void *usm__os_map(size_t size, int prot)
{
    return map(NULL, size, prot, MAP_PRIVATE | MAP_ANONYMOUS, -1);
}

void *usm__os_map_at(void *at, size_t size, int prot)
{
    return map(at, size, prot, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1);
}

void *usm__os_map_noreserve(size_t size)
{
    return map(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1);
}

void *usm__os_map_for_life(size_t size)
{
    void *p = usm__os_map(size, PROT_READ | PROT_WRITE);

    if (p != NULL && __lsan_register_root_region != NULL)
        __lsan_register_root_region(p, size); /* the checker does not scan mappings by itself */
    return p;
}

void usm__os_discard(void *p, size_t size)
{
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    uintptr_t from = ((uintptr_t)p + page - 1) & ~(page - 1);
    uintptr_t to   = ((uintptr_t)p + size) & ~(page - 1);

    if (from < to)
        (void)madvise((void *)from, to - from, MADV_DONTNEED);
}

void *usm__os_map_fd(void *at, size_t size, int prot, int fd)
{
    return map(at, size, prot, MAP_SHARED | (at != NULL ? MAP_FIXED : 0), fd);
}

void *usm__os_map_fd_part(void *at, size_t size, int fd, uint64_t offset)
{
    void *p;

    if (usm__fault_errno("os.mmap", ENOMEM))
        return NULL;
    p = mmap(at, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, (off_t)offset);
    return p == MAP_FAILED ? NULL : p;
}

/* Uses the system call directly: UCX, which MPICH loads into a process, replaces the C library's
 * mremap() by one that ignores `to`, and the pages were moved to arbitrary addresses. */
int usm__os_move(void *from, size_t size, void *to)
{
    const int flags = MREMAP_MAYMOVE | MREMAP_FIXED | MREMAP_DONTUNMAP;

    if (usm__fault_errno("os.mremap", ENOMEM))
        return ENOMEM;
    return syscall(SYS_mremap, from, size, size, flags, to) == -1 ? errno : 0;
}

int usm__os_unmap(void *p, size_t size)
{
    return usm__fault_errno("os.munmap", ENOMEM) ? -1 : munmap(p, size);
}

int usm__os_protect(void *p, size_t size, int prot)
{
    return usm__fault_errno("os.mprotect", ENOMEM) ? -1 : mprotect(p, size, prot);
}

int usm__os_memfd(const char *name, size_t size)
{
    int fd, error;

    if (usm__fault_errno("os.memfd", EMFILE))
        return -1;
    if (size > INT64_MAX) {
        errno = EFBIG;
        return -1;
    }
    fd = memfd_create(name, MFD_CLOEXEC);
    if (fd < 0)
        return -1;
    if (!usm__fault_errno("os.ftruncate", ENOSPC) && ftruncate(fd, (off_t)size) == 0)
        return fd;
    error = errno;
    (void)close(fd);
    errno = error;
    return -1;
}

int usm__os_close(int fd)
{
    return close(fd);
}

/* --- threads, time, processors -------------------------------------------- */

typedef struct start {
    void (*fn)(void *);
    void *arg;
    char  name[16];
} start;

static void *thread_main(void *p)
{
    start s = *(start *)p;

    usm__heap_free(p);
    (void)pthread_setname_np(pthread_self(), s.name);
    s.fn(s.arg);
    return NULL;
}

/* All signals except those that the thread itself causes: if these are blocked, the kernel kills
 * the process without calling any handler, including that of a debugging tool. */
static void signals_to_block(sigset_t *set)
{
    static const int own[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS, SIGABRT};

    (void)sigfillset(set);
    for (size_t i = 0; i < sizeof(own) / sizeof(own[0]); i++)
        (void)sigdelset(set, own[i]);
}

static int start_thread(start *s)
{
    pthread_attr_t attr;
    pthread_t      thread;
    sigset_t       block, before;
    int            error = pthread_attr_init(&attr);

    if (error != 0)
        return error;
    (void)pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
    signals_to_block(&block);
    (void)pthread_sigmask(SIG_SETMASK, &block, &before); /* the new thread inherits the mask */
    error = pthread_create(&thread, &attr, thread_main, s);
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    (void)pthread_attr_destroy(&attr);
    return error;
}

int usm__os_thread(void (*fn)(void *), void *arg, const char *name)
{
    start *s;
    int    error;

    if (usm__fault_hit("os.thread", NULL))
        return EAGAIN;
    s = usm__heap_alloc(sizeof(*s));
    if (s == NULL)
        return ENOMEM;
    s->fn  = fn;
    s->arg = arg;
    (void)snprintf(s->name, sizeof(s->name), "%s", name);
    error = start_thread(s);
    if (error != 0)
        usm__heap_free(s);
    return error;
}

bool usm__os_membarrier_start(void)
{
    return syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0) == 0;
}

int usm__os_cancel_off(void)
{
    int before = PTHREAD_CANCEL_ENABLE;

    (void)pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before);
    return before;
}

void usm__os_cancel_restore(int before)
{
    (void)pthread_setcancelstate(before, NULL);
}

void usm__os_membarrier(void)
{
    (void)syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0);
}

uint64_t usm__os_now_ns(void)
{
    return usm_clock_ns(CLOCK_MONOTONIC);
}

void usm__os_sleep_ns(uint64_t ns)
{
    struct timespec left = usm_timespec_of(ns);

    while (nanosleep(&left, &left) != 0 && errno == EINTR)
        ;
}

static unsigned cpus_allowed(void)
{
    /* The kernel rejects a set smaller than its own, so the set grows up to 65,536 processors. */
    for (size_t n = CPU_SETSIZE; n <= 65536; n *= 2) {
        cpu_set_t *set   = CPU_ALLOC(n);
        size_t     size  = CPU_ALLOC_SIZE(n);
        int        count = 0;

        if (set == NULL)
            break;
        if (sched_getaffinity(0, size, set) == 0)
            count = CPU_COUNT_S(size, set);
        CPU_FREE(set);
        if (count > 0)
            return (unsigned)count;
    }
    return 1;
}

unsigned usm__os_cpu_count(void)
{
    unsigned allowed = cpus_allowed();
    unsigned paid    = usm__os_cgroup_cpus("/proc/self/cgroup", "/sys/fs/cgroup");

    return paid > 0 && paid < allowed ? paid : allowed;
}

/* --- files ---------------------------------------------------------------- */

/* Reads to the end.  The file may change or be in /proc, so its size is only a hint. */
static char *read_all(int fd, size_t hint, size_t most, size_t *size)
{
    size_t room = hint + 1, used = 0;
    char  *data = usm__heap_alloc(room + 1);

    while (data != NULL) {
        ssize_t n = read(fd, data + used, room - used);
        char   *more;

        if (n == 0)
            break;
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            goto err_data;
        used += (size_t)n;
        if (used > most) {
            errno = EFBIG;
            goto err_data;
        }
        if (used < room)
            continue;
        room *= 2;
        more = usm__heap_realloc(data, room + 1);
        if (more == NULL)
            goto err_data;
        data = more;
    }
    if (data != NULL) {
        data[used] = '\0';
        *size      = used;
    }
    return data;

err_data:
    usm__heap_free(data);
    return NULL;
}

/* Returns 0 or an errno value. */
static int check_readable(const struct stat *st, size_t most)
{
    if (S_ISDIR(st->st_mode))
        return EISDIR;
    if (!S_ISREG(st->st_mode))
        return EINVAL;
    return st->st_size > 0 && (uint64_t)st->st_size > most ? EFBIG : 0;
}

void *usm__os_read_file(const char *path, size_t most, size_t *size)
{
    struct stat st;
    char       *data = NULL;
    int         fd, error;

    if (usm__fault_errno("os.read_file", EIO))
        return NULL;
    fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK); /* for a pipe without a writer */
    if (fd < 0)
        return NULL;
    error = fstat(fd, &st) == 0 ? check_readable(&st, most) : errno;
    errno = error;
    if (error == 0)
        data = read_all(fd, st.st_size > 0 ? (size_t)st.st_size : 4095, most, size);
    error = errno;
    (void)close(fd);
    errno = error;
    return data;
}

int usm__os_make_folders(const char *path)
{
    char   folder[PATH_MAX];
    size_t n = strlen(path);

    if (n >= sizeof(folder)) {
        errno = ENAMETOOLONG;
        return -1;
    }
    memcpy(folder, path, n + 1);
    for (char *slash = strchr(folder + 1, '/'); slash != NULL; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        if (mkdir(folder, 0700) != 0 && errno != EEXIST)
            return -1;
        *slash = '/';
    }
    return 0;
}

static int write_all(int fd, const char *data, size_t size)
{
    while (size > 0) {
        ssize_t n = write(fd, data, size);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return -1;
        data += n;
        size -= (size_t)n;
    }
    return 0;
}

int usm__os_write(int fd, const void *data, size_t size)
{
    return usm__fault_errno("os.write", ENOSPC) ? -1 : write_all(fd, data, size);
}

int usm__os_open_alone(const char *path)
{
    struct stat st;
    int         fd, error;

    if (usm__fault_errno("os.open", EMFILE))
        return -1;
    fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOCTTY | O_NONBLOCK, 0644);
    if (fd < 0)
        return -1;
    if (fstat(fd, &st) != 0)
        goto err_fd;
    errno = EINVAL;
    if (!S_ISREG(st.st_mode))
        goto err_fd;
    if (flock(fd, LOCK_EX | LOCK_NB) == 0)
        return fd;
    if (errno != EWOULDBLOCK) /* the file system has no locks */
        return fd;

err_fd:
    error = errno;
    (void)close(fd);
    errno = error;
    return -1;
}

int usm__os_write_file(const char *path, const void *data, size_t size)
{
    char aside[PATH_MAX];
    int  fd, error;

    if (usm__fault_errno("os.write_file", EROFS))
        return -1;
    if ((size_t)snprintf(aside, sizeof(aside), "%s.XXXXXX", path) >= sizeof(aside)) {
        errno = ENAMETOOLONG;
        return -1;
    }
    fd = mkostemp(aside, O_CLOEXEC);
    if (fd < 0 && errno == ENOENT && usm__os_make_folders(path) == 0) {
        (void)snprintf(aside, sizeof(aside), "%s.XXXXXX", path);
        fd = mkostemp(aside, O_CLOEXEC);
    }
    if (fd < 0)
        return -1;
    if (usm__os_write(fd, data, size) != 0)
        goto err_fd;
    if (close(fd) != 0)
        goto err_aside;
    if (usm__fault_errno("os.rename", EACCES) || rename(aside, path) != 0)
        goto err_aside;
    return 0;

err_fd:
    error = errno;
    (void)close(fd);
    errno = error;
err_aside:
    error = errno;
    (void)unlink(aside);
    errno = error;
    return -1;
}

/* --- modules -------------------------------------------------------------- */

void *usm__os_dlopen(const char *path, char *why, size_t why_size)
{
    void       *module;
    const char *text;

    if (usm__fault_hit("os.dlopen", NULL)) {
        (void)snprintf(why, why_size, "%s: a fault was asked for", path);
        return NULL;
    }
    module = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (module == NULL) {
        text = dlerror(); /* NOLINT(concurrency-mt-unsafe): glibc has one for each thread */
        (void)snprintf(why, why_size, "%s", text != NULL ? text : "no reason was given");
    }
    return module;
}

void *usm__os_dlsym(void *module, const char *name)
{
    return dlsym(module, name);
}

void usm__os_dlclose(void *module)
{
    (void)dlclose(module);
}

const usm_os_api usm__os_api = {
    .map     = usm__os_map,
    .map_at  = usm__os_map_at,
    .map_fd  = usm__os_map_fd,
    .unmap   = usm__os_unmap,
    .protect = usm__os_protect,
    .memfd   = usm__os_memfd,

    .memfd_sealable = usm__os_memfd_sealable,

    .close  = usm__os_close,
    .seal   = usm__os_seal,
    .thread = usm__os_thread,

    .open       = usm__os_file_open,
    .unlink     = usm__os_file_unlink,
    .inspect    = usm__os_file_inspect,
    .pread      = usm__os_file_pread,
    .pwrite     = usm__os_file_pwrite,
    .fallocate  = usm__os_file_fallocate,
    .truncate   = usm__os_file_truncate,
    .sync       = usm__os_file_sync,
    .lock       = usm__os_file_lock,
    .drop_cache = usm__os_file_drop_cache,
    .event_fd   = usm__os_event_fd,
    .limit      = usm__os_limit,

    .secret_map   = usm__os_secret_map,
    .secret_unmap = usm__os_secret_unmap,
    .secret_hide  = usm__os_secret_hide,
    .secret_wipe  = usm__os_secret_wipe,
    .secret_peek  = usm__os_secret_peek,
    .secret_read  = usm__os_secret_read,

    .cpu_count = usm__os_cpu_count,

    .socket_listen  = usm__os_listen,
    .socket_connect = usm__os_connect,
    .socket_accept  = usm__os_accept,
    .socket_pair    = usm__os_socket_pair,
    .socket_peer    = usm__os_peer,
    .socket_send    = usm__os_send,
    .socket_receive = usm__os_receive,
    .poll           = usm__os_poll,
};
