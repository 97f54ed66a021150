/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* A program that has its own ze_context and command list, and takes its memory from libusm:
 * temporaries come out of a pool instead of the driver.
 *
 *     interop_level_zero [ROUNDS]
 *
 * Read main() first, then round_trip(): there events of both sides wait for each other.  Runs on
 * any Level Zero driver, that of tests/ze_soft too. */
#include "loader.h"

#include <level_zero/ze_api.h>
#include <stdbool.h>
#include <usm/usm.h>

enum { SIZE = 64 * 1024 }; /* bytes that travel */

/* ---- the program's Level Zero ---------------------------------------------------------- */

#define FUNCTIONS(X)                                                                               \
    X(zeInit)                                                                                      \
    X(zeDriverGet)                                                                                 \
    X(zeDeviceGet)                                                                                 \
    X(zeDeviceGetProperties)                                                                       \
    X(zeContextCreate)                                                                             \
    X(zeContextDestroy)                                                                            \
    X(zeCommandListCreateImmediate)                                                                \
    X(zeCommandListDestroy)                                                                        \
    X(zeCommandListAppendMemoryCopy)                                                               \
    X(zeEventPoolCreate)                                                                           \
    X(zeEventPoolDestroy)                                                                          \
    X(zeEventCreate)                                                                               \
    X(zeEventDestroy)                                                                              \
    X(zeEventHostReset)                                                                            \
    X(zeEventHostSynchronize)                                                                      \
    X(zeMemAllocHost)                                                                              \
    X(zeMemGetAllocProperties)                                                                     \
    X(zeMemFree)

static struct {
#define MEMBER(name) __typeof__(&name) name;
    FUNCTIONS(MEMBER)
#undef MEMBER
} ze;

typedef struct program {
    ze_driver_handle_t       driver;
    ze_device_handle_t       device;
    ze_context_handle_t      context;
    ze_command_list_handle_t list; /* immediate: what is appended runs */
    ze_event_pool_handle_t   events;
    ze_event_handle_t        moved; /* signalled by a copy of the program's */
} program;

static void load_level_zero(void)
{
    void *library = loader_open("libze_loader.so.1");

#define FIND(name) loader_find(library, #name, &ze.name);
    FUNCTIONS(FIND)
#undef FIND
}

static void ze_ok(ze_result_t code, const char *what)
{
    if (code == ZE_RESULT_SUCCESS)
        return;
    fprintf(stderr, "%s: Level Zero's error 0x%x\n", what, (unsigned)code);
    end(1);
}

static void choose_device(program *p)
{
    uint32_t one = 1;

    if (ze.zeInit(0) != ZE_RESULT_SUCCESS || ze.zeDriverGet(&one, &p->driver) || one == 0) {
        printf("nothing to do: Level Zero's loader is here, a driver for it is not\n");
        end(EXIT_SKIPPED);
    }
    one = 1;
    if (ze.zeDeviceGet(p->driver, &one, &p->device) != ZE_RESULT_SUCCESS || one == 0) {
        printf("nothing to do: Level Zero's driver has no device\n");
        end(EXIT_SKIPPED);
    }
}

static void create_event(program *p)
{
    ze_event_pool_desc_t pool  = {.stype = ZE_STRUCTURE_TYPE_EVENT_POOL_DESC,
                                  .flags = ZE_EVENT_POOL_FLAG_HOST_VISIBLE,
                                  .count = 1};
    ze_event_desc_t      event = {.stype  = ZE_STRUCTURE_TYPE_EVENT_DESC,
                                  .signal = ZE_EVENT_SCOPE_FLAG_HOST,
                                  .wait   = ZE_EVENT_SCOPE_FLAG_HOST};

    ze_ok(ze.zeEventPoolCreate(p->context, &pool, 1, &p->device, &p->events), "zeEventPoolCreate");
    ze_ok(ze.zeEventCreate(p->events, &event, &p->moved), "zeEventCreate");
}

static void start_level_zero(program *p)
{
    ze_context_desc_t       context = {.stype = ZE_STRUCTURE_TYPE_CONTEXT_DESC};
    ze_command_queue_desc_t queue   = {.stype = ZE_STRUCTURE_TYPE_COMMAND_QUEUE_DESC,
                                       .mode  = ZE_COMMAND_QUEUE_MODE_ASYNCHRONOUS};
    ze_device_properties_t  about   = {.stype = ZE_STRUCTURE_TYPE_DEVICE_PROPERTIES};

    load_level_zero();
    choose_device(p);
    ze_ok(ze.zeContextCreate(p->driver, &context, &p->context), "zeContextCreate");
    ze_ok(ze.zeCommandListCreateImmediate(p->context, p->device, &queue, &p->list),
          "zeCommandListCreateImmediate");
    create_event(p);
    ze_ok(ze.zeDeviceGetProperties(p->device, &about), "zeDeviceGetProperties");
    printf("the program's Level Zero device: %s\n", about.name);
}

static void stop_level_zero(program *p)
{
    ze_ok(ze.zeEventDestroy(p->moved), "zeEventDestroy");
    ze_ok(ze.zeEventPoolDestroy(p->events), "zeEventPoolDestroy");
    ze_ok(ze.zeCommandListDestroy(p->list), "zeCommandListDestroy");
    ze_ok(ze.zeContextDestroy(p->context), "zeContextDestroy");
}

/* ---- libusm inside it -------------------------------------------------------------------- */

typedef struct inside {
    usm_context *context;
    usm_queue   *over;  /* over the program's own command list         */
    usm_queue   *other; /* one more: only events order it and the list */
    usm_pool    *device, *host;
} inside;

static void ok(usm_status status)
{
    if (status == USM_OK)
        return;
    fprintf(stderr, "%s: %s\n", usm_status_name(status), usm_last_error());
    end(status == USM_E_NO_BACKEND ? EXIT_SKIPPED : 1);
}

static void enter(inside *u, const program *p)
{
    usm_native_desc      desc   = USM_NATIVE_DESC_INIT;
    usm_level_zero_queue stream = USM_LEVEL_ZERO_QUEUE_INIT;
    void *const          device = p->device;
    void                *again  = NULL;

    desc.backend  = "level_zero";
    desc.handle   = p->context; /* USM_KEEP: it stays the program's */
    desc.ndevices = 1;
    desc.devices  = &device;
    ok(usm_context_from_native(&desc, &u->context));
    stream.command_list = p->list;
    stream.device       = p->device;
    ok(usm_queue_from_native(u->context, &stream, USM_KEEP, &u->over));
    ok(usm_queue_create(u->context, NULL, NULL, &u->other));
    ok(usm_pool_create(u->context, NULL, USM_DEVICE, NULL, &u->device));
    ok(usm_pool_create(u->context, NULL, USM_HOST, NULL, &u->host));
    ok(usm_context_get_native(u->context, "level_zero", &again));
    printf("libusm works inside its ze_context: %s\n", again == p->context ? "yes" : "NO");
}

static void leave(inside *u)
{
    usm_pool_destroy(u->device);
    usm_pool_destroy(u->host);
    usm_queue_destroy(u->other);
    usm_queue_destroy(u->over);
    usm_context_destroy(u->context);
}

/* What the driver itself says of a block's kind, asked in the program's context. */
static bool is_of_driver(const program *p, const void *block, ze_memory_type_t type)
{
    ze_memory_allocation_properties_t about = {.stype =
                                                   ZE_STRUCTURE_TYPE_MEMORY_ALLOCATION_PROPERTIES};

    ze_ok(ze.zeMemGetAllocProperties(p->context, block, &about, NULL), "zeMemGetAllocProperties");
    return about.type == type;
}

/* ---- one round --------------------------------------------------------------------------- */

/* Bytes travel over blocks of the pools, each step done by the other side:
 *
 *     libusm's queue       host -> a                             c -> host
 *                              \  (its event as ze_event)       /  (ze_event as usm_event)
 *     the program's list         a -> b ............ b -> c ---
 *     libusm, over that list            (in its order)
 */
static void round_trip(const program *p, const inside *u, const char *in, char *out)
{
    char             *a = usm_pool_malloc(u->device, SIZE), *b = usm_pool_malloc(u->device, SIZE);
    char             *c      = usm_pool_malloc(u->host, SIZE);
    usm_event        *copied = NULL, *moved = NULL, *back = NULL;
    void             *native = NULL;
    ze_event_handle_t wait;

    if (!a || !b || !c)
        ok(usm_last_status());
    if (!is_of_driver(p, b, ZE_MEMORY_TYPE_DEVICE) || !is_of_driver(p, c, ZE_MEMORY_TYPE_HOST)) {
        fprintf(stderr, "the driver does not know libusm's memory in the program's context\n");
        end(1);
    }
    ok(usm_memcpy(u->other, a, in, SIZE, 0, NULL, &copied));

    /* libusm's event in a call of Level Zero */
    ok(usm_event_get_native(copied, "level_zero", &native));
    wait = native;
    ze_ok(ze.zeCommandListAppendMemoryCopy(p->list, b, a, SIZE, p->moved, 1, &wait),
          "zeCommandListAppendMemoryCopy");

    /* Level Zero's event in commands of libusm */
    ok(usm_event_from_native(u->context, p->moved, USM_KEEP, &moved));
    ok(usm_memcpy(u->over, c, b, SIZE, 1, &moved, &back));
    ok(usm_memcpy(u->other, out, c, SIZE, 1, &back, NULL));
    ok(usm_queue_wait(u->other));

    ze_ok(ze.zeEventHostSynchronize(p->moved, UINT64_MAX), "zeEventHostSynchronize");
    usm_event_release(copied);
    usm_event_release(moved);
    usm_event_release(back);
    ze_ok(ze.zeEventHostReset(p->moved), "zeEventHostReset"); /* after libusm let go of it */
    usm_pool_free(u->device, a);
    usm_pool_free(u->device, b);
    usm_pool_free(u->host, c);
}

/* ---- checks ---------------------------------------------------------------------------------- */

static bool context_still_works(const program *p, const char *in)
{
    ze_host_mem_alloc_desc_t desc  = {.stype = ZE_STRUCTURE_TYPE_HOST_MEM_ALLOC_DESC};
    void                    *block = NULL;
    bool                     right;

    ze_ok(ze.zeMemAllocHost(p->context, &desc, SIZE, 64, &block), "zeMemAllocHost");
    ze_ok(ze.zeCommandListAppendMemoryCopy(p->list, block, in, SIZE, p->moved, 0, NULL),
          "zeCommandListAppendMemoryCopy");
    ze_ok(ze.zeEventHostSynchronize(p->moved, UINT64_MAX), "zeEventHostSynchronize");
    right = memcmp(block, in, SIZE) == 0;
    ze_ok(ze.zeMemFree(p->context, block), "zeMemFree");
    return right;
}

static unsigned long long driver_calls(usm_pool *pool)
{
    usm_pool_stats s = USM_POOL_STATS_INIT;

    ok(usm_pool_get_stats(pool, &s));
    return (unsigned long long)s.driver_allocs;
}

int main(int argc, char **argv)
{
    static char in[SIZE], out[SIZE];
    program     p      = {0};
    inside      u      = {0};
    int         rounds = argc > 1 ? atoi(argv[1]) : 100, bad = 0;
    bool        works;

    start_level_zero(&p);
    enter(&u, &p);

    for (int i = 0; i < rounds; i++) {
        for (int k = 0; k < SIZE; k++)
            in[k] = (char)((i + 1) * (k + 1) * 31);
        round_trip(&p, &u, in, out);
        bad += memcmp(in, out, SIZE) != 0;
    }
    printf(
        "%d rounds over libusm's memory, copies of both sides waiting for each other: %d wrong\n",
        rounds, bad);
    printf("%d blocks of 64 KiB were used; the pools asked the driver %llu times\n", 3 * rounds,
           driver_calls(u.device) + driver_calls(u.host));

    leave(&u);
    works = context_still_works(&p, in);
    printf("libusm is gone; the ze_context works on: %s\n", works ? "yes" : "NO");
    stop_level_zero(&p);
    return bad || !works;
}
