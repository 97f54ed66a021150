/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* A program that knows nothing of libusm, for test_usm_exec_malloc.sh: blocks on both sides of 1 MiB,
 * by each function of malloc's family.  Exits with 0, or says what is wrong.  Arguments: limited, keep,
 * child. */
#include <errno.h>
#include <malloc.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define LARGE ((size_t)3 << 20)
#define CHECK(what)                                                                                \
    do {                                                                                           \
        if (!(what)) {                                                                             \
            (void)printf("line %d: %s\n", __LINE__, #what);                                        \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

static void fill(unsigned char *p, size_t size, unsigned seed)
{
    for (size_t i = 0; i < size; i += 4096)
        p[i] = (unsigned char)(seed + i / 4096);
    p[size - 1] = (unsigned char)seed;
}

static int is_filled(const unsigned char *p, size_t size, unsigned seed)
{
    for (size_t i = 0; i < size; i += 4096)
        if (p[i] != (unsigned char)(seed + i / 4096))
            return 0;
    return 1;
}

static int is_zero(const unsigned char *p, size_t size)
{
    return p[0] == 0 && memcmp(p, p + 1, size - 1) == 0;
}

static int is_aligned(const void *p, size_t align)
{
    return p && (uintptr_t)p % align == 0;
}

static void zeroed_again(void)
{
    unsigned char *p;

    for (int i = 0; i < 4; i++) {
        p = calloc(3, LARGE / 3 + 5);
        CHECK(p && is_zero(p, LARGE / 3 * 3 + 15));
        memset(p, 0xff, LARGE);
        free(p);
    }
    p = calloc((size_t)1 << 16,
               (size_t)1 << 20); /* 64 GiB that nobody touches, if the system has them */
    free(p);
}

static void resized(void)
{
    unsigned char *p = malloc(1000);

    CHECK(p);
    memset(p, 7, 1000);
    for (size_t size = 2000; size < 40000000; size *= 3) {
        p = realloc(p, size);
        CHECK(p && p[0] == 7 && p[999] == 7);
        p[size - 1] = 1;
    }
    for (size_t size = 13000000; size > 100; size /= 3) {
        p = realloc(p, size);
        CHECK(p && p[0] == 7 && malloc_usable_size(p) >= size);
    }
    p = reallocarray(p, 1000, 5000);
    CHECK(p && p[0] == 7);
    CHECK(realloc(p, 0) == NULL);
    p = realloc(NULL, LARGE);
    CHECK(p);
    free(p);
}

static void aligned(void)
{
    void *p = NULL;

    for (size_t align = 16; align <= (size_t)8 << 20; align *= 2) {
        CHECK(posix_memalign(&p, align, LARGE) == 0 && is_aligned(p, align));
        free(p);
        p = aligned_alloc(align, LARGE);
        CHECK(is_aligned(p, align));
        free(p);
        p = memalign(align, LARGE);
        CHECK(is_aligned(p, align) && malloc_usable_size(p) >= LARGE);
        p = realloc(p, LARGE * 2);
        CHECK(is_aligned(p, 16));
        free(p);
    }
    CHECK(posix_memalign(&p, 24, LARGE) == EINVAL && posix_memalign(&p, 2, LARGE) == EINVAL);
    p = valloc(LARGE);
    CHECK(is_aligned(p, 4096));
    free(p);
}

static void failing(void)
{
    volatile size_t most = SIZE_MAX;

    errno = 0;
    CHECK(malloc(most / 2 + 1) == NULL && errno == ENOMEM);
    errno = 0;
    CHECK(calloc(most / 2, 4) == NULL && errno == ENOMEM);
    errno = 0;
    CHECK(malloc((size_t)1 << 48) == NULL && errno == ENOMEM);
}

static void forked(void)
{
    unsigned char *mine = malloc(LARGE), *theirs;
    pid_t          pid;
    int            status;

    CHECK(mine);
    fill(mine, LARGE, 3);
    pid = fork();
    if (pid == 0) {
        CHECK(is_filled(mine, LARGE, 3));
        theirs = malloc(LARGE);
        CHECK(theirs);
        fill(theirs, LARGE, 9);
        mine = realloc(mine, 2 * LARGE);
        CHECK(mine && is_filled(mine, LARGE, 3));
        free(mine);
        free(theirs);
        exit(0);
    }
    CHECK(pid > 0 && waitpid(pid, &status, 0) == pid && status == 0);
    CHECK(is_filled(mine, LARGE, 3));
    free(mine);
}

static _Atomic(unsigned char *) passed[4]; /* blocks from one thread to another */

static void *churn(void *arg)
{
    unsigned       seed = (unsigned)(uintptr_t)arg;
    unsigned char *p;

    for (unsigned i = 0; i < 300; i++) {
        size_t size = (size_t)1 << (10 + (seed + i * 7) % 12);

        p = malloc(size);
        CHECK(p);
        fill(p, size, seed);
        CHECK(is_filled(p, size, seed));
        free(atomic_exchange(&passed[i % 4], p));
    }
    return NULL;
}

static void threads(void)
{
    pthread_t list[4];

    for (uintptr_t i = 0; i < 4; i++)
        CHECK(pthread_create(&list[i], NULL, churn, (void *)i) == 0);
    for (int i = 0; i < 10; i++)
        forked();
    for (int i = 0; i < 4; i++)
        CHECK(pthread_join(list[i], NULL) == 0);
}

static void at_exit(void)
{
    free(realloc(malloc(LARGE), LARGE * 3));
}

/* Under a limit of 16 MiB. */
static int limited(void)
{
    unsigned char *list[64] = {NULL};
    int            n        = 0;

    while (n < 64 && (list[n] = malloc(LARGE)))
        n++;
    CHECK(n >= 2 && n <= 5 && errno == ENOMEM);
    CHECK(calloc(1, LARGE) == NULL && errno == ENOMEM);
    CHECK(realloc(list[0], LARGE * 16) == NULL && errno == ENOMEM);
    list[63] = malloc(1000); /* small ones go on */
    CHECK(list[63]);
    fill(list[0], LARGE, 1); /* it is as it was */
    free(list[0]);
    list[0] = malloc(LARGE);
    CHECK(list[0]);
    for (int i = 0; i < 64; i++)
        free(list[i]);
    return 0;
}

__attribute__((noinline)) void *the_app_keeps(void)
{
    return malloc(LARGE);
}

static int keep(void)
{
    for (int i = 0; i < 1000; i++)
        free(malloc(LARGE));
    return the_app_keeps() ? 0 : 1;
}

/* One block here, and several in a child. */
static int child(void)
{
    void *mine = malloc(LARGE);
    pid_t pid  = fork();
    int   status;

    CHECK(mine);
    if (pid == 0) {
        for (int i = 0; i < 10; i++)
            free(malloc(LARGE));
        _exit(0);
    }
    CHECK(pid > 0 && waitpid(pid, &status, 0) == pid && status == 0);
    free(mine);
    return 0;
}

int main(int argc, char **argv)
{
    if (argc > 1)
        return strcmp(argv[1], "limited") == 0 ? limited()
               : strcmp(argv[1], "keep") == 0  ? keep()
                                               : child();
    (void)atexit(at_exit);
    zeroed_again();
    resized();
    aligned();
    failing();
    forked();
    threads();
    return 0;
}
