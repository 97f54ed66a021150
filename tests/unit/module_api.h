/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* A libusm for tests of one module: the table that a module's entry is given, over src/base (so its
 * fault points work), counting what the module holds.
 *
 * Each case begins with module_start() and ends with module_clean(), which checks that nothing is
 * left: heap blocks, mapped bytes, descriptors, threads. */
#ifndef MODULE_API_H
#define MODULE_API_H

#include "base/fault.h"
#include "base/os.h"
#include "base/status.h"

#include <plain.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <time.h>

static struct {
    atomic_long heap_blocks, mapped, secret, descriptors, threads; /* mapped, secret: bytes */
    atomic_long allocations, punches; /* calls of fallocate() that went well */
    bool        guard;                /* the setting host_guard_device */
    const char *lists;                /* the setting level_zero_lists; stays from case to case */
    const char *password, *password_file; /* the settings valkey_password, valkey_password_file */
    char        log[256];                 /* the last line                 */
} module;

static usm_status module_report(usm_status status, const char *format, ...) USM_PRINTF(2, 3);
static void       module_log(usm_log_level level, const char *format, ...) USM_PRINTF(2, 3);

static usm_status module_report(usm_status status, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    usm__note_v(status, format, args);
    va_end(args);
    return status;
}

static void module_log(usm_log_level level, const char *format, ...)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* two stores may log at a time */
    va_list                args;

    (void)level;
    va_start(args, format);
    (void)pthread_mutex_lock(&lock);
    (void)vsnprintf(module.log, sizeof(module.log), format, args);
    (void)pthread_mutex_unlock(&lock);
    va_end(args);
}

static bool module_log_enabled(usm_log_level level)
{
    return level <= USM_LOG_WARN;
}

static const char *module_setting(const char *key)
{
    if (strcmp(key, "level_zero_vmem") == 0)
        return "on"; /* Debian's driver is older than what is known good */
    if (strcmp(key, "valkey_password_file") == 0)
        return module.password_file;
    return strcmp(key, "level_zero_lists") == 0 ? module.lists : NULL;
}

static bool module_setting_bool(const char *key)
{
    return strcmp(key, "host_guard_device") == 0 && module.guard;
}

/* Those that are asked for have this one's meaning of "as usual". */
static uint64_t module_setting_size(const char *key)
{
    (void)key;
    return 0;
}

static void *module_heap_alloc(size_t size)
{
    void *p = usm__heap_alloc(size);

    if (p)
        atomic_fetch_add(&module.heap_blocks, 1);
    return p;
}

static void module_heap_free(void *p)
{
    if (p)
        atomic_fetch_sub(&module.heap_blocks, 1);
    usm__heap_free(p);
}

static void *module_map(size_t size, int prot)
{
    void *p = usm__os_api.map(size, prot);

    if (p)
        atomic_fetch_add(&module.mapped, (long)size);
    return p;
}

static void *module_map_at(void *at, size_t size, int prot)
{
    return usm__os_api.map_at(at, size, prot); /* replaces pages that count already */
}

static void *module_map_fd(void *at, size_t size, int prot, int fd)
{
    void *p = usm__os_api.map_fd(at, size, prot, fd);

    if (p && !at) /* else it replaces pages that count already */
        atomic_fetch_add(&module.mapped, (long)size);
    return p;
}

static int module_unmap(void *p, size_t size)
{
    int error = usm__os_api.unmap(p, size);

    if (!error)
        atomic_fetch_sub(&module.mapped, (long)size);
    return error;
}

static void *module_secret_map(size_t size)
{
    void *p = usm__os_api.secret_map(size);

    if (p)
        atomic_fetch_add(&module.secret, (long)size);
    return p;
}

static void module_secret_unmap(void *p, size_t size)
{
    usm__os_api.secret_unmap(p, size);
    if (p)
        atomic_fetch_sub(&module.secret, (long)size);
}

static int module_protect(void *p, size_t size, int prot)
{
    return usm__os_api.protect(p, size, prot);
}

static int module_memfd(const char *name, size_t size)
{
    int fd = usm__os_api.memfd(name, size);

    if (fd >= 0)
        atomic_fetch_add(&module.descriptors, 1);
    return fd;
}

static int module_close(int fd)
{
    atomic_fetch_sub(&module.descriptors, 1);
    return usm__os_api.close(fd);
}

struct module_thread {
    void (*fn)(void *);
    void *arg;
};

static void module_thread_main(void *p)
{
    struct module_thread t = *(struct module_thread *)p;

    free(p);
    t.fn(t.arg);
    atomic_fetch_sub(&module.threads, 1);
}

static int module_thread_start(void (*fn)(void *), void *arg, const char *name)
{
    struct module_thread *t = malloc(sizeof(*t));
    int                   error;

    CHECK(t != NULL);
    *t = (struct module_thread){fn, arg};
    atomic_fetch_add(&module.threads, 1);
    error = usm__os_api.thread(module_thread_main, t, name);
    if (error) {
        atomic_fetch_sub(&module.threads, 1);
        free(t);
    }
    return error;
}

static int module_open(const char *path, int flags, unsigned mode)
{
    int fd = usm__os_api.open(path, flags, mode);

    if (fd >= 0)
        atomic_fetch_add(&module.descriptors, 1);
    return fd;
}

static int module_event_fd(void)
{
    int fd = usm__os_api.event_fd();

    if (fd >= 0)
        atomic_fetch_add(&module.descriptors, 1);
    return fd;
}

static int module_unlink(const char *path)
{
    return usm__os_api.unlink(path);
}

static int module_inspect(int fd, usm_os_file *file)
{
    return usm__os_api.inspect(fd, file);
}

static int64_t module_pread(int fd, void *data, size_t size, uint64_t at)
{
    return usm__os_api.pread(fd, data, size, at);
}

static int64_t module_pwrite(int fd, const void *data, size_t size, uint64_t at)
{
    return usm__os_api.pwrite(fd, data, size, at);
}

static int module_fallocate(int fd, int mode, uint64_t at, uint64_t size)
{
    int rc = usm__os_api.fallocate(fd, mode, at, size);

    if (rc == 0)
        atomic_fetch_add(mode & FALLOC_FL_PUNCH_HOLE ? &module.punches : &module.allocations, 1);
    return rc;
}

static int module_truncate(int fd, uint64_t size)
{
    return usm__os_api.truncate(fd, size);
}

static int module_sync(int fd)
{
    return usm__os_api.sync(fd);
}

static int module_lock(int fd, bool is_exclusive, uint64_t at, uint64_t size)
{
    return usm__os_api.lock(fd, is_exclusive, at, size);
}

static void module_drop_cache(int fd, uint64_t at, uint64_t size)
{
    usm__os_api.drop_cache(fd, at, size);
}

static uint64_t module_limit(usm_os_limit which)
{
    return usm__os_api.limit(which);
}

static int module_poll(struct pollfd *list, unsigned n, uint64_t deadline)
{
    return usm__os_api.poll(list, n, deadline);
}

static int64_t module_secret_read(const char *path, void *data, size_t cap)
{
    return usm__os_api.secret_read(path, data, cap);
}

static size_t module_take_secret(const char *key, char *text, size_t cap)
{
    const size_t n =
        strcmp(key, "valkey_password") == 0 && module.password ? strlen(module.password) : 0;

    CHECK(n < cap);
    memcpy(text, n ? module.password : "", n + 1);
    return n;
}

static bool module_fault(const char *name, usm_status *status)
{
    return usm__fault_hit(name, status);
}

static unsigned module_cpu_count(void)
{
    return usm__os_api.cpu_count();
}

static const usm_os_api module_os = {
    .map     = module_map,
    .map_at  = module_map_at,
    .map_fd  = module_map_fd,
    .unmap   = module_unmap,
    .protect = module_protect,
    .memfd   = module_memfd,
    .close   = module_close,
    .thread  = module_thread_start,

    .secret_map   = module_secret_map,
    .secret_unmap = module_secret_unmap,
    .secret_read  = module_secret_read,

    .open       = module_open,
    .unlink     = module_unlink,
    .inspect    = module_inspect,
    .pread      = module_pread,
    .pwrite     = module_pwrite,
    .fallocate  = module_fallocate,
    .truncate   = module_truncate,
    .sync       = module_sync,
    .lock       = module_lock,
    .drop_cache = module_drop_cache,
    .event_fd   = module_event_fd,
    .poll       = module_poll,
    .limit      = module_limit,

    .cpu_count = module_cpu_count,
};

static const usm_host_api module_api = {
    .abi          = USM_MODULE_ABI,
    .struct_size  = sizeof(usm_host_api),
    .report       = module_report,
    .log          = module_log,
    .log_enabled  = module_log_enabled,
    .setting      = module_setting,
    .setting_bool = module_setting_bool,
    .setting_size = module_setting_size,
    .heap_alloc   = module_heap_alloc,
    .heap_free    = module_heap_free,
    .os           = &module_os,
    .fault        = module_fault,
    .take_secret  = module_take_secret,
};

static inline void module_sleep_ms(long ms)
{
    struct timespec t = {ms / 1000, ms % 1000 * 1000000};

    (void)nanosleep(&t, NULL);
}

static inline void module_start(void)
{
    usm__fault_disarm_all();
    module.heap_blocks = module.mapped = module.descriptors = module.threads = 0;
    module.allocations = module.punches = 0;
    module.guard                        = false;
    module.password = module.password_file = NULL;
    module.log[0]                          = 0;
}

/* Threads and what they hold go a moment after what lets them go; ten seconds is for ever. */
static inline void module_clean(void)
{
    for (int i = 0; i < 10000; i++) {
        if (!module.heap_blocks && !module.mapped && !module.descriptors && !module.threads)
            return;
        module_sleep_ms(1);
    }
    CHECK_INT(module.heap_blocks, 0);
    CHECK_INT(module.mapped, 0);
    CHECK_INT(module.descriptors, 0);
    CHECK_INT(module.threads, 0);
}

#endif
