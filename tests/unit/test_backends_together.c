/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* All backends and devices of a machine in one program: copies from each to each, events that order
 * them across backends, memory of one context on another's queue.  Through the public interface, on
 * every device there is, whatever the runtime's selector says. */
#include "plain.h"

#include <stdint.h>
#include <usm/usm.h>

enum { DEVICES = 8, N = 300001, HOPS = 64 };

typedef struct place {
    usm_context    *ctx;
    usm_device     *dev;
    usm_queue      *q;
    unsigned char  *block; /* N bytes of device memory */
    usm_device_info info;
} place;

static place  places[DEVICES];
static size_t nplaces;

static void open_place(usm_device *dev)
{
    place           *p    = &places[nplaces];
    usm_context_desc desc = USM_CONTEXT_DESC_INIT;

    p->info = (usm_device_info)USM_DEVICE_INFO_INIT;
    CHECK_INT(usm_device_get_info(dev, &p->info), USM_OK);
    desc.ndevices = 1;
    desc.devices  = &dev;
    CHECK_INT(usm_context_create(&desc, &p->ctx), USM_OK);
    CHECK_INT(usm_queue_create(p->ctx, dev, NULL, &p->q), USM_OK);
    p->dev   = dev;
    p->block = usm_malloc_device(N, p->q);
    CHECK(p->block != NULL);
    nplaces++;
}

static void open_all(void)
{
    usm_device *list[DEVICES] = {NULL};
    size_t      n             = 0;

    if (nplaces)
        return;
    CHECK_INT(usm_config_set("device_selector", "*:*"), USM_OK);
    CHECK_INT(usm_get_devices(list, DEVICES, &n), USM_OK);
    CHECK(n >= 2);
    for (size_t i = 0; i < n && i < DEVICES; i++)
        open_place(list[i]);
}

static void pattern(unsigned char *p, size_t n, unsigned seed)
{
    for (size_t i = 0; i < n; i++)
        p[i] = (unsigned char)(i * 31 + seed * 17 + (i >> 9));
}

static void several_backends_are_here(void)
{
    size_t others = 0;

    open_all();
    for (size_t i = 1; i < nplaces; i++)
        others += strcmp(places[0].info.backend, places[i].info.backend) != 0;
    CHECK(others > 0);
}

/* Host to a, a to b on either side's queue, b to host: nobody waits but at the end. */
static void hop(const place *a, const place *b, const place *by)
{
    static unsigned char in[N], out[N];
    usm_event           *put = NULL, *move = NULL, *got = NULL;

    pattern(in, N, (unsigned)((a - places) * 16 + (b - places)));
    memset(out, 0, N);
    CHECK_INT(usm_memcpy(a->q, a->block, in, N, 0, NULL, &put), USM_OK);
    CHECK_INT(usm_memcpy(by->q, b->block, a->block, N, 1, &put, &move), USM_OK);
    CHECK_INT(usm_memcpy(b->q, out, b->block, N, 1, &move, &got), USM_OK);
    CHECK_INT(usm_event_wait(got), USM_OK);
    CHECK(!memcmp(in, out, N));
    usm_event_release(put);
    usm_event_release(move);
    usm_event_release(got);
}

static void data_goes_from_each_device_to_each(void)
{
    open_all();
    for (size_t i = 0; i < nplaces; i++)
        for (size_t j = 0; j < nplaces; j++) {
            if (i == j)
                continue;
            hop(&places[i], &places[j], &places[i]);
            hop(&places[i], &places[j], &places[j]);
        }
}

/* A value that grows by one copy at a time, each on another backend's queue. */
static void a_chain_of_events_orders_all_backends(void)
{
    unsigned char *ring[HOPS + 1];
    usm_event     *last = NULL, *next = NULL;
    unsigned char  seed[64], back[64] = {0};

    open_all();
    pattern(seed, sizeof seed, 5);
    for (int i = 0; i <= HOPS; i++) {
        ring[i] = usm_malloc_device(sizeof seed, places[(size_t)i % nplaces].q);
        CHECK(ring[i] != NULL);
    }
    CHECK_INT(usm_memcpy(places[0].q, ring[0], seed, sizeof seed, 0, NULL, &last), USM_OK);
    for (int i = 1; i <= HOPS; i++) {
        CHECK_INT(usm_memcpy(places[(size_t)(i * 7) % nplaces].q, ring[i], ring[i - 1], sizeof seed,
                             1, &last, &next),
                  USM_OK);
        usm_event_release(last);
        last = next;
    }
    CHECK_INT(usm_memcpy(places[HOPS % nplaces].q, back, ring[HOPS], sizeof back, 1, &last, &next),
              USM_OK);
    CHECK_INT(usm_event_wait(next), USM_OK);
    CHECK(!memcmp(seed, back, sizeof seed));
    usm_event_release(last);
    usm_event_release(next);
    for (int i = 0; i <= HOPS; i++)
        CHECK_INT(usm_free_ctx(ring[i], NULL), USM_OK);
}

static void a_user_event_of_one_backend_gates_all_others(void)
{
    static unsigned char out[DEVICES][256];
    usm_event           *gate = NULL, *ends[DEVICES] = {NULL};

    open_all();
    CHECK_INT(usm_event_create(places[0].ctx, &gate), USM_OK);
    for (size_t i = 0; i < nplaces; i++) {
        memset(out[i], 0, sizeof out[i]);
        CHECK_INT(usm_memset(places[i].q, places[i].block, 0x5a, sizeof out[i], 1, &gate, NULL),
                  USM_OK);
        CHECK_INT(
            usm_memcpy(places[i].q, out[i], places[i].block, sizeof out[i], 0, NULL, &ends[i]),
            USM_OK);
    }
    for (size_t i = 0; i < nplaces; i++)
        CHECK_INT(usm_event_query(ends[i]), USM_E_NOT_READY);
    CHECK_INT(usm_event_signal(gate, USM_OK), USM_OK);
    CHECK_INT(usm_event_wait_all(nplaces, ends), USM_OK);
    for (size_t i = 0; i < nplaces; i++) {
        CHECK(out[i][0] == 0x5a && out[i][255] == 0x5a);
        usm_event_release(ends[i]);
    }
    usm_event_release(gate);
}

/* Right data, or a named error with a story: nothing else. */
static void a_fill_of_another_contexts_memory_is_right_or_refused(void)
{
    static unsigned char out[4096];
    size_t               done = 0, refused = 0;

    open_all();
    for (size_t i = 0; i < nplaces; i++)
        for (size_t j = 0; j < nplaces; j++) {
            usm_status st =
                usm_memset(places[i].q, places[j].block, (int)(i + 8 * j), 4096, 0, NULL, NULL);

            if (st == USM_OK) {
                CHECK_INT(usm_queue_wait(places[i].q), USM_OK);
                CHECK_INT(usm_copy(out, places[j].block, sizeof out), USM_OK);
                CHECK(out[0] == i + 8 * j && out[4095] == i + 8 * j);
                done++;
            } else {
                CHECK_INT(st, USM_E_INVALID_POINTER);
                CHECK(i != j && usm_last_error()[0]);
                refused++;
            }
        }
    printf("fills on foreign queues: %zu right, %zu refused by name\n", done, refused);
    CHECK(done >= nplaces);
}

/* Two devices of one platform share a context; each's queue reaches the other's memory. */
static void one_context_spans_the_devices_of_a_platform(void)
{
    usm_device      *both[2] = {NULL, NULL};
    usm_queue       *q[2]    = {NULL, NULL};
    usm_context     *ctx     = NULL;
    usm_context_desc desc    = USM_CONTEXT_DESC_INIT;
    usm_event       *ev      = NULL;
    unsigned char   *a, *b, in[1000], out[1000] = {0};

    open_all();
    for (size_t i = 0; i + 1 < nplaces && !ctx; i++) {
        both[0]       = places[i].dev;
        both[1]       = places[i + 1].dev;
        desc.devices  = both;
        desc.ndevices = 2;
        if (usm_context_create(&desc, &ctx) != USM_OK)
            ctx = NULL;
    }
    if (!ctx) {
        CHECK(!getenv("USM_TEST_RUNTIME") ||
              strncmp(getenv("USM_TEST_RUNTIME"), "ze-soft", 7) != 0);
        printf("no platform here has two devices\n");
        return;
    }
    for (int i = 0; i < 2; i++)
        CHECK_INT(usm_queue_create(ctx, both[i], NULL, &q[i]), USM_OK);
    a = usm_malloc_device(sizeof in, q[0]);
    b = usm_malloc_device(sizeof in, q[1]);
    CHECK(a && b);
    pattern(in, sizeof in, 77);
    CHECK_INT(usm_memcpy(q[0], a, in, sizeof in, 0, NULL, &ev), USM_OK);
    CHECK_INT(usm_memcpy(q[1], b, a, sizeof in, 1, &ev, NULL), USM_OK);
    CHECK_INT(usm_memcpy(q[1], out, b, sizeof in, 0, NULL, NULL), USM_OK);
    CHECK_INT(usm_queue_wait(q[1]), USM_OK);
    CHECK(!memcmp(in, out, sizeof in));
    usm_event_release(ev);
    usm_free(a);
    usm_free(b);
    usm_queue_destroy(q[0]);
    usm_queue_destroy(q[1]);
    usm_context_destroy(ctx);
}

static void all_of_it_is_given_back(void)
{
    for (size_t i = 0; i < nplaces; i++) {
        usm_free(places[i].block);
        usm_queue_destroy(places[i].q);
        usm_context_destroy(places[i].ctx);
    }
    nplaces = 0;
}

static const plain_case cases[] = {CASE(several_backends_are_here),
                                   CASE(data_goes_from_each_device_to_each),
                                   CASE(a_chain_of_events_orders_all_backends),
                                   CASE(a_user_event_of_one_backend_gates_all_others),
                                   CASE(a_fill_of_another_contexts_memory_is_right_or_refused),
                                   CASE(one_context_spans_the_devices_of_a_platform),
                                   CASE(all_of_it_is_given_back),
                                   {NULL, NULL}};

int main(int argc, char **argv)
{
    return plain_main(argc, argv, cases);
}
