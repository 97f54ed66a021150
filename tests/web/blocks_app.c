/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* A program for usm-web to watch: 10,000 blocks of 8 KiB to 72 KiB of device memory, and some of the
 * host's.  By a line of its input it frees each second of them ("half"), or frees and allocates until
 * the next line ("work"); it answers with the same word when it begins to.  A tag of it has a name that a
 * page would run. */
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <usm/usm.h>

enum { BLOCKS = 10000 };

static void *blocks[BLOCKS];

static size_t size_of(unsigned i)
{
    return ((size_t)8 + i * 7919u % 65u) << 10;
}

/* A function of its own, so that a stack names it. */
static __attribute__((noinline)) void *grow_tree(usm_pool *pool, unsigned i)
{
    void *p = usm_pool_malloc(pool, size_of(i));

    __asm__ volatile("" : : "r"(p) : "memory"); /* no tail call */
    return p;
}

static bool has_line(int ms)
{
    struct pollfd in = {.fd = STDIN_FILENO, .events = POLLIN};

    return poll(&in, 1, ms) > 0;
}

static bool fill(usm_pool *pool)
{
    for (unsigned i = 0; i < BLOCKS; i++)
        if (!blocks[i] && !(blocks[i] = grow_tree(pool, i)))
            return false;
    return true;
}

static void free_half(void)
{
    for (unsigned i = 0; i < BLOCKS; i += 2) {
        usm_free(blocks[i]);
        blocks[i] = NULL;
    }
}

/* Some hundred blocks change places every 10 ms. */
static void work(usm_pool *pool)
{
    unsigned seed = 1;

    while (!has_line(10))
        for (int n = 0; n < 200; n++) {
            unsigned i = (seed = seed * 1664525u + 1013904223u) % BLOCKS;

            usm_free(blocks[i]);
            blocks[i] = (seed >> 20) % 3 ? grow_tree(pool, i) : NULL;
        }
}

int main(void)
{
    usm_pool *pool = usm_pool_default(NULL, NULL, USM_DEVICE);
    char      line[32];

    if (!pool || usm_tag_push("</script><script>document.title='ran'</script>") != USM_OK ||
        !usm_alloc_host(3 << 20) || (usm_tag_pop(), !fill(pool))) {
        fprintf(stderr, "%s\n", usm_last_error());
        return 1;
    }
    (void)snprintf(line, sizeof line, "ready\n");
    do {
        (void)fputs(line, stdout);
        (void)fflush(stdout);
        if (strcmp(line, "half\n") == 0)
            free_half();
        else if (strcmp(line, "work\n") == 0)
            work(pool);
        while (!has_line(20)) /* a call that is no cache hit lets the process be sampled */
            usm_free(usm_pool_malloc(pool, 8u << 20));
    } while (fgets(line, sizeof line, stdin));
    return 0;
}
