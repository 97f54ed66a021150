/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* A program for usm-top to watch.  It holds 20 MiB of host memory, tags one block by a name that a
 * terminal would obey and a page would run, and lets the tag "leak" grow.  It works until its input
 * ends; with "still" it makes no call of libusm after the first, with "deep" it keeps seven commands in flight. */
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <usm/usm.h>

static bool has_input_ended(int ms)
{
    struct pollfd in = {.fd = STDIN_FILENO, .events = POLLIN};
    char          c;

    return poll(&in, 1, ms) > 0 && read(STDIN_FILENO, &c, 1) <= 0;
}

static int work(void)
{
    usm_queue *q = NULL;
    char      *p;

    if (usm_queue_create(NULL, NULL, NULL, &q) != USM_OK || !(p = usm_malloc_shared(1 << 20, q)))
        return 1;
    while (!has_input_ended(10)) {
        if (usm_memset(q, p, 1, 1 << 20, 0, NULL, NULL) != USM_OK || usm_queue_wait(q) != USM_OK ||
            usm_tag_push("leak") != USM_OK || !usm_alloc_host(5000))
            return 1;
        usm_tag_pop();
    }
    return 0;
}

/* Commands that wait for an event, until the input ends. */
static int queue_up(void)
{
    usm_queue *q     = NULL;
    usm_event *event = NULL;
    char      *p;

    if (usm_queue_create(NULL, NULL, NULL, &q) != USM_OK || !(p = usm_malloc_shared(4096, q)) ||
        usm_event_create(NULL, &event) != USM_OK)
        return 1;
    for (int i = 0; i < 7; i++)
        if (usm_memset(q, p, 1, 4096, i == 0, &event, NULL) != USM_OK)
            return 1;
    while (!has_input_ended(10))
        usm_free(usm_alloc_host(8 << 20)); /* a call that is no cache hit */
    return usm_event_signal(event, USM_OK) == USM_OK && usm_queue_wait(q) == USM_OK ? 0 : 1;
}

int main(int argc, char **argv)
{
    void *p = usm_alloc_host(20 << 20);
    int   rc;

    if (!p || usm_tag_push("\033[31m\"<script>") != USM_OK || !usm_alloc_host(4096)) {
        fprintf(stderr, "%s\n", usm_last_error());
        return 1;
    }
    usm_tag_pop();
    puts("ready");
    (void)fflush(stdout);
    if (argc > 1 && strcmp(argv[1], "still") == 0) {
        while (!has_input_ended(1000))
            ;
        return 0;
    }
    rc = argc > 1 && strcmp(argv[1], "deep") == 0 ? queue_up() : work();
    if (rc != 0)
        fprintf(stderr, "%s\n", usm_last_error());
    return rc;
}
