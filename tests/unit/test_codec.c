/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* What codecs promise (include/usm/codec.h), alone and between blocks and tiers; keys are in
 * test_codec_key.c. */
#include "tier_fixture.h"

#include "device/registry.h"

static const usm_codec_ops *codec_of(const char *name)
{
    const usm_codec_ops *ops = usm__registry_codec(name);

    if (!ops && usm_last_status() == USM_E_NO_BACKEND)
        SKIP("this build has no such codec");
    CHECK(ops != NULL);
    return ops;
}

static void *create_codec(const usm_codec_ops *ops)
{
    usm_codec_params params = {sizeof params, &usm__registry_api, ""};
    void            *codec  = NULL;

    CHECK_INT(ops->create(&params, &codec), USM_OK);
    CHECK(codec != NULL);
    return codec;
}

/* Numbers that rise slowly: half of the bytes are zero. */
static void fill_compressible(void *data, size_t size, uint64_t from)
{
    uint64_t *at = data;

    for (size_t i = 0; i < size / sizeof *at; i++)
        at[i] = from + i / 16;
}

static void fill_random(void *data, size_t size, uint64_t seed)
{
    uint64_t *at = data;

    for (size_t i = 0; i < size / sizeof *at; i++)
        at[i] = fake_random(&seed);
}

/* ---- lz4 ------------------------------------------------------------------------------- */

static void lz4_gives_back_what_it_made_smaller(void)
{
    const usm_codec_ops *ops   = codec_of("lz4");
    void                *codec = create_codec(ops);
    usm_codec_id         id    = {1, 2, 0};
    unsigned char       *in = malloc(BLOCK), *out = malloc(BLOCK), *back = malloc(BLOCK);
    size_t               n = 0;

    CHECK(in && out && back);
    fill_compressible(in, BLOCK, 5);
    CHECK_INT(ops->encode(codec, &id, in, BLOCK, out, BLOCK / 2, &n), USM_OK);
    CHECK(n > 0 && n < BLOCK / 2);
    CHECK_INT(ops->decode(codec, &id, out, n, back, BLOCK), USM_OK);
    CHECK(memcmp(in, back, BLOCK) == 0);
    CHECK_INT(ops->decode(codec, &id, out, n - 1, back, BLOCK), USM_E_CORRUPT);
    CHECK_INT(ops->decode(codec, &id, out, n, back, BLOCK / 2), USM_E_CORRUPT);
    CHECK_INT(ops->encode(codec, &id, in, BLOCK / 2, out, BLOCK / 2, &n), USM_OK);
    CHECK_INT(ops->decode(codec, &id, out, n, back, BLOCK), USM_E_CORRUPT); /* too short */

    fill_random(in, BLOCK, 5);
    n = 77;
    CHECK_INT(ops->encode(codec, &id, in, BLOCK, out, BLOCK - SECTOR, &n), USM_E_SIZE);
    CHECK_INT(n, 77);
    ops->destroy(codec);
    free(in);
    free(out);
    free(back);
}

static void lz4_survives_any_bytes(void)
{
    const usm_codec_ops *ops   = codec_of("lz4");
    void                *codec = create_codec(ops);
    usm_codec_id         id    = {1, 2, 0};
    uint64_t             seed  = 9;
    size_t               n     = 0;
    unsigned char       *in = malloc(BLOCK), *out = malloc(BLOCK), *back = malloc(BLOCK);

    CHECK(in && out && back);
    fill_compressible(in, BLOCK, 5);
    CHECK_INT(ops->encode(codec, &id, in, BLOCK, out, BLOCK, &n), USM_OK);
    for (unsigned i = 0; i < 2000; i++) { /* a sanitizer sees what goes too far */
        unsigned char *copy = malloc(n);
        usm_status     st;

        CHECK(copy != NULL);
        memcpy(copy, out, n);
        for (unsigned k = 0; k <= i % 8; k++)
            copy[fake_random(&seed) % n] = (unsigned char)fake_random(&seed);
        st = ops->decode(codec, &id, copy, n, back, BLOCK);
        CHECK(st == USM_OK || st == USM_E_CORRUPT);
        free(copy);
    }
    ops->destroy(codec);
    free(in);
    free(out);
    free(back);
}

/* ---- aes_gcm ----------------------------------------------------------------------------- */

enum { SMALL = 512, EXTRA = 28 };

typedef struct sealed {
    const usm_codec_ops *ops;
    void                *codec;
    usm_codec_id         id;
    unsigned char        plain[SMALL], bytes[SMALL + 64], back[SMALL];
    size_t               n;
} sealed;

static void seal(sealed *s)
{
    memset(s, 0, sizeof *s);
    s->ops   = codec_of("aes_gcm");
    s->codec = create_codec(s->ops);
    s->id    = (usm_codec_id){11, 22, 1};
    fill_random(s->plain, SMALL, 4);
    CHECK_INT(s->ops->bound(s->codec, SMALL), SMALL + EXTRA);
    CHECK_INT(s->ops->encode(s->codec, &s->id, s->plain, SMALL, s->bytes, sizeof s->bytes, &s->n),
              USM_OK);
    CHECK_INT(s->n, SMALL + EXTRA);
}

static usm_status unseal(sealed *s, void *codec, const usm_codec_id *id)
{
    memset(s->back, 0x55, SMALL);
    return s->ops->decode(codec, id, s->bytes, s->n, s->back, SMALL);
}

static bool is_zero(const unsigned char *bytes, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (bytes[i] != 0)
            return false;
    return true;
}

static void aes_gives_back_what_it_hid(void)
{
    sealed         s;
    unsigned char *large, *out, *back;
    size_t         n = 0;

    seal(&s);
    CHECK_INT(unseal(&s, s.codec, &s.id), USM_OK);
    CHECK(memcmp(s.back, s.plain, SMALL) == 0);
    CHECK(memmem(s.bytes, s.n, s.plain, 16) == NULL);
    CHECK_INT(s.ops->encode(s.codec, &s.id, s.plain, SMALL, s.bytes, SMALL + EXTRA - 1, &s.n),
              USM_E_SIZE);

    large = malloc(BLOCK);
    out   = malloc(BLOCK + EXTRA);
    back  = malloc(BLOCK);
    CHECK(large && out && back);
    fill_compressible(large, BLOCK, 1);
    CHECK_INT(s.ops->encode(s.codec, &s.id, large, BLOCK, out, BLOCK + EXTRA, &n), USM_OK);
    CHECK_INT(s.ops->decode(s.codec, &s.id, out, n, back, BLOCK), USM_OK);
    CHECK(memcmp(large, back, BLOCK) == 0);
    s.ops->destroy(s.codec);
    free(large);
    free(out);
    free(back);
}

/* AES-GCM breaks when a nonce comes twice under a key, even for the same id. */
static void aes_uses_no_nonce_twice(void)
{
    enum { N = 2000 };
    sealed         s;
    unsigned char *nonces = malloc(N * 12);

    CHECK(nonces != NULL);
    seal(&s);
    for (size_t i = 0; i < N; i++) {
        CHECK_INT(s.ops->encode(s.codec, &s.id, s.plain, SMALL, s.bytes, sizeof s.bytes, &s.n),
                  USM_OK);
        memcpy(nonces + 12 * i, s.bytes + SMALL, 12);
    }
    for (size_t i = 0; i < N; i++)
        for (size_t k = 0; k < i; k++)
            CHECK(memcmp(nonces + 12 * i, nonces + 12 * k, 12) != 0);
    s.ops->destroy(s.codec);
    free(nonces);
}

static void aes_notices_every_change(void)
{
    sealed   s;
    unsigned n = 0;

    seal(&s);
    for (size_t bit = 0; bit < s.n * 8; bit++) {
        s.bytes[bit / 8] ^= (unsigned char)(1u << bit % 8);
        CHECK_INT(unseal(&s, s.codec, &s.id), USM_E_CORRUPT);
        CHECK(is_zero(s.back, SMALL)); /* nothing that was not authenticated */
        s.bytes[bit / 8] ^= (unsigned char)(1u << bit % 8);
        n++;
    }
    printf("# %u cases, nothing lost\n", n);
    s.n--;
    CHECK_INT(unseal(&s, s.codec, &s.id), USM_E_CORRUPT);
    s.n++;
    CHECK_INT(unseal(&s, s.codec, &s.id), USM_OK);
    s.ops->destroy(s.codec);
}

static void aes_knows_whose_bytes_they_are(void)
{
    static const usm_codec_id others[] = {{12, 22, 1}, {11, 23, 1}, {11, 22, 0}, {11, 21, 1}};
    sealed                    s;

    seal(&s);
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
        CHECK_INT(unseal(&s, s.codec, &others[i]), USM_E_CORRUPT);
    CHECK_INT(unseal(&s, s.codec, &s.id), USM_OK);
    s.ops->destroy(s.codec);
}

static void aes_opens_nothing_with_another_key(void)
{
    sealed s;
    void  *other;

    seal(&s);
    other = create_codec(s.ops); /* a random one, or mixed with other random bytes */
    CHECK_INT(unseal(&s, other, &s.id), USM_E_CORRUPT);
    CHECK_IN("it is not what was encrypted with this key", usm_last_error());
    s.ops->destroy(other);
    CHECK_INT(unseal(&s, s.codec, &s.id), USM_OK);
    s.ops->destroy(s.codec);
}

typedef struct worker {
    const usm_codec_ops *ops;
    void                *codec;
    uint64_t             block;
} worker;

static void *work(void *arg)
{
    const worker *w = arg;
    unsigned char clear[SMALL], bytes[SMALL + EXTRA], back[SMALL];

    for (uint64_t i = 0; i < 300; i++) {
        usm_codec_id id = {w->block, i, 0};
        size_t       n  = 0;

        fill_random(clear, SMALL, w->block + i);
        CHECK_INT(w->ops->encode(w->codec, &id, clear, SMALL, bytes, sizeof bytes, &n), USM_OK);
        CHECK_INT(w->ops->decode(w->codec, &id, bytes, n, back, SMALL), USM_OK);
        CHECK(memcmp(clear, back, SMALL) == 0);
    }
    return NULL;
}

static void aes_serves_threads(void)
{
    sealed    s;
    pthread_t threads[4];
    worker    w[4];

    seal(&s);
    for (unsigned i = 0; i < 4; i++) {
        w[i] = (worker){s.ops, s.codec, i};
        CHECK_INT(pthread_create(&threads[i], NULL, work, &w[i]), 0);
    }
    for (unsigned i = 0; i < 4; i++)
        CHECK_INT(pthread_join(threads[i], NULL), 0);
    s.ops->destroy(s.codec);
}

/* ---- between blocks and tiers -------------------------------------------------------------- */

static void use_codec(const char *spec)
{
    fake_reset();
    if (strstr(spec, "lz4") || strcmp(spec, "auto") == 0)
        (void)codec_of("lz4");
    if (strstr(spec, "aes_gcm"))
        (void)codec_of("aes_gcm");
    CHECK_INT(usm__settings_set("spill_codec", spec), USM_OK);
}

static void end_codec(void)
{
    stop();
    CHECK_INT(usm__settings_set("spill_codec", NULL), USM_OK);
}

static bool is_stored_in_clear(const block *b)
{
    for (uint64_t i = 0, slot; (slot = fake_nth(FAKE_A, i)) != UINT64_MAX; i++)
        if (memmem(fake_block(FAKE_A, slot), BLOCK, b->data + SECTOR + 64, 64))
            return true;
    return false;
}

/* Compressible and random blocks, many at a time. */
static void round_trip(const char *spec, bool by_thread)
{
    enum { N = 40 };
    block          b[N];
    unsigned char *wanted = malloc((size_t)N * BLOCK);
    bool           hides  = strstr(spec, "aes_gcm") != NULL;

    CHECK(wanted != NULL);
    use_codec(spec);
    fake_plan_of(FAKE_A)->thread  = by_thread;
    fake_plan_of(FAKE_A)->shuffle = true;
    start("fake_a");
    CHECK(usm__tiers_needs_whole(tiers));
    for (unsigned i = 0; i < N; i++) {
        block_init(&b[i], 300 + i);
        if (i % 2)
            fill_compressible(b[i].data, BLOCK, 1000 * i);
        else
            fill_random(b[i].data, BLOCK, i + 1);
        memcpy(wanted + (size_t)i * BLOCK, b[i].data, BLOCK);
    }
    for (unsigned round = 0; round < 2; round++) {
        for (unsigned i = 0; i < N; i++)
            begin(&b[i], true, 0, SECTORS);
        for (unsigned i = 0; i < N; i++)
            CHECK_INT(end(&b[i]), USM_OK);
        for (unsigned i = 0; i < N; i++) {
            CHECK(!hides || !is_stored_in_clear(&b[i]));
            memset(b[i].data, 0, BLOCK);
            begin(&b[i], false, 0, SECTORS);
        }
        for (unsigned i = 0; i < N; i++) {
            CHECK_INT(end(&b[i]), USM_OK);
            CHECK(memcmp(b[i].data, wanted + (size_t)i * BLOCK, BLOCK) == 0);
        }
    }
    CHECK_INT(tiers->codecs.made > 0, 1);
    CHECK(tiers->codecs.made <= tiers->codecs.nmax);
    CHECK_INT(usm__tiers_memory(tiers),
              tiers->codecs.nmax * (BLOCK + 4096u) * (tiers->codecs.n > 1 ? 2 : 1));
    for (unsigned i = 0; i < N; i++)
        block_fini(&b[i]);
    end_codec();
    free(wanted);
}

static void encoded_copies_are_known_to_have_what_was_stored(void)
{
    block b;

    use_codec("lz4,aes_gcm");
    start("fake_a");
    block_init(&b, 1);
    CHECK_INT(write_new(&b, 1), USM_OK);
    CHECK(b.copy->codecs != 0);
    CHECK(is_known_to_the_bit(&b));
    block_fini(&b);
    end_codec();
}

static void blocks_come_back_through_every_codec(void)
{
    static const char *const specs[] = {"lz4", "aes_gcm", "lz4,aes_gcm", "auto"};

    for (unsigned i = 0; i < 8; i++)
        round_trip(specs[i / 2], i % 2 != 0);
}

static void what_shrinks_is_stored_smaller(void)
{
    block          b;
    usm_tier_stats s;

    use_codec("lz4,aes_gcm");
    start("fake_a");
    block_init(&b, 1);
    fill_compressible(b.data, BLOCK, 1);
    CHECK_INT(write_part(&b, 0, SECTORS), USM_OK);
    s = stats_of(0);
    CHECK_INT(s.encoded_in, BLOCK);
    CHECK(s.encoded_out > 0 && s.encoded_out < BLOCK / 2);
    CHECK(s.written < BLOCK / 2 + SECTOR && s.written % SECTOR == 0);
    CHECK_INT(b.copy->codecs, 3);
    fill_random(b.data, BLOCK, 1);
    CHECK_INT(write_part(&b, 0, SECTORS), USM_OK);
    CHECK_INT(b.copy->codecs, 2);
    CHECK_INT(b.copy->encoded, BLOCK + EXTRA); /* the rest is in memory */
    block_fini(&b);
    end_codec();

    use_codec("lz4");
    start("fake_a");
    block_init(&b, 1);
    fill_random(b.data, BLOCK, 1);
    CHECK_INT(write_part(&b, 0, SECTORS), USM_OK);
    CHECK_INT(b.copy->codecs, 0); /* as it is */
    CHECK_INT(stats_of(0).written, BLOCK);
    CHECK_INT(stats_of(0).encoded_in, 0);
    CHECK(memcmp(fake_block(FAKE_A, b.copy->slot), b.data, BLOCK) == 0);
    block_fini(&b);
    end_codec();
}

static void wrong_bytes_are_noticed_before_decoding(void)
{
    enum { CASES = 1000 };
    block    b;
    uint64_t seed = 2, detected = 0;

    use_codec("lz4,aes_gcm");
    start("fake_a");
    block_init(&b, 8);
    for (unsigned i = 0; i < CASES; i++) {
        unsigned char *stored;

        if (i % 2)
            fill_compressible(b.data, BLOCK, i);
        else
            fill_random(b.data, BLOCK, i);
        CHECK_INT(write_part(&b, 0, SECTORS), USM_OK);
        stored = fake_block(FAKE_A, b.copy->slot);
        stored[fake_random(&seed) % (b.copy->encoded < BLOCK ? b.copy->encoded : BLOCK)] ^= 4;
        detected += read_part(&b, 0, SECTORS) == USM_E_CORRUPT;
        CHECK_IN("returned other bytes than were stored: slot ", b.reason);
    }
    printf("# %d corruptions: %llu detected\n", (int)CASES, (unsigned long long)detected);
    CHECK_INT(detected, CASES);
    block_fini(&b);
    end_codec();
}

/* A failing tier, few bounces: everything is answered, and what was acknowledged comes back. */
static void encoded_blocks_move_as_others_do(void)
{
    enum { N = 30 };
    block    b[N];
    bool     stored[N] = {false};
    uint64_t reads = 0, seed = 6;

    use_codec("lz4,aes_gcm");
    for (unsigned k = FAKE_A; k <= FAKE_B; k++) {
        fake_plan *p = fake_plan_of((fake_name)k);

        p->thread    = true;
        p->shuffle   = true;
        p->seed      = k;
        p->capacity  = 20;
        p->store_eio = 200;
        p->fetch_eio = 100;
    }
    start("fake_a;fake_b");
    tiers->codecs.nmax = 2; /* many wait for one */
    for (unsigned i = 0; i < N; i++)
        block_init(&b[i], i);
    for (unsigned round = 0; round < 30; round++) {
        for (unsigned i = 0; i < N; i++) {
            if (fake_random(&seed) % 2)
                fill_compressible(b[i].data, BLOCK, round * 64 + i);
            else
                fill_random(b[i].data, BLOCK, round * 64 + i);
            memcpy(b[i].version, b[i].data + SECTOR, sizeof b[i].version); /* its mark */
            begin(&b[i], true, 0, SECTORS);
        }
        for (unsigned i = 0; i < N; i++)
            stored[i] = end(&b[i]) == USM_OK;
        for (unsigned i = 0; i < N; i++)
            if (stored[i])
                begin(&b[i], false, 0, SECTORS);
        for (unsigned i = 0; i < N; i++) {
            if (!stored[i])
                continue;
            CHECK(end(&b[i]) == USM_OK || atomic_load(&b[i].status) == USM_E_IO);
            if (atomic_load(&b[i].status) == USM_OK)
                CHECK(memcmp(b[i].version, b[i].data + SECTOR, sizeof b[i].version) == 0);
            reads++;
        }
    }
    printf("# %llu cases, nothing lost\n", (unsigned long long)reads);
    CHECK(reads > 300);
    for (unsigned i = 0; i < N; i++)
        block_fini(&b[i]);
    end_codec();
}

/* ---- choice --------------------------------------------------------------------------------- */

static void a_codec_that_cannot_be_had_stops_everything(void)
{
    usm__tiers_params params = {.block_size = BLOCK, .sector_size = SECTOR, .spec = "fake_a"};

    fake_reset();
    CHECK_INT(usm__settings_set("spill_codec", "there_is_none"), USM_OK);
    CHECK_INT(usm__tiers_create(&params, &tiers), USM_E_NO_BACKEND);
    CHECK_IN("there_is_none", usm_last_error());
    CHECK_INT(usm__settings_set("spill_codec", NULL), USM_OK);
    CHECK_INT(fake_counts_of(FAKE_A).opened, 0);
}

static void encryption_comes_last(void)
{
    usm__tiers_params params = {.block_size = BLOCK, .sector_size = SECTOR, .spec = "fake_a"};

    use_codec("aes_gcm,lz4");
    CHECK_INT(usm__tiers_create(&params, &tiers), USM_E_SETTING);
    CHECK_IN("lz4 has no effect after aes_gcm", usm_last_error());
    CHECK_INT(usm__settings_set("spill_codec", NULL), USM_OK);
}

static void codec_specs_are_checked(void)
{
    static const char *const bad[] = {"",        "LZ4",   "lz4,",  "lz4,lz4", "lz4,aes_gcm,lz4",
                                      "off,lz4", "lz4:9", "../lz4"};

    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        bool is_fine = strcmp(bad[i], "lz4,") == 0; /* as in other lists */

        CHECK_INT(usm__settings_set("spill_codec", bad[i]), is_fine ? USM_OK : USM_E_SETTING);
    }
    CHECK_INT(usm__settings_set("spill_codec", "off"), USM_OK);
    CHECK_INT(usm__settings_set("spill_codec", "lz4, aes_gcm"), USM_OK);
    CHECK_INT(usm__settings_set("spill_codec", NULL), USM_OK);
    CHECK_STR(usm__setting_text("spill_codec"), "off");
}

static void a_codec_pays_where_the_tier_is_slower(void)
{
    /* 400 MB/s, to a half */
    usm__codec_speed s = {.in = 400, .out = 200, .ns = 1000, .tier_bytes = 100, .tier_ns = 1000};

    CHECK(usm__codec_pays(&s)); /* 100 MB/s: 2.5 + 5 ns a byte against 10 */
    s.tier_bytes = 2000;
    CHECK(!usm__codec_pays(&s)); /* 2 GB/s: 2.5 + 0.25 against 0.5 */
    s.tier_bytes = 100;
    s.out        = 400; /* to nothing less */
    CHECK(!usm__codec_pays(&s));
    s = (usm__codec_speed){0};
    CHECK(!usm__codec_pays(&s)); /* nothing is known */
}

static void automatic_compression_samples_and_gives_up(void)
{
    enum { N = 400 };
    block    b;
    unsigned encoded = 0;

    use_codec("auto");
    start("fake_a");
    block_init(&b, 1);
    fill_compressible(b.data, BLOCK, 1);
    for (unsigned i = 0; i < N; i++) {
        /* As if the codec were very slow: whatever was measured does not matter. */
        tiers->codecs.sample.ns += UINT64_C(1) << 40;
        CHECK_INT(write_part(&b, 0, SECTORS), USM_OK);
        encoded += b.copy->codecs != 0;
    }
    CHECK(encoded >= 4 && encoded < N / 16);
    for (unsigned i = 0; i < 64; i++) { /* as if it were fast */
        tiers->codecs.sample = (usm__codec_speed){.in = 1u << 30, .out = 1, .ns = 1};
        CHECK_INT(write_part(&b, 0, SECTORS), USM_OK);
        CHECK_INT(b.copy->codecs, 1);
    }
    block_fini(&b);
    end_codec();
}

static const plain_case cases[] = {
    CASE(lz4_gives_back_what_it_made_smaller),
    CASE(lz4_survives_any_bytes),
    CASE(aes_gives_back_what_it_hid),
    CASE(aes_uses_no_nonce_twice),
    CASE(aes_notices_every_change),
    CASE(aes_knows_whose_bytes_they_are),
    CASE(aes_opens_nothing_with_another_key),
    CASE(aes_serves_threads),
    CASE(encoded_copies_are_known_to_have_what_was_stored),
    CASE(blocks_come_back_through_every_codec),
    CASE(what_shrinks_is_stored_smaller),
    CASE(wrong_bytes_are_noticed_before_decoding),
    CASE(encoded_blocks_move_as_others_do),
    CASE(a_codec_that_cannot_be_had_stops_everything),
    CASE(encryption_comes_last),
    CASE(codec_specs_are_checked),
    CASE(a_codec_pays_where_the_tier_is_slower),
    CASE(automatic_compression_samples_and_gives_up),
    {NULL, NULL},
};

int main(int argc, char **argv)
{
    return plain_main(argc, argv, cases);
}
