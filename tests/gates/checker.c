/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* checker [--planted=free|overrun|shared|unwritten]: host and shared memory, used rightly; or, on
 * request, one wrong use that valgrind and AddressSanitizer must see because libusm tells them
 * which bytes are the program's: a read after usm_free(), a write past the bytes asked for, the
 * same of shared memory, a branch on bytes never written (valgrind alone).  Public functions only:
 * it is also built with AddressSanitizer over a libusm without. */
#include <stdio.h>
#include <string.h>
#include <usm/usm.h>

static int failures;

#define CHECK(cond) ((cond) ? (void)0 : failed(#cond))

static void failed(const char *what)
{
    fprintf(stderr, "checker: %s: %s\n", what, usm_last_error());
    failures++;
}

/* Blocks of all sizes, freed and served again; every byte asked for is written and read. */
static void use_rightly(usm_pool *pool, usm_kind kind)
{
    for (size_t size = 1; size < (size_t)3 << 20; size = size * 5 / 3 + 1) {
        unsigned char *p[4], from[1] = {9};

        for (int i = 0; i < 4; i++) {
            p[i] = pool ? usm_pool_malloc(pool, size) : usm_alloc(size, kind);
            CHECK(p[i] != NULL);
            memset(p[i], i, size);
            CHECK(usm_usable_size(p[i]) >= size);
        }
        CHECK(usm_copy(p[3], p[2], size) == USM_OK && p[3][size - 1] == 2);
        CHECK(usm_copy(p[0] + size - 1, from, 1) == USM_OK && p[0][size - 1] == 9);
        for (int i = 0; i < 4; i++)
            usm_free(p[i]);
    }
}

static void use_pools(void)
{
    static const char *const names[] = {"slab", "arena", "direct", "jemalloc"};

    for (size_t i = 0; i < 4; i++) {
        usm_pool_desc desc = USM_POOL_DESC_INIT;
        usm_pool     *pool = NULL;
        char         *zeros;

        desc.name      = names[i];
        desc.zero_init = true;
        if (usm_pool_create(usm_default_context(), NULL, USM_HOST, &desc, &pool) != USM_OK)
            continue; /* not every build has all */
        use_rightly(pool, USM_HOST);
        for (int round = 0; round < 2; round++) {
            zeros = usm_pool_malloc(pool, 1000);
            CHECK(zeros && zeros[999] == 0);
            memset(zeros, 1, 1000);
            usm_pool_free(pool, zeros);
        }
        CHECK(usm_pool_malloc(pool, 100)); /* goes with the pool */
        CHECK(usm_pool_trim_to(pool, 0) == USM_OK);
        usm_pool_destroy(pool);
    }
}

static unsigned char *volatile kept; /* the compiler is not to see what happens to it */

static void plant(const char *what)
{
    volatile unsigned char *p;

    kept = usm_alloc(100, strcmp(what, "shared") == 0 ? USM_SHARED : USM_HOST);
    p    = kept;
    CHECK(p != NULL);
    if (strcmp(what, "free") == 0) {
        p[0] = 1;
        usm_free(kept);
        failures += *kept == 77;
    } else if (strcmp(what, "overrun") == 0 || strcmp(what, "shared") == 0) {
        p[100] = 1;
    } else if (strcmp(what, "unwritten") == 0) {
        if (p[50] == 77)
            puts("checker: who would have thought");
    } else {
        failed("no such planted defect");
    }
}

int main(int argc, char **argv)
{
    char *p = usm_alloc_shared(1000);

    CHECK(p && usm_set(p, 3, 1000) == USM_OK && p[999] == 3);
    usm_free(p);
    use_rightly(NULL, USM_HOST);
    use_rightly(NULL, USM_SHARED);
    use_pools();
    if (argc > 1 && strncmp(argv[1], "--planted=", 10) == 0)
        plant(argv[1] + 10);
    usm_shutdown();
    printf("checker: %d failures\n", failures);
    return failures ? 1 : 0;
}
