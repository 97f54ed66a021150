/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Fuzzes sizes, counts and arrays of the public interface.  Called by libFuzzer.
 *
 * The input is a script: records of RECORD bytes, a call and its values, which are taken from a
 * table of sizes at whose edges sums and products overflow, or are small.  Arrays are NULL wherever
 * a count may be anything.  What is checked beyond "no sanitizer speaks": a refusal tells a story,
 * and what is granted lies within the limit. */
#include <usm/usm.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define KIB   ((size_t)1 << 10)
#define BLOCK (64 * KIB)
#define LIMIT ((size_t)64 << 20)

enum { RECORD = 8, RECORDS_MAX = 64, BATCH = 8 };

static const size_t edges[] = {0,
                               1,
                               2,
                               3,
                               7,
                               63,
                               64,
                               127,
                               4095,
                               4096,
                               BLOCK - 1,
                               BLOCK,
                               BLOCK + 1,
                               (size_t)1 << 20,
                               (size_t)1 << 31,
                               UINT32_MAX,
                               (size_t)1 << 32,
                               ((size_t)1 << 46) + 1,
                               (size_t)1 << 47,
                               (size_t)1 << 62,
                               SIZE_MAX / 3 + 1,
                               SIZE_MAX / 2,
                               SIZE_MAX / 2 + 1,
                               SIZE_MAX - BLOCK,
                               SIZE_MAX - 4096,
                               SIZE_MAX - 4095,
                               SIZE_MAX - 63,
                               SIZE_MAX - 7,
                               SIZE_MAX - 1,
                               SIZE_MAX};

/* What all inputs use. */
static struct {
    usm_context     *ctx;
    usm_queue       *queue;
    usm_program     *program;
    usm_kernel      *kernel;
    usm_team        *team;
    usm_team_kernel *team_kernel;
    char            *a, *b; /* BLOCK bytes of libusm's                                       */
} all;

/* What one input has made. */
typedef struct made {
    usm_pool   *pool;
    usm_buffer *buffer;
} made;

static void must(bool ok, const char *what)
{
    if (ok)
        return;
    (void)fprintf(stderr, "fuzz_descriptors: not so: %s\n", what);
    abort();
}

static bool is_ok(usm_status st)
{
    must(st == USM_OK || (usm_last_status() == st && usm_last_error()[0]),
         "a refusal tells a story");
    return st == USM_OK;
}

static size_t edge(uint8_t byte)
{
    return edges[byte % (sizeof edges / sizeof edges[0])];
}

/* ---- memory ------------------------------------------------------------------------------- */

static void check_block(void *p, size_t size)
{
    if (!p)
        must(usm_last_error()[0], "a refusal tells a story");
    else
        must(size <= LIMIT && usm_usable_size(p) >= size, "what is granted is there");
}

static usm_kind kind_of(uint8_t byte)
{
    return (usm_kind)(byte % 5);
}

static void allocate(made *m, const uint8_t *v)
{
    size_t size = edge(v[0]), align = edge(v[1]);
    void  *p = v[2] % 2 ? usm_aligned_alloc_ctx(align, size, NULL, all.ctx, kind_of(v[3]))
                        : usm_malloc(size, all.queue, kind_of(v[3]));

    (void)m;
    check_block(p, size);
    usm_free(p);
}

static void reallocate(made *m, const uint8_t *v)
{
    size_t size = edge(v[0]);
    void  *p    = usm_malloc(BLOCK, all.queue, USM_HOST), *q;

    (void)m;
    must(p != NULL, "a block");
    q = usm_realloc(p, size, USM_HOST);
    if (size != 0)
        check_block(q, size);
    usm_free(q || size == 0 ? q : p);
}

static void clear_allocate(made *m, const uint8_t *v)
{
    size_t size = edge(v[0]), n = edge(v[1]);
    void  *p = usm_calloc(n, size, kind_of(v[2]));

    (void)m;
    must(!p || size == 0 || n <= LIMIT / size, "a product that overflows is refused");
    usm_free(p);
}

static void allocate_in_queue(made *m, const uint8_t *v)
{
    size_t size = edge(v[0]);
    void  *p    = m->pool && v[1] % 2 ? usm_async_malloc_from_pool(all.queue, size, m->pool)
                                      : usm_async_malloc(all.queue, kind_of(v[2]), size);

    check_block(p, size);
    if (p)
        (void)is_ok(usm_async_free(all.queue, p));
}

/* ---- pools ---------------------------------------------------------------------------------- */

static void make_pool(made *m, const uint8_t *v)
{
    static const char *const names[] = {NULL, "slab", "arena", "direct"};
    usm_pool_desc            desc    = USM_POOL_DESC_INIT;

    usm_pool_destroy(m->pool);
    m->pool           = NULL;
    desc.name         = names[v[0] % 4];
    desc.area_size    = edge(v[1]);
    desc.maximum_size = edge(v[2]);
    desc.min_align    = v[3] % 2 ? edge(v[3] / 2) : 0;
    desc.retain       = edge(v[4]);
    desc.threshold    = edge(v[5]);
    desc.export_mode  = v[6] % 64 ? 0 : v[6];
    desc.zero_init    = v[6] % 3 == 0;
    (void)is_ok(usm_pool_create(all.ctx, NULL, (usm_kind)(v[6] % 3 + 1), &desc, &m->pool));
}

static void use_pool(made *m, const uint8_t *v)
{
    size_t size = edge(v[0]), align = v[1] % 2 ? edge(v[1] / 2) : 0;
    void  *p;

    if (!m->pool)
        return;
    p = usm_pool_aligned_alloc(m->pool, align, size);
    check_block(p, size);
    if (p && v[2] % 2)
        usm_pool_free_sized(m->pool, p, edge(v[3]));
    else
        usm_pool_free(m->pool, p);
    (void)is_ok(usm_pool_trim_to(m->pool, edge(v[4])));
}

static void use_batch(made *m, const uint8_t *v)
{
    void  *list[BATCH];
    size_t n;

    if (!m->pool)
        return;
    must(usm_pool_malloc_batch(m->pool, edge(v[0]), edge(v[1]), NULL) == 0, "nothing into NULL");
    n = usm_pool_malloc_batch(m->pool, edge(v[0]), v[1] % (BATCH + 1), list);
    must(n <= BATCH, "no more than was asked for");
    usm_pool_free_batch(m->pool, n, list);
    usm_pool_free_batch(m->pool, edge(v[1]), NULL);
}

static void set_pool(made *m, const uint8_t *v)
{
    uint64_t value;

    if (!m->pool)
        return;
    (void)is_ok(usm_pool_set_attribute(m->pool, (usm_pool_attribute)(v[0] % 20), edge(v[1])));
    (void)is_ok(usm_pool_get_attribute(m->pool, (usm_pool_attribute)(v[0] % 20), &value));
    (void)usm_pool_describe(m->pool, (usm_text_format)(v[2] % 3), NULL, edge(v[3]), NULL);
}

/* ---- buffers -------------------------------------------------------------------------------- */

/* Or more than there are addresses: to destroy a buffer takes time for each of its blocks, used or
 * not, and terabytes have many. */
static size_t buffer_size(uint8_t byte)
{
    size_t size = edge(byte);

    return size > (size_t)1 << 33 && size < (size_t)1 << 48 ? BLOCK : size;
}

static void make_buffer(made *m, const uint8_t *v)
{
    usm_buffer_desc desc = USM_BUFFER_DESC_INIT;

    usm_buffer_destroy(m->buffer);
    m->buffer  = NULL;
    desc.size  = buffer_size(v[0]);
    desc.flags = v[1] % 4 ? 0 : v[2];
    (void)is_ok(usm_buffer_create(all.ctx, &desc, &m->buffer));
}

static void make_sub_buffer(made *m, const uint8_t *v)
{
    usm_buffer *sub = NULL;

    if (m->buffer && is_ok(usm_buffer_create_sub(m->buffer, edge(v[0]), edge(v[1]), &sub))) {
        must(edge(v[0]) <= usm_buffer_size(m->buffer) &&
                 usm_buffer_size(sub) <= usm_buffer_size(m->buffer) - edge(v[0]),
             "a part lies within the whole");
        usm_buffer_destroy(sub);
    }
}

static void access_buffer(made *m, const uint8_t *v)
{
    usm_access_mode mode = (usm_access_mode)(v[2] % 16) | USM_NO_WAIT;
    usm_access      a;

    if (!m->buffer || !is_ok(usm_access_begin(m->buffer, edge(v[0]), edge(v[1]), mode, &a)))
        return;
    must(a.size <= LIMIT, "what is open fits");
    if (a.size > 0 && (mode & USM_WRITE))
        ((char *)a.ptr)[0] = ((char *)a.ptr)[a.size - 1] = 1;
    usm_access_end(&a);
}

static void access_ranges(made *m, const uint8_t *v)
{
    usm_buffer_range list[2] = {{m->buffer, edge(v[0]), edge(v[1]), USM_READ},
                                {m->buffer, edge(v[2]), edge(v[3]), USM_READ}};
    usm_access       accs[2];

    must(!is_ok(usm_access_many(edge(v[4]) | 1, NULL, NULL)), "no ranges");
    must(!is_ok(usm_announce(edge(v[4]) | 1, NULL)), "no ranges");
    if (!m->buffer)
        return;
    (void)is_ok(usm_announce(2, list));
    if (is_ok(usm_access_many(2, list, accs))) {
        usm_access_end(&accs[0]);
        usm_access_end(&accs[1]);
    }
    (void)is_ok(usm_buffer_advise(m->buffer, edge(v[0]), edge(v[1]),
                                  (usm_buffer_advice)(v[5] % 4 + v[5] / 128 * 3)));
}

static void command_buffer(made *m, const uint8_t *v)
{
    static const char pattern[BLOCK];
    usm_accessor      dst = {m->buffer, edge(v[0]), edge(v[1]), (usm_access_mode)(v[4] % 16)};
    usm_accessor      src = {m->buffer, edge(v[2]), edge(v[3]), USM_READ};
    size_t            of  = edge(v[5]);

    if (!m->buffer)
        return;
    if (of <= sizeof pattern || dst.size % of != 0)
        (void)is_ok(usm_buffer_fill(all.queue, &dst, pattern, of, 0, NULL, NULL));
    (void)is_ok(usm_buffer_copy(all.queue, &dst, &src, 0, NULL, NULL));
    (void)is_ok(usm_queue_wait(all.queue));
}

static usm_status do_nothing(void *user, void *const *ptrs)
{
    (void)user;
    (void)ptrs;
    return USM_OK;
}

static void task_buffer(made *m, const uint8_t *v)
{
    usm_accessor a = {m->buffer, edge(v[0]), edge(v[1]), (usm_access_mode)(v[2] % 16)};
    size_t       n = edge(v[3]) | 1;

    must(!is_ok(usm_buffer_task(all.queue, do_nothing, NULL, n, NULL, 0, NULL, NULL)),
         "no accessors");
    if (m->buffer)
        (void)is_ok(usm_buffer_task(all.queue, do_nothing, NULL, 1, &a, 0, NULL, NULL));
    (void)is_ok(usm_queue_wait(all.queue));
}

/* ---- commands on memory ---------------------------------------------------------------------- */

static void copy(made *m, const uint8_t *v)
{
    size_t n = edge(v[0]), at = edge(v[1]) % BLOCK;

    (void)m;
    (void)is_ok(usm_memcpy(all.queue, all.a + at, all.b, n, 0, NULL, NULL));
    (void)is_ok(usm_memset(all.queue, all.a + at, 0, n, 0, NULL, NULL));
    (void)is_ok(usm_queue_wait(all.queue)); /* the next two are in no order with the queue */
    (void)is_ok(usm_copy(all.a + at, all.b, n));
    (void)is_ok(usm_set(all.a + at, 0, n));
    (void)is_ok(usm_prefetch(all.queue, all.a + at, n, 0, NULL, NULL));
    (void)is_ok(usm_mem_advise(all.queue, all.a + at, n, (usm_advice)(v[2] % 8), 0, NULL, NULL));
    (void)is_ok(usm_queue_wait(all.queue));
}

static void copy_2d(made *m, const uint8_t *v)
{
    size_t to = edge(v[0]), from = edge(v[1]), width = edge(v[2]), height = edge(v[3]);

    (void)m;
    (void)is_ok(usm_memcpy_2d(all.queue, all.a, to, all.b, from, width, height, 0, NULL, NULL));
    (void)is_ok(usm_queue_wait(all.queue));
    (void)is_ok(usm_copy_2d(all.a, to, all.b, from, width, height));
    (void)is_ok(usm_queue_wait(all.queue));
}

static void fill(made *m, const uint8_t *v)
{
    size_t of = edge(v[0]), count = edge(v[1]);

    (void)m;
    (void)is_ok(usm_fill(all.queue, all.a, all.b, of, count, 0, NULL, NULL));
    (void)is_ok(usm_queue_wait(all.queue));
}

static void depend(made *m, const uint8_t *v)
{
    size_t n = edge(v[0]) | 1;

    (void)m;
    must(!is_ok(usm_queue_barrier(all.queue, n, NULL, NULL)), "no events");
    must(!is_ok(usm_memcpy(all.queue, all.a, all.b, 1, n, NULL, NULL)), "no events");
    must(!is_ok(usm_event_wait_all(n, NULL)), "no events");
    must(!usm_async_malloc_after(all.queue, USM_HOST, 64, n, NULL, NULL), "no events");
}

/* ---- kernels --------------------------------------------------------------------------------- */

static void kernel_nothing(const usm_range *range, void *const *args)
{
    (void)range;
    (void)args;
}

static void make_program(made *m, const uint8_t *v)
{
    usm_native_kernel natives[2] = {{"first", kernel_nothing, edge(v[0]), NULL},
                                    {"second", kernel_nothing, 1, NULL}};
    usm_image         image      = {(usm_image_type)(v[1] % 7), natives, edge(v[2])};
    usm_program_desc  desc       = USM_PROGRAM_DESC_INIT;
    usm_program      *program    = NULL;

    (void)m;
    desc.nimages  = v[3] % 2 ? 1 : edge(v[3]) | 1;
    desc.images   = v[3] % 2 ? &image : NULL;
    desc.log_size = edge(v[4]);
    if (image.size > sizeof natives || image.type != USM_IMAGE_NATIVE)
        image.data = NULL;
    if (is_ok(usm_program_create(all.ctx, &desc, &program)))
        usm_program_destroy(program);
}

static void launch(made *m, const uint8_t *v)
{
    usm_accessor a    = {m->buffer, edge(v[0]), edge(v[1]), USM_READ};
    usm_arg      args = {(usm_arg_kind)(v[2] % 6), edge(v[3]), NULL};
    usm_launch   l    = USM_LAUNCH_INIT;

    if (args.kind == USM_ARG_ACCESS)
        args.value = m->buffer ? &a : NULL;
    l.kernel = all.kernel;
    l.dims   = v[4] % 5;
    for (int i = 0; i < 3; i++) {
        l.offset[i] = v[5] % 4 ? 0 : edge((uint8_t)(v[5] + i));
        l.global[i] = edge((uint8_t)(v[6] + i * (v[4] / 5)));
        l.local[i]  = v[2] / 6 % 4 ? 0 : edge((uint8_t)(v[6] / 2 + i));
    }
    l.nargs     = v[0] % 4 ? 1 : edge(v[0]);
    l.args      = l.nargs == 1 ? &args : NULL;
    l.nindirect = v[1] % 4 ? 0 : edge(v[1]);
    (void)is_ok(usm_queue_submit(all.queue, &l, 0, NULL, NULL));
    (void)is_ok(usm_queue_wait(all.queue));
}

static void launch_split(made *m, const uint8_t *v)
{
    usm_split_arg     arg = {.follow = (usm_follow)(v[0] % 6),
                             .mode   = (usm_access_mode)(v[1] % 8),
                             .buffer = m->buffer,
                             .offset = v[2] % 2 ? 0 : edge(v[2]),
                             .size   = edge(v[3]),
                             .stride = edge(v[4]),
                             .before = v[1] / 8 % 2 ? 0 : edge(v[5]),
                             .after  = v[1] / 16 % 2 ? 0 : edge((uint8_t)(v[5] + v[6])),
                             .leaf   = v[1] / 32 % 2 ? 0 : edge(v[6]),
                             .merge  = (usm_merge)(v[6] % 5)};
    usm_parallel_desc d   = USM_PARALLEL_DESC_INIT;

    d.kernel    = all.team_kernel;
    d.dims      = 1 + v[0] / 6 % 3;
    d.global[0] = v[0] % 2 ? 64 : edge((uint8_t)(v[5] + 3));
    d.max_chunk = v[0] % 3 ? 0 : edge((uint8_t)(v[4] + 5));
    d.multiple  = v[0] % 5 ? 0 : edge((uint8_t)(v[3] + 7));
    d.nargs     = v[2] % 16 ? 1 : edge(v[2]);
    d.args      = d.nargs == 1 ? &arg : NULL;
    if (!m->buffer && arg.follow != USM_FOLLOW_SCRATCH)
        return;
    (void)is_ok(usm_parallel(all.team, &d, NULL));
}

static void graph(made *m, const uint8_t *v)
{
    usm_node_desc d = USM_NODE_DESC_INIT, in = USM_NODE_DESC_INIT;
    usm_graph    *g = NULL;
    uint32_t      node, input;

    (void)m;
    must(usm_graph_create(all.team, &g) == USM_OK, "a graph");
    in.kind     = USM_NODE_INPUT;
    in.name     = "input";
    in.data     = all.a;
    in.size     = v[0] % 2 ? 64 : 0;
    d.kind      = (usm_node_kind)(v[1] % 7);
    d.name      = "node";
    d.kernel    = all.team_kernel;
    d.dims      = v[0] / 2 % 5;
    d.out_size  = edge(v[2]);
    d.parts     = (uint32_t)edge(v[3]);
    d.size      = edge(v[4]);
    d.global[0] = d.global[1] = edge(v[5]);
    d.local[0]                = v[6] % 2 ? 0 : edge(v[6]);
    if (is_ok(usm_graph_add(g, &in, &input)) && is_ok(usm_graph_add(g, &d, &node)) &&
        is_ok(usm_graph_connect(g, input, node)))
        (void)is_ok(usm_graph_run(g, NULL, NULL));
    usm_graph_destroy(g);
}

/* ---- the rest ------------------------------------------------------------------------------- */

static void make_context(made *m, const uint8_t *v)
{
    usm_context_desc desc = USM_CONTEXT_DESC_INIT;
    usm_context     *ctx  = NULL;
    usm_buffer      *b;

    (void)m;
    desc.ndevices     = v[0] % 2 ? 0 : edge(v[0]);
    desc.host_limit   = edge(v[1]);
    desc.device_limit = edge(v[2]);
    if (!is_ok(usm_context_create(&desc, &ctx)))
        return;
    b = usm_buffer_new(ctx, buffer_size(v[3]));
    usm_buffer_destroy(b);
    usm_context_destroy(ctx);
}

static void make_team(made *m, const uint8_t *v)
{
    usm_team_desc desc = USM_TEAM_DESC_INIT;
    usm_team     *team = NULL;

    (void)m;
    desc.selector = "host:*";
    desc.ndevices = v[0] % 2 ? 0 : edge(v[0]);
    desc.depth    = (uint32_t)edge(v[1]);
    if (is_ok(usm_team_create(&desc, &team)))
        usm_team_destroy(team);
}

static void list_devices(made *m, const uint8_t *v)
{
    size_t n;

    (void)m;
    (void)is_ok(usm_get_devices(NULL, edge(v[0]), &n));
    (void)is_ok(usm_context_get_devices(all.ctx, NULL, edge(v[0]), &n));
    (void)usm_spill_describe(all.ctx, USM_TEXT, NULL, edge(v[0]), NULL);
    (void)usm_team_describe(all.team, USM_TEXT, NULL, edge(v[0]), NULL);
}

static void open_channel(made *m, const uint8_t *v)
{
    usm_ipc_channel_desc desc = USM_IPC_CHANNEL_DESC_INIT;
    usm_ipc_channel     *ch   = NULL;

    (void)m;
    desc.name       = "fuzz";
    desc.rank       = (uint32_t)edge(v[0]);
    desc.size       = (uint32_t)edge(v[1]);
    desc.timeout_ms = 0;
    if (desc.rank < desc.size && desc.size <= 256)
        return; /* it would wait for others */
    must(!is_ok(usm_ipc_channel_open(&desc, &ch)), "no such rank");
}

static void (*const calls[])(made *m, const uint8_t *v) = {
    allocate,      reallocate,    clear_allocate, allocate_in_queue, make_pool,
    use_pool,      use_batch,     set_pool,       make_buffer,       make_sub_buffer,
    access_buffer, access_ranges, command_buffer, task_buffer,       copy,
    copy_2d,       fill,          depend,         make_program,      launch,
    launch_split,  graph,         make_context,   make_team,         list_devices,
    open_channel};

/* Failures of commands that nobody waits for: they are not what is looked for. */
static void on_error(usm_context *ctx, usm_status status, const char *message, void *user)
{
    (void)ctx;
    (void)status;
    (void)message;
    (void)user;
}

static void start(void)
{
    static const usm_native_kernel natives[] = {{"nothing", kernel_nothing, 1, NULL}};
    usm_image                      image     = {USM_IMAGE_NATIVE, natives, sizeof natives};
    usm_program_desc               program   = USM_PROGRAM_DESC_INIT;
    usm_context_desc               desc      = USM_CONTEXT_DESC_INIT;

    program.nimages = 1;
    program.images  = &image;
    desc.on_error   = on_error;
    must(usm_config_set("device_selector", "host:*") == USM_OK &&
             usm_config_set("memory_limit", "host:64M") == USM_OK &&
             usm_config_set("spill", "off") == USM_OK &&
             usm_config_set("spill_wait", "1") == USM_OK && usm_config_set("log", "off") == USM_OK,
         "the settings");
    must(usm_context_create(&desc, &all.ctx) == USM_OK &&
             usm_queue_create(all.ctx, NULL, NULL, &all.queue) == USM_OK &&
             usm_program_create(all.ctx, &program, &all.program) == USM_OK &&
             usm_kernel_create(all.program, "nothing", &all.kernel) == USM_OK &&
             usm_team_create(NULL, &all.team) == USM_OK &&
             usm_team_kernel_create(all.team, &program, "nothing", &all.team_kernel) == USM_OK,
         "the beginning");
    all.a = usm_malloc_host(BLOCK, all.queue);
    all.b = usm_malloc_host(BLOCK, all.queue);
    must(all.a && all.b, "two blocks");
    memset(all.b, 0, BLOCK);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    made m = {NULL, NULL};

    if (!all.ctx)
        start();
    for (size_t i = 0; i < RECORDS_MAX && (i + 1) * RECORD <= size; i++) {
        const uint8_t *r = data + i * RECORD;

        calls[r[0] % (sizeof calls / sizeof calls[0])](&m, r + 1);
    }
    usm_buffer_destroy(m.buffer);
    usm_pool_destroy(m.pool);
    return 0;
}
