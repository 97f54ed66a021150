/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The backend of fake_backend.h.  Called by the core as any other, and by the tests of programs,
 * kernels, launches and caches to see what reached it. */
#include "fake_backend.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define BINARY_MAGIC "FAKEBIN1"
#define SPIRV_HEADER 20
#define ASPECT(name) (UINT64_C(1) << USM_ASPECT_##name)

struct fake fake;

static const usm_host_api *lib;
static char                handles[4];

typedef struct program {
    char                    *text; /* NULL: native */
    const usm_native_kernel *table;
    size_t                   count;
} program;

typedef struct kernel {
    char         name[128];
    size_t       nargs;
    usm_arg_kind kinds[256];
} kernel;

typedef struct event {
    atomic_int refs, status;
} event;

int fake_alive(void)
{
    return fake.contexts + fake.programs + fake.kernels + fake.queues + fake.events + fake.blocks;
}

usm_image fake_text(const char *text)
{
    return (usm_image){USM_IMAGE_OPENCL_C, text, strlen(text)};
}

usm_image fake_spirv(const char *text)
{
    static const unsigned char magic[4] = {0x03, 0x02, 0x23, 0x07};
    static char                memory[8][512];
    static size_t              n;
    char                      *at   = memory[n++ % 8] + 1;
    size_t                     size = SPIRV_HEADER + strlen(text);

    memset(at, ' ', sizeof(memory[0]) - 1);
    memcpy(at, magic, sizeof magic);
    memcpy(at + SPIRV_HEADER, text, size - SPIRV_HEADER);
    return (usm_image){USM_IMAGE_SPIRV, at, (size + 3) & ~(size_t)3};
}

/* --- devices, contexts, memory -------------------------------------------------------------- */

static usm_status devices(usm_backend_device *list, size_t cap, size_t *count)
{
    static const uint64_t common = ASPECT(GPU) | ASPECT(USM_DEVICE_ALLOCATIONS) |
                                   ASPECT(USM_HOST_ALLOCATIONS) | ASPECT(USM_SHARED_ALLOCATIONS) |
                                   ASPECT(OUT_OF_ORDER_QUEUE);
    static const uint64_t more[] = {
        ASPECT(KERNELS) | ASPECT(IMAGE_SPIRV) | ASPECT(IMAGE_OPENCL_C),
        ASPECT(KERNELS) | ASPECT(IMAGE_SPIRV) | ASPECT(IMAGE_OPENCL_C),
        ASPECT(KERNELS) | ASPECT(IMAGE_NATIVE) | ASPECT(USM_SYSTEM_ALLOCATIONS),
        0,
    };

    for (size_t i = 0; i < cap && i < 4; i++)
        list[i] = (usm_backend_device){
            .handle              = &handles[i],
            .platform            = handles,
            .type                = USM_DEVICE_TYPE_GPU,
            .name                = "Fake 1000",
            .platform_name       = "fake",
            .driver_version      = "1.0",
            .aspects             = common | more[i],
            .compute_units       = 1,
            .memory_size         = (uint64_t)1 << 30,
            .max_alloc_size      = (uint64_t)1 << 30,
            .max_work_group_size = 64,
            .local_memory_size   = 1024,
            .max_align           = USM_MAX_ALIGNMENT,
            .max_fill_pattern    = 128,
        };
    *count = 4;
    return USM_OK;
}

static usm_status context_create(size_t n, void *const *devs, void **ctx)
{
    (void)n;
    (void)devs;
    *ctx = &fake;
    fake.contexts++;
    return USM_OK;
}

static void context_destroy(void *ctx)
{
    (void)ctx;
    fake.contexts--;
}

static usm_status mem_alloc(void *ctx, void *dev, usm_kind kind, size_t size, size_t align,
                            void **p)
{
    (void)ctx;
    (void)dev;
    (void)kind;
    if (posix_memalign(p, align < 64 ? 64 : align, size) != 0)
        return lib->report(USM_E_NO_MEMORY, "no host memory");
    fake.blocks++;
    return USM_OK;
}

static usm_status mem_free(void *ctx, usm_kind kind, void *p, size_t size)
{
    (void)ctx;
    (void)kind;
    (void)size;
    free(p);
    fake.blocks--;
    return USM_OK;
}

/* --- queues and events ---------------------------------------------------------------------- */

static usm_status give_event(int status, void **ev)
{
    event *e;

    if (!ev)
        return USM_OK;
    e = lib->heap_alloc(sizeof *e);
    if (!e)
        return lib->report(USM_E_NO_MEMORY, "no host memory");
    e->refs   = 1;
    e->status = status;
    fake.events++;
    *ev = e;
    return USM_OK;
}

static usm_status queue_create(void *ctx, void *dev, uint32_t flags, void **q)
{
    (void)ctx;
    (void)flags;
    fake.queues++;
    *q = dev;
    return USM_OK;
}

static void queue_destroy(void *q)
{
    (void)q;
    fake.queues--;
}

static usm_status queue_wait(void *q)
{
    (void)q;
    return USM_OK;
}

static usm_status copy(void *q, void *dst, const void *src, size_t n, size_t ndeps,
                       void *const *deps, void **ev)
{
    (void)q;
    (void)ndeps;
    (void)deps;
    memcpy(dst, src, n);
    return give_event(USM_OK, ev);
}

static usm_status copy_2d(void *q, void *dst, size_t dst_pitch, const void *src, size_t src_pitch,
                          size_t width, size_t height, size_t ndeps, void *const *deps, void **ev)
{
    (void)q;
    (void)ndeps;
    (void)deps;
    for (size_t y = 0; y < height; y++)
        memcpy((char *)dst + y * dst_pitch, (const char *)src + y * src_pitch, width);
    return give_event(USM_OK, ev);
}

static usm_status fill(void *q, void *dst, const void *pattern, size_t pattern_size, size_t size,
                       size_t ndeps, void *const *deps, void **ev)
{
    (void)q;
    (void)ndeps;
    (void)deps;
    for (size_t i = 0; i < size; i += pattern_size)
        memcpy((char *)dst + i, pattern, pattern_size);
    return give_event(USM_OK, ev);
}

static usm_status prefetch(void *q, const void *p, size_t n, size_t ndeps, void *const *deps,
                           void **ev)
{
    (void)q;
    (void)p;
    (void)n;
    (void)ndeps;
    (void)deps;
    return give_event(USM_OK, ev);
}

static usm_status advise(void *q, const void *p, size_t n, usm_advice advice, size_t ndeps,
                         void *const *deps, void **ev)
{
    (void)advice;
    return prefetch(q, p, n, ndeps, deps, ev);
}

static usm_status marker(void *q, size_t ndeps, void *const *deps, void **ev)
{
    (void)q;
    (void)deps;
    fake.markers++;
    fake.ndeps = ndeps;
    return give_event(USM_OK, ev);
}

static usm_status event_create_user(void *ctx, void **ev)
{
    (void)ctx;
    return give_event(USM_E_NOT_READY, ev);
}

static usm_status event_signal(void *ev, usm_status status)
{
    ((event *)ev)->status = status;
    return USM_OK;
}

/* Nobody here waits for a user event that is not signalled. */
static usm_status event_query(void *ev)
{
    return (usm_status)((event *)ev)->status;
}

static usm_status event_profiling(void *ev, usm_profiling *times)
{
    (void)ev;
    (void)times;
    return lib->report(USM_E_NOT_SUPPORTED, "no times here");
}

static void event_release(void *ev)
{
    event *e = ev;

    if (--e->refs > 0)
        return;
    lib->heap_free(e);
    fake.events--;
}

/* --- programs ------------------------------------------------------------------------------- */

static char *copy_text(const char *text, size_t size)
{
    char *copied = lib->heap_alloc(size + 1);

    if (copied && text)
        memcpy(copied, text, size);
    return copied;
}

/* The compiler: a log for "#error" and "#warn", as drivers make them. */
static usm_status compile(const char *text, char **log)
{
    const char *error = strstr(text, "#error "), *warn = strstr(text, "#warn ");
    char        line[2048] = "";

    if (error)
        (void)snprintf(line, sizeof line,
                       "Compilation started\n\n  k.cl:1:1: error: %.*s\n1 error generated.\n",
                       (int)strcspn(error + 7, "\n"), error + 7);
    else if (warn)
        (void)snprintf(line, sizeof line, "k.cl:1:1: warning: %.*s\n", (int)strcspn(warn + 6, "\n"),
                       warn + 6);
    if (line[0]) {
        *log = copy_text(line, strlen(line));
        if (!*log)
            return lib->report(USM_E_NO_MEMORY, "no host memory");
    }
    if (strstr(text, "#unknown"))
        return lib->report(USM_E_NO_IMAGE, "not my kind of text");
    return error ? lib->report(USM_E_BUILD, "clBuildProgram failed: -11") : USM_OK;
}

static usm_status open_image(const usm_image *image, const char **text, size_t *size)
{
    const char *data   = image->data;
    size_t      header = 0;

    if (image->type == USM_IMAGE_SPIRV)
        header = SPIRV_HEADER;
    if (image->type == USM_IMAGE_SPIRV && ((uintptr_t)data & 3) != 0)
        return lib->report(USM_E_INTERNAL, "SPIR-V at an odd address");
    if (image->type == USM_IMAGE_BINARY)
        header = sizeof BINARY_MAGIC - 1;
    if (image->type == USM_IMAGE_BINARY &&
        (fake.refuse_binaries || image->size < header || memcmp(data, BINARY_MAGIC, header) != 0))
        return lib->report(USM_E_BUILD, "CL_INVALID_BINARY");
    *text = data + header;
    *size = image->size - header;
    return USM_OK;
}

static usm_status program_build(void *ctx, void *dev, const usm_image *image, const char *options,
                                char **log, void **out)
{
    struct timespec t    = {0, (long)fake.build_ms * 1000000};
    const char     *text = NULL;
    size_t          size = 0;
    usm_status      s;
    program        *p;

    (void)ctx;
    (void)options;
    if (dev == &handles[2] && image->type != USM_IMAGE_NATIVE)
        return lib->report(USM_E_NO_IMAGE, "native functions only");
    fake.builds[image->type]++;
    if (t.tv_nsec)
        (void)nanosleep(&t, NULL);
    p = lib->heap_alloc(sizeof *p);
    if (!p)
        return lib->report(USM_E_NO_MEMORY, "no host memory");
    if (image->type == USM_IMAGE_NATIVE) {
        p->table = image->data;
        p->count = image->size / sizeof *p->table;
        s        = USM_OK;
    } else {
        s = open_image(image, &text, &size);
        if (s == USM_OK && (p->text = copy_text(text, size)) == NULL)
            s = lib->report(USM_E_NO_MEMORY, "no host memory");
        if (s == USM_OK)
            s = compile(p->text, log);
    }
    if (s != USM_OK) {
        lib->heap_free(p->text);
        lib->heap_free(p);
        return s;
    }
    fake.programs++;
    *out = p;
    return USM_OK;
}

static void program_destroy(void *prog)
{
    program *p = prog;

    lib->heap_free(p->text);
    lib->heap_free(p);
    fake.programs--;
}

static usm_status program_binary(void *prog, void **data, size_t *size)
{
    const program *p = prog;
    size_t         n = sizeof BINARY_MAGIC - 1;
    char          *out;

    if (fake.no_binaries || !p->text)
        return lib->report(USM_E_NOT_SUPPORTED, "no binaries here");
    out = lib->heap_alloc(n + strlen(p->text));
    if (!out)
        return lib->report(USM_E_NO_MEMORY, "no host memory");
    memcpy(out, BINARY_MAGIC, n);
    memcpy(out + n, p->text, strlen(p->text));
    *data = out;
    *size = n + strlen(p->text);
    return USM_OK;
}

/* The next "kernel NAME(KINDS)" of a text; false at its end. */
static bool next_kernel(const char **text, kernel *k)
{
    char kinds[256] = "";

    for (const char *at = strstr(*text, "kernel "); at; at = strstr(at, "kernel ")) {
        at += strlen("kernel ");
        if (sscanf(at, "%127[a-zA-Z0-9_](%255[PVL-])", k->name, kinds) < 1)
            continue;
        k->nargs = strlen(kinds);
        for (size_t i = 0; i < k->nargs; i++)
            k->kinds[i] = kinds[i] == 'P'   ? USM_ARG_POINTER
                          : kinds[i] == 'V' ? USM_ARG_VALUE
                          : kinds[i] == 'L' ? USM_ARG_LOCAL
                                            : USM_ARG_NONE;
        *text = at;
        return true;
    }
    return false;
}

/* Kernel i of the program. */
static bool kernel_at(const program *p, size_t i, kernel *k)
{
    const char *text = p->text;
    bool        more = true;

    if (text) {
        for (size_t n = 0; more && n <= i; n++)
            more = next_kernel(&text, k);
        return more;
    }
    if (i >= p->count)
        return false;
    (void)snprintf(k->name, sizeof k->name, "%s", p->table[i].name);
    k->nargs = p->table[i].nargs;
    for (size_t a = 0; a < k->nargs && a < 256; a++)
        k->kinds[a] = p->table[i].kinds ? p->table[i].kinds[a] : USM_ARG_NONE;
    return true;
}

static usm_status program_kernels(void *prog, char **names)
{
    char   list[8192] = "";
    size_t used       = 0;
    kernel k;

    for (size_t i = 0; kernel_at(prog, i, &k) && used + sizeof k.name + 2 < sizeof list; i++)
        used += (size_t)snprintf(list + used, sizeof list - used, "%s%s", used ? ";" : "", k.name);
    *names = copy_text(list, used);
    return *names ? USM_OK : lib->report(USM_E_NO_MEMORY, "no host memory");
}

/* --- kernels and launches ------------------------------------------------------------------- */

static usm_status kernel_create(void *prog, const char *name, void **out)
{
    kernel *k     = lib->heap_alloc(sizeof *k);
    bool    found = false;

    if (!k)
        return lib->report(USM_E_NO_MEMORY, "no host memory");
    for (size_t i = 0; !found && kernel_at(prog, i, k); i++)
        found = strcmp(k->name, name) == 0;
    if (!found) {
        lib->heap_free(k);
        return lib->report(USM_E_NO_KERNEL, "CL_INVALID_KERNEL_NAME");
    }
    fake.kernels++;
    *out = k;
    return USM_OK;
}

static void kernel_destroy(void *k)
{
    lib->heap_free(k);
    fake.kernels--;
}

static usm_status kernel_info(void *kern, size_t *nargs, usm_arg_kind *kinds, size_t cap)
{
    const kernel *k = kern;

    for (size_t i = 0; i < cap && i < k->nargs; i++)
        kinds[i] = k->kinds[i];
    *nargs = k->nargs;
    return USM_OK;
}

static usm_status launch(void *q, void *kern, const usm_launch *l, size_t ndeps, void *const *deps,
                         void **ev)
{
    (void)q;
    (void)deps;
    fake.launches++;
    fake.launch = *l;
    fake.ndeps  = ndeps;
    (void)snprintf(fake.kernel, sizeof fake.kernel, "%s", ((kernel *)kern)->name);
    for (size_t i = 0; i < l->nargs && i < 8; i++)
        fake.args[i] = l->args[i];
    return give_event(USM_OK, ev);
}

static const usm_backend_ops ops = {
    .abi               = USM_MODULE_ABI,
    .struct_size       = sizeof(usm_backend_ops),
    .name              = "fake",
    .caps              = USM_CAP_QUEUES | USM_CAP_KERNELS,
    .devices           = devices,
    .context_create    = context_create,
    .context_destroy   = context_destroy,
    .mem_alloc         = mem_alloc,
    .mem_free          = mem_free,
    .queue_create      = queue_create,
    .queue_destroy     = queue_destroy,
    .queue_wait        = queue_wait,
    .copy              = copy,
    .copy_2d           = copy_2d,
    .fill              = fill,
    .prefetch          = prefetch,
    .advise            = advise,
    .marker            = marker,
    .barrier           = marker,
    .event_create_user = event_create_user,
    .event_signal      = event_signal,
    .event_query       = event_query,
    .event_wait        = event_query,
    .event_profiling   = event_profiling,
    .event_release     = event_release,
    .program_build     = program_build,
    .program_destroy   = program_destroy,
    .program_binary    = program_binary,
    .program_kernels   = program_kernels,
    .kernel_create     = kernel_create,
    .kernel_destroy    = kernel_destroy,
    .kernel_info       = kernel_info,
    .launch            = launch,
};

const usm_backend_ops *fake_backend_entry(const usm_host_api *api)
{
    lib = api;
    return &ops;
}
