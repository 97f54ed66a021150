/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Level Zero when things go wrong, through the public interface over the software driver: no
 * loader, no driver, a driver that does not start, addresses that are wrong, a device that is lost
 * while it works, memory that runs out, a module that does not build; and, through the backend's
 * table, memory of a process that is gone.
 *
 * Each case is a child with an environment of its own: drivers read their knobs (ze_soft.h) once.
 * That the loader is not there is a dlopen() of this program, which stands before libc's. */
#include "module_api.h"
#include "ze_soft/ze_soft.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/mman.h>
#include <usm/backend.h>
#include <usm/usm.h>

#define OK(call)         check_status((call), USM_OK, #call, __LINE__)
#define IS(call, status) check_status((call), (status), #call, __LINE__)
#define N                (4 << 20)

static void check_status(usm_status got, usm_status want, const char *what, int line)
{
    if (got == want)
        return;
    printf("# %s is %s, not %s: %s\n", what, usm_status_name(got), usm_status_name(want),
           usm_last_error());
    plain_fail(__FILE__, line, what);
}

/* --- the loader --------------------------------------------------------------------------- */

static bool hides_loader;

__attribute__((visibility("default"))) void *dlopen(const char *file, int mode);

/* Modules and their loaders are opened through this one. */
void *dlopen(const char *file, int mode)
{
    static void *(*real)(const char *, int);

    if (!real) {
        void *address = dlsym(RTLD_NEXT, "dlopen");

        memcpy(&real, &address, sizeof address);
    }
    if (hides_loader && file && strstr(file, "libze_loader"))
        file = "libze_loader.so.that.is.not.there";
    return real(file, mode);
}

/* --- children ------------------------------------------------------------------------------ */

/* `fn` in a process where no driver was called; what it logs is returned. */
static const char *in_child(void (*fn)(void))
{
    static char text[16384];
    char        path[512];

    (void)snprintf(path, sizeof path, "%s", plain_path("errors"));
    CHECK_INT(plain_child(fn, path), 0);
    return plain_read(path, text, sizeof text);
}

static void set(const char *name, const char *value)
{
    CHECK_INT(setenv(name, value, 1), 0);
}

/* A function of the driver's for tests. */
static void find_soft(const char *name, void *function)
{
    const char *path    = getenv("ZE_ENABLE_ALT_DRIVERS");
    void       *library = path ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;
    void       *address = library ? dlsym(library, name) : NULL;

    CHECK(address != NULL);
    memcpy(function, &address, sizeof address);
}

static uint64_t live_objects(void)
{
    ze_soft_live_fn *live;

    find_soft("ze_soft_live", &live);
    return live();
}

/* Objects of the driver may go a moment later, on its own threads. */
static void check_live(uint64_t before)
{
    for (int i = 0; i < 5000 && live_objects() > before; i++)
        module_sleep_ms(1);
    CHECK_INT(live_objects(), before);
}

typedef struct rig {
    usm_device  *dev;
    usm_context *ctx;
    usm_queue   *q;
} rig;

static rig open_rig(const char *selector)
{
    usm_context_desc desc = USM_CONTEXT_DESC_INIT;
    rig              r    = {NULL, NULL, NULL};
    size_t           n    = 0;

    OK(usm_select_devices(selector, &r.dev, 1, &n));
    desc.ndevices = 1;
    desc.devices  = &r.dev;
    OK(usm_context_create(&desc, &r.ctx));
    OK(usm_queue_create(r.ctx, r.dev, NULL, &r.q));
    return r;
}

static void close_rig(rig *r)
{
    usm_queue_destroy(r->q);
    usm_context_destroy(r->ctx);
}

/* There and back. */
static void check_data(usm_queue *q, void *p, size_t n, unsigned char seed)
{
    unsigned char *out = malloc(n), *back = calloc(1, n);

    CHECK(out && back);
    for (size_t i = 0; i < n; i++)
        out[i] = (unsigned char)(i * 7 + seed);
    OK(usm_memcpy(q, p, out, n, 0, NULL, NULL));
    OK(usm_memcpy(q, back, p, n, 0, NULL, NULL));
    OK(usm_queue_wait(q));
    CHECK(!memcmp(out, back, n));
    free(out);
    free(back);
}

/* --- no loader, no driver -------------------------------------------------------------------- */

static void expect_no_devices(void)
{
    usm_native_desc native = USM_NATIVE_DESC_INIT;
    usm_device     *dev    = NULL;
    usm_context    *ctx    = NULL;
    size_t          n      = 77;

    set("USM_LOG", "info");
    IS(usm_get_devices(&dev, 1, &n), USM_E_NO_DEVICE);
    CHECK(n == 77 && !dev);
    CHECK_IN("level_zero", usm_last_error());
    CHECK(!usm_default_context());
    CHECK_INT(usm_last_status(), USM_E_NO_DEVICE);
    /* Nothing of it is held against the other backends. */
    OK(usm_select_devices("host:*", &dev, 1, &n));
    CHECK_INT(n, 1);
    native.backend = "level_zero";
    native.handle  = &n;
    IS(usm_context_from_native(&native, &ctx), USM_E_NO_BACKEND);
    CHECK_IN("Level Zero", usm_last_error());
    CHECK(!ctx);
}

static void hidden_loader(void)
{
    hides_loader = true;
    expect_no_devices();
}

static void without_a_loader_there_are_no_devices(void)
{
    const char *log = in_child(hidden_loader);

    CHECK_IN("no loader", log);
    CHECK_IN("libze1", log); /* the remedy */
}

static void missing_driver(void)
{
    set("ZE_ENABLE_ALT_DRIVERS", "/nowhere/libze_that_is_not_there.so");
    expect_no_devices();
}

static void without_a_driver_there_are_no_devices(void)
{
    CHECK_IN("finds no driver", in_child(missing_driver));
}

static void uninitialized(void)
{
    set("ZE_SOFT_FAIL_INIT", "0x78000001");
    expect_no_devices();
}

static void lost_at_start(void)
{
    set("ZE_SOFT_FAIL_INIT", "0x70000001");
    expect_no_devices();
}

static void no_memory_at_start(void)
{
    usm_device *dev = NULL;
    size_t      n   = 77;
    usm_status  status;

    set("ZE_SOFT_FAIL_INIT", "0x70000002");
    /* Loaders may leave such a driver out and say that they have none. */
    status = usm_get_devices(&dev, 1, &n);
    CHECK(status == USM_E_NO_MEMORY || status == USM_E_NO_DEVICE);
    CHECK(n == 77 && !dev && usm_last_error()[0]);
    OK(usm_select_devices("host:*", &dev, 1, &n));
}

static void a_driver_that_does_not_start_is_none(void)
{
    CHECK_IN("finds no driver", in_child(uninitialized));
    CHECK_IN("finds no driver", in_child(lost_at_start));
    (void)in_child(no_memory_at_start);
}

/* --- wrong addresses -------------------------------------------------------------------------- */

static void misaligned(void)
{
    static const size_t aligns[] = {1, 8, 64, 256, 4096, 65536, 2 << 20};
    void               *p[7][3];
    uint64_t            before;
    rig                 r;

    set("ZE_SOFT_MISALIGN", "8");
    r      = open_rig("level_zero:0");
    before = live_objects();
    for (int i = 0; i < 7; i++) {
        for (int kind = 0; kind < 3; kind++) {
            static const usm_kind kinds[] = {USM_HOST, USM_DEVICE, USM_SHARED};

            p[i][kind] = usm_aligned_alloc_ctx(aligns[i], 300000, r.dev, r.ctx, kinds[kind]);
            CHECK(p[i][kind] != NULL);
            CHECK_INT((uintptr_t)p[i][kind] % aligns[i], 0);
            check_data(r.q, p[i][kind], 300000, (unsigned char)(i + kind));
        }
    }
    CHECK(live_objects() > before);
    for (int i = 0; i < 7; i++)
        for (int kind = 0; kind < 3; kind++)
            OK(usm_free_ctx(p[i][kind], r.ctx));
    close_rig(&r);
    check_live(0);
}

static void misaligned_memory_is_put_right(void)
{
    (void)in_child(misaligned);
}

/* Every second allocation of the driver is at the address of the one before. */
static void given_out_twice(void)
{
    usm_pool_desc desc = USM_POOL_DESC_INIT;
    usm_pool     *pool = NULL;
    char         *p[4] = {NULL};
    rig           r;

    set("ZE_SOFT_OVERLAP", "1");
    r         = open_rig("level_zero:0");
    desc.name = "direct"; /* each block is an allocation of the driver */
    OK(usm_pool_create(r.ctx, r.dev, USM_DEVICE, &desc, &pool));
    p[0] = usm_pool_malloc(pool, N);
    CHECK(p[0] != NULL);
    p[1] = usm_pool_malloc(pool, N);
    CHECK(p[1] == NULL);
    CHECK_INT(usm_last_status(), USM_E_DEVICE);
    CHECK_IN("given out before", usm_last_error());
    check_data(r.q, p[0], N, 1); /* still the first one's */
    p[2] = usm_pool_malloc(pool, N);
    CHECK(p[2] != NULL && (p[2] >= p[0] + N || p[2] + N <= p[0]));
    check_data(r.q, p[2], N, 2);
    usm_pool_free(pool, p[2]);
    usm_pool_free(pool, p[0]);
    usm_pool_destroy(pool);
    close_rig(&r);
}

static void given_to_two_contexts(void)
{
    char *p, *q;
    rig   a, b;

    set("ZE_SOFT_OVERLAP", "1");
    a = open_rig("level_zero:0");
    b = open_rig("level_zero:0");
    p = usm_malloc_ctx(N, a.dev, a.ctx, USM_DEVICE);
    q = usm_malloc_ctx(N, b.dev, b.ctx, USM_DEVICE); /* asked for again until it is nobody else's */
    CHECK(p && q && (q >= p + N || q + N <= p));
    CHECK_INT(usm_get_pointer_type(p, a.ctx), USM_DEVICE);
    CHECK_INT(usm_get_pointer_type(q, a.ctx), USM_UNKNOWN);
    check_data(a.q, p, N, 3);
    check_data(b.q, q, N, 4);
    OK(usm_free_ctx(q, b.ctx));
    OK(usm_free_ctx(p, a.ctx));
    close_rig(&a);
    close_rig(&b);
    check_live(0);
}

static void overlapping_memory_is_never_handed_out(void)
{
    (void)in_child(given_out_twice);
    (void)in_child(given_to_two_contexts);
}

/* --- a lost device ---------------------------------------------------------------------------- */

typedef struct loss {
    rig         r;
    usm_event  *running, *behind, *gate, *held;
    atomic_int  notified;
    _Atomic int told_status;
} loss;

static void on_end(usm_event *ev, usm_status status, void *user)
{
    loss *l = user;

    (void)ev;
    atomic_store(&l->told_status, status);
    atomic_fetch_add(&l->notified, 1);
}

static void *lose_soon(void *arg)
{
    ze_soft_lose_fn *lose;

    (void)arg;
    module_sleep_ms(100);
    find_soft("ze_soft_lose", &lose);
    lose(0);
    return NULL;
}

/* A copy that takes seconds, one behind it, and one that waits for a user event. */
static void start_work(loss *l, char *p, char *host)
{
    OK(usm_event_create(l->r.ctx, &l->gate));
    OK(usm_memcpy(l->r.q, p, host, N, 0, NULL, &l->running));
    OK(usm_memcpy(l->r.q, p, host, N / 2, 0, NULL, &l->behind));
    OK(usm_event_on_complete(l->behind, on_end, l));
    OK(usm_memcpy(l->r.q, p, host, N / 4, 1, &l->gate, &l->held));
}

/* Every call that needs the device says so; what gives things back works. */
static void check_all_say_so(loss *l, char *p, char *host)
{
    usm_event *ev = NULL;
    usm_queue *q  = NULL;
    void      *more;

    IS(usm_event_wait(l->running), USM_E_DEVICE_LOST);
    IS(usm_event_wait(l->behind), USM_E_DEVICE_LOST);
    IS(usm_event_query(l->behind), USM_E_DEVICE_LOST);
    for (int i = 0; i < 10000 && !atomic_load(&l->notified); i++)
        module_sleep_ms(1);
    CHECK_INT(atomic_load(&l->notified), 1);
    CHECK_INT(atomic_load(&l->told_status), USM_E_DEVICE_LOST);
    OK(usm_event_signal(l->gate, USM_OK)); /* what waited is issued now, and fails */
    IS(usm_event_wait(l->held), USM_E_DEVICE_LOST);
    IS(usm_memcpy(l->r.q, p, host, 100, 0, NULL, &ev), USM_E_DEVICE_LOST);
    CHECK_IN("ZE_RESULT_ERROR_DEVICE_LOST", usm_last_error());
    IS(usm_fill(l->r.q, p, "ab", 2, 100, 0, NULL, &ev), USM_E_DEVICE_LOST);
    IS(usm_queue_barrier(l->r.q, 0, NULL, &ev), USM_E_DEVICE_LOST);
    CHECK(ev == NULL);
    IS(usm_queue_wait(l->r.q), USM_E_DEVICE_LOST);
    IS(usm_context_wait(l->r.ctx), USM_E_DEVICE_LOST);
    IS(usm_queue_create(l->r.ctx, l->r.dev, NULL, &q), USM_E_DEVICE_LOST);
    CHECK(q == NULL);
    more = usm_malloc_ctx(64 << 20, l->r.dev, l->r.ctx, USM_DEVICE);
    CHECK(more == NULL);
    CHECK_INT(usm_last_status(), USM_E_DEVICE_LOST);
}

static void lost_at_work(void)
{
    static char host[N];
    loss        l = {.notified = 0};
    rig         other;
    pthread_t   thread;
    char       *p, *fine;

    set("ZE_SOFT_COPY_MBS", "2");
    l.r   = open_rig("level_zero:0");
    other = open_rig("level_zero:1");
    p     = usm_malloc_ctx(N, l.r.dev, l.r.ctx, USM_DEVICE);
    fine  = usm_malloc_ctx(1000, other.dev, other.ctx, USM_DEVICE);
    CHECK(p && fine);
    start_work(&l, p, host);
    CHECK_INT(pthread_create(&thread, NULL, lose_soon, NULL), 0);
    IS(usm_event_wait(l.running), USM_E_DEVICE_LOST); /* sleeps in the driver meanwhile */
    CHECK_INT(pthread_join(thread, NULL), 0);
    check_all_say_so(&l, p, host);
    check_data(other.q, fine, 1000, 5); /* the other device works on */
    usm_event_release(l.running);
    usm_event_release(l.behind);
    usm_event_release(l.held);
    usm_event_release(l.gate);
    OK(usm_free_ctx(p, l.r.ctx));
    close_rig(&l.r);
    OK(usm_free_ctx(fine, other.ctx));
    close_rig(&other);
    check_live(0);
}

static void a_lost_device_says_so_and_nothing_hangs(void)
{
    (void)in_child(lost_at_work);
}

static char nth[8]; /* the command at which it is lost */

/* The commands before are done, those after say so. */
static void lost_at_the_nth(void)
{
    static char host[1000], back[1000];
    usm_status  status   = USM_OK;
    bool        was_lost = false;
    rig         r;
    void       *p;

    set("ZE_SOFT_LOSE", nth);
    r = open_rig("level_zero:0");
    p = usm_malloc_ctx(1000, r.dev, r.ctx, USM_DEVICE);
    CHECK(p != NULL);
    for (int i = 0; i < 30; i++) {
        memset(host, i, sizeof host);
        status = usm_memcpy(r.q, p, host, 1000, 0, NULL, NULL);
        if (!status)
            status = usm_memcpy(r.q, back, p, 1000, 0, NULL, NULL);
        if (!status)
            status = usm_queue_wait(r.q);
        CHECK(!was_lost || status == USM_E_DEVICE_LOST);
        CHECK(status == USM_OK || status == USM_E_DEVICE_LOST);
        CHECK(status || !memcmp(host, back, sizeof host));
        was_lost = status == USM_E_DEVICE_LOST;
    }
    CHECK(was_lost);
    OK(usm_free_ctx(p, r.ctx));
    close_rig(&r);
    check_live(0);
}

static void a_device_may_be_lost_at_any_command(void)
{
    for (int n = 1; n <= 12; n++) {
        (void)snprintf(nth, sizeof nth, "%d", n);
        (void)in_child(lost_at_the_nth);
    }
}

/* --- out of memory ---------------------------------------------------------------------------- */

static void small_device(void)
{
    enum { MOST = 64, SIZE = 1 << 20 };
    usm_pool_desc desc    = USM_POOL_DESC_INIT;
    usm_pool     *pool    = NULL;
    void         *p[MOST] = {NULL};
    int           n       = 0;
    rig           r;

    set("ZE_SOFT_MEMORY", "16M");
    set("USM_LOG", "warn");
    r         = open_rig("level_zero:0");
    desc.name = "direct";
    OK(usm_pool_create(r.ctx, r.dev, USM_DEVICE, &desc, &pool));
    while (n < MOST && (p[n] = usm_pool_malloc(pool, SIZE)))
        n++;
    CHECK(n >= 8 && n <= 16);
    CHECK_INT(usm_last_status(), USM_E_NO_MEMORY);
    CHECK_INT(errno, ENOMEM);
    CHECK_IN("ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY", usm_last_error());
    check_data(r.q, p[0], SIZE, 6); /* the context's first copy, which wants to probe the device */
    usm_pool_free(pool, p[--n]);
    p[n] = usm_pool_malloc(pool, SIZE);
    CHECK(p[n] != NULL); /* there is room again */
    check_data(r.q, p[n], SIZE, 7);
    for (int i = 0; i <= n; i++)
        usm_pool_free(pool, p[i]);
    usm_pool_destroy(pool);
    close_rig(&r);
    check_live(0);
}

static void memory_that_runs_out_is_an_ordinary_answer(void)
{
    CHECK_STR(in_child(small_device), ""); /* never logged */
}

/* --- modules
 * -------------------------------------------------------------------------------------- */

/* The header of SPIR-V 1.0, then an instruction that does not exist. */
static const uint32_t broken[] = {0x07230203, 0x00010000, 0, 16, 0, 0x0002ffff, 7};

static void broken_module(void)
{
    char             log[4096] = "";
    usm_image        image     = {USM_IMAGE_SPIRV, broken, sizeof broken};
    usm_program_desc desc      = USM_PROGRAM_DESC_INIT;
    usm_program     *program   = NULL;
    rig              r         = open_rig("level_zero:0");
    uint64_t         before    = live_objects();

    if (!usm_device_has(r.dev, USM_ASPECT_IMAGE_SPIRV))
        _exit(77);
    desc.nimages  = 1;
    desc.images   = &image;
    desc.log      = log;
    desc.log_size = sizeof log;
    IS(usm_program_create(r.ctx, &desc, &program), USM_E_BUILD);
    CHECK(program == NULL);
    CHECK(strlen(log) > 10); /* the driver's words */
    CHECK(usm_last_error()[0]);
    CHECK_INT(live_objects(), before); /* its log, too, was given back */
    close_rig(&r);
    check_live(0);
}

static void the_log_of_a_module_that_does_not_build_is_given(void)
{
    int status = plain_child(broken_module, NULL);

    if (WIFEXITED(status) && WEXITSTATUS(status) == 77)
        SKIP("the software driver found no OpenCL runtime for SPIR-V");
    CHECK_INT(status, 0);
}

/* --- memory of a process that is gone
 * -------------------------------------------------------------- */

static const usm_backend_ops *ops;

/* The table of the module, without a libusm. */
static void *open_table(usm_backend_device *dev)
{
    const char           *folder = getenv("USM_PLUGIN_PATH");
    usm_backend_entry_fn *entry;
    char                  path[1024];
    void                 *library, *symbol, *ctx = NULL;
    size_t                n = 0;

    CHECK(folder != NULL);
    (void)snprintf(path, sizeof path, "%.900s/libusm_backend_level_zero.so", folder);
    library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    symbol  = library ? dlsym(library, "usm_backend_entry") : NULL;
    CHECK(symbol != NULL);
    memcpy(&entry, &symbol, sizeof entry);
    ops = entry(&module_api);
    CHECK(ops != NULL);
    OK(ops->devices(dev, 1, &n));
    CHECK(n >= 1);
    OK(ops->context_create(1, &dev->handle, &ctx));
    return ctx;
}

static int pipe_ends[2];

static void exporter(void)
{
    usm_backend_device dev;
    usm_backend_ipc    handle = {.fd = -1};
    void              *ctx = open_table(&dev), *p = NULL, *again = NULL;

    if (!(ops->caps & USM_CAP_IPC))
        _exit(77);
    OK(ops->mem_alloc(ctx, dev.handle, USM_DEVICE, 1 << 16, 64, &p));
    OK(ops->ipc_get(ctx, p, &handle));
    OK(ops->ipc_open(ctx, dev.handle, &handle, &again)); /* so the handle is a good one */
    OK(ops->ipc_close(ctx, again));
    CHECK_INT(write(pipe_ends[1], &handle, sizeof handle), sizeof handle);
}

static void importer(void)
{
    usm_backend_device dev;
    usm_backend_ipc    handle;
    void              *ctx = open_table(&dev), *p = NULL;

    CHECK_INT(read(pipe_ends[0], &handle, sizeof handle), sizeof handle);
    IS(ops->ipc_open(ctx, dev.handle, &handle, &p), USM_E_INVALID);
    CHECK_IN("gone", usm_last_error());
    /* Nor is what the descriptor's number means here such memory. */
    handle.fd = memfd_create("nothing of a driver", MFD_CLOEXEC);
    CHECK(handle.fd >= 0);
    IS(ops->ipc_open(ctx, dev.handle, &handle, &p), USM_E_INVALID);
    memset(handle.bytes, 0xa5, sizeof handle.bytes);
    handle.fd = -1;
    IS(ops->ipc_open(ctx, dev.handle, &handle, &p), USM_E_INVALID);
    CHECK(p == NULL);
    ops->context_destroy(ctx);
}

static void memory_of_a_process_that_is_gone_is_refused(void)
{
    int status;

    CHECK_INT(pipe(pipe_ends), 0);
    status = plain_child(exporter, NULL);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 77)
        SKIP("the backend does not share memory");
    CHECK_INT(status, 0);
    CHECK_INT(plain_child(importer, NULL), 0);
}

/* ---------------------------------------------------------------------------------------------- */

static const plain_case cases[] = {
    CASE(without_a_loader_there_are_no_devices),
    CASE(without_a_driver_there_are_no_devices),
    CASE(a_driver_that_does_not_start_is_none),
    CASE(misaligned_memory_is_put_right),
    CASE(overlapping_memory_is_never_handed_out),
    CASE(a_lost_device_says_so_and_nothing_hangs),
    CASE(a_device_may_be_lost_at_any_command),
    CASE(memory_that_runs_out_is_an_ordinary_answer),
    CASE(the_log_of_a_module_that_does_not_build_is_given),
    CASE(memory_of_a_process_that_is_gone_is_refused),
    {NULL, NULL},
};

int main(int argc, char **argv)
{
    const char *driver = getenv("ZE_ENABLE_ALT_DRIVERS");

    if (!driver || !strstr(driver, "libze_soft")) {
        printf("skipped: the driver is not the software driver\n");
        return 77;
    }
    return plain_main(argc, argv, cases);
}
