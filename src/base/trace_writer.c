/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The consumer of the event rings: the trace file, and the thread that writes it.
 *
 * The thread sleeps until a ring is half full, at most a fifth of a second.  In each round it reads
 * both clocks.  It converts ticks to nanoseconds by the line through the readings of this and the
 * previous round, and writes chunks, each by a single write(): after SIGKILL a file is readable up
 * to its last chunk.  After an error (such as a full disk) one warning is logged, the file is
 * truncated after its last whole chunk, and recording ends.
 *
 * fork(): the parent keeps its file.  If the name has %p, the child gets a file of its own, which
 * is opened at its first event with all definitions so far; otherwise it records nothing.
 *
 * Definitions (pools, tags, stacks) are passed in as chunks and stored in a chain for as long as
 * the process lives; their number is bounded. */
#include "base/fork.h"
#include "base/inline/atomic.h"
#include "base/log.h"
#include "base/mutex.h"
#include "base/os.h"
#include "base/trace.h"
#include "base/trace_ring.h"

#include <errno.h>
#include <linux/futex.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define PERIOD_NS   200000000
#define BATCH       2048 /* events in a chunk */
#define BLOCK_BYTES ((size_t)64 << 10)

/* Definitions: a chain of blocks that only grows. */
typedef struct block {
    struct block *next;
    size_t        used;
    unsigned char bytes[];
} block;

typedef struct chunk {
    usm__trace_chunk  head;
    usm__trace_packed events[BATCH];
} chunk;

static struct {
    _Atomic(uint32_t) bell; /* 1: the writer must wake up; a futex */
    usm__mutex        lock;
    /* guarded by lock */
    int      fd;           /* -1: none                                             */
    int      pid;          /* the process that writes it                           */
    bool     wanted;       /* to be opened at the first event, in a child          */
    int      error;        /* to be logged when the lock has been released         */
    uint64_t size;         /* bytes of whole chunks                                */
    uint64_t start_ns, ns; /* of CLOCK_MONOTONIC: the file's start, the last round */
    uint64_t ticks;        /* when `ns` was read                                   */
    double   ns_per_tick;
    block   *block; /* definitions written so far: up to `at` of `block` */
    size_t   at;
    uint64_t maps_size; /* size of the maps written last */
    uint64_t defined,
        mapped; /* bytes of definitions written; as many when maps were written last */
    char   path[4096];
    char   why[160]; /* the error in opening it; read by the thread that tried */
    chunk *out;      /* under construction; made when the first file is opened */
    struct {
        usm__mutex lock; /* a leaf */
        block     *first, *last;
    } definitions; /* guarded by their own lock */
} file = {.lock        = USM__MUTEX_INIT(USM__RANK_TRACE_FILE, "trace file"),
          .fd          = -1,
          .definitions = {.lock = USM__MUTEX_INIT(USM__RANK_TRACE, "trace definitions")}};

/* --- definitions ----------------------------------------------------------- */

/* pre: file.definitions.lock is held. */
static unsigned char *room_for(size_t size)
{
    block *b = file.definitions.last;

    if (b == NULL || BLOCK_BYTES - sizeof(*b) - b->used < size) {
        b = usm__os_map_for_life(BLOCK_BYTES);
        if (b == NULL)
            return NULL;
        if (file.definitions.last != NULL)
            file.definitions.last->next = b;
        else
            file.definitions.first = b;
        file.definitions.last = b;
    }
    b->used += size;
    return b->bytes + b->used - size;
}

bool usm__trace_define(usm__trace_kind kind, const void *payload, uint32_t size)
{
    usm__trace_chunk head = {(uint32_t)kind, 0, size, usm__trace_check(payload, size)};
    unsigned char   *at;

    usm__mutex_lock(&file.definitions.lock);
    at = room_for(sizeof(head) + size);
    if (at != NULL) {
        memcpy(at, &head, sizeof(head));
        memcpy(at + sizeof(head), payload, size);
    }
    usm__mutex_unlock(&file.definitions.lock);
    return at != NULL;
}

/* --- the file; pre for all functions: its lock is held ----------------------- */

static void stop(int error)
{
    usm_store_release(&usm__trace_on, 0);
    file.error = error;
    if (file.size > 0)
        (void)!ftruncate(file.fd, (off_t)file.size); /* keeps the whole chunks */
    (void)usm__os_close(file.fd);
    file.fd = -1;
}

static void append(const void *data, size_t size)
{
    if (file.fd < 0 || size == 0)
        return;
    if (usm__os_write(file.fd, data, size) == 0)
        file.size += size;
    else
        stop(errno);
}

/* pre: the payload is behind file.out->head. */
static void append_chunk(usm__trace_kind kind, uint32_t thread, size_t size)
{
    file.out->head = (usm__trace_chunk){(uint32_t)kind, thread, (uint32_t)size,
                                        usm__trace_check(file.out->events, size)};
    append(file.out, sizeof(file.out->head) + size);
}

/* Writes the definitions made since the last call.  Blocks only grow, so the part that was seen
 * under the lock is complete. */
static void append_definitions(void)
{
    size_t used;

    for (;;) {
        block *b, *next;

        usm__mutex_lock(&file.definitions.lock);
        b    = file.block != NULL ? file.block : file.definitions.first;
        used = b != NULL ? b->used : 0;
        next = b != NULL ? b->next : NULL;
        usm__mutex_unlock(&file.definitions.lock);
        if (b == NULL)
            return;
        append(b->bytes + file.at, used - file.at);
        file.defined += used - file.at;
        file.block = b;
        file.at    = used;
        if (next == NULL)
            return;
        file.block = next;
        file.at    = 0;
    }
}

/* Writes the lines of /proc/self/maps for code, if modules were loaded since the last time. */
static void append_maps(void)
{
    size_t           size = 0, n = 0;
    char            *text;
    usm__trace_chunk head;

    if (usm__traced.config.stack_bytes == 0)
        return;
    text = usm__os_read_file("/proc/self/maps", SIZE_MAX, &size);
    if (text == NULL)
        return;
    for (char *line = text; *line != '\0';) {
        size_t length = strcspn(line, "\n") + 1;
        char  *mode   = memchr(line, ' ', length);

        if (line[length - 1] == '\0')
            length--;
        if (mode != NULL && mode[3] == 'x') {
            memmove(text + n, line, length);
            n += length;
        }
        line += length;
    }
    head = (usm__trace_chunk){USM__CHUNK_MAP, 0, (uint32_t)n, usm__trace_check(text, n)};
    if (n != file.maps_size && n <= USM__TRACE_CHUNK_MAX) {
        append(&head, sizeof(head));
        append(text, n);
        file.maps_size = n;
    }
    usm__heap_free(text);
}

/* After new stacks: readers of a process that runs, or was killed, find their names. */
static void append_maps_of_new(void)
{
    if (file.fd < 0 || file.defined == file.mapped)
        return;
    file.mapped = file.defined;
    append_maps();
}

/* Reads both clocks at the same moment: the closest of three readings. */
static void read_clocks(uint64_t *ns, uint64_t *ticks)
{
    uint64_t best = UINT64_MAX;

    for (int i = 0; i < 3; i++) {
        uint64_t before = usm__trace_ticks();
        uint64_t now    = usm__os_now_ns();
        uint64_t after  = usm__trace_ticks();

        if (after - before >= best)
            continue;
        best   = after - before;
        *ns    = now;
        *ticks = usm__traced.config.use_tsc ? before + best / 2 : now;
    }
}

static bool is_replaceable(int fd)
{
    char    magic[8];
    ssize_t n = read(fd, magic, sizeof(magic));

    return n == 0 ||
           (n == (ssize_t)sizeof(magic) && memcmp(magic, USM__TRACE_MAGIC, sizeof(magic)) == 0);
}

/* Returns NULL, or why there is no file. */
static const char *open_file(usm__trace_header *h)
{
    struct timespec real;

    if (!usm__trace_expand(usm__traced.config.name, file.path, sizeof(file.path)))
        return "the name is too long";
    if (file.out == NULL)
        file.out = usm__os_map_for_life(sizeof(*file.out));
    if (file.out == NULL)
        return "no memory can be had for its chunks";
    file.fd = usm__os_open_alone(file.path);
    if (file.fd < 0 && errno == EWOULDBLOCK)
        return "another process is recording into it; put %p into the name";
    if (file.fd < 0 && errno == EINVAL)
        return "it is not a regular file";
    if (file.fd < 0)
        return strerror_r(errno, file.why, sizeof(file.why));
    if (!is_replaceable(file.fd)) {
        (void)usm__os_close(file.fd);
        file.fd = -1;
        return "there is a file of that name which is not a trace; it is left alone";
    }
    (void)!ftruncate(file.fd, 0);
    (void)lseek(file.fd, 0, SEEK_SET);
    (void)clock_gettime(CLOCK_REALTIME, &real);
    h->start_ns      = file.start_ns;
    h->start_real_ns = (uint64_t)real.tv_sec * 1000000000u + (uint64_t)real.tv_nsec -
                       (usm__os_now_ns() - file.start_ns);
    file.pid       = (int)getpid();
    file.size      = 0;
    file.block     = NULL;
    file.at        = 0;
    file.maps_size = 0;
    file.defined = file.mapped = 0;
    append(h, sizeof(*h));
    return file.fd >= 0 ? NULL : strerror_r(file.error, file.why, sizeof(file.why));
}

/* --- a round ----------------------------------------------------------------- */

static uint64_t ns_of(uint64_t ticks)
{
    double ns = (double)(int64_t)(ticks - file.ticks) * file.ns_per_tick +
                (double)(int64_t)(file.ns - file.start_ns);

    return ns > 0 ? (uint64_t)ns : 0;
}

static void copy_events(usm__ring *ring, uint64_t from, size_t n)
{
    uint64_t mask = usm__traced.config.capacity - 1;

    for (size_t i = 0; i < n; i++) {
        usm__trace_packed *e = &file.out->events[i];

        *e      = ring->events[(from + i) & mask];
        e->time = ns_of(e->time);
        if (e->time < ring->last_ns)
            e->time = ring->last_ns;
        ring->last_ns = e->time;
    }
}

static void append_lost(uint32_t thread, uint64_t n)
{
    memcpy(file.out->events, &n, sizeof(n));
    append_chunk(USM__CHUNK_LOST, thread, sizeof(n));
}

static void drain_ring(usm__ring *ring)
{
    bool     ended = usm_load_acquire(&ring->ended); /* before head: no event follows then */
    uint64_t head  = usm_load_acquire(&ring->head);
    uint64_t tail  = usm_load_relaxed(&ring->tail);
    uint64_t lost  = usm_load_acquire(&ring->lost); /* this also makes ring->thread visible */

    if (head != tail)
        append_definitions();
    while (tail != head) {
        size_t n = head - tail < BATCH ? (size_t)(head - tail) : BATCH;

        copy_events(ring, tail, n);
        tail += n;
        usm_store_release(&ring->tail, tail); /* they are copied: the producer may reuse them */
        append_chunk(USM__CHUNK_EVENTS, ring->thread, n * sizeof(usm__trace_packed));
    }
    if (lost != ring->lost_written)
        append_lost(ring->thread, lost - ring->lost_written);
    ring->lost_written = lost;
    if (ended) {
        usm_store_relaxed(&ring->ended, false);
        usm__ring_retire(ring);
    }
}

static void drain(void)
{
    uint64_t ns = 0, ticks = 0, ringless;

    if (file.fd < 0)
        return;
    read_clocks(&ns, &ticks);
    if (ticks != file.ticks && ns > file.ns)
        file.ns_per_tick = (double)(ns - file.ns) / (double)(ticks - file.ticks);
    for (usm__ring *ring = usm_load_acquire(&usm__traced.rings); ring != NULL;
         ring            = usm_load_relaxed(&ring->next))
        drain_ring(ring);
    file.ns    = ns;
    file.ticks = ticks;
    ringless   = atomic_exchange_explicit(&usm__traced.ringless, 0, memory_order_relaxed);
    if (ringless != 0)
        append_lost(0, ringless);
}

/* Releases the lock and logs an error that occurred meanwhile. */
static void unlock_and_notify(void)
{
    int  error = file.error;
    char why[160];

    file.error = 0;
    usm__mutex_unlock(&file.lock);
    if (error != 0)
        usm__warn("the trace %s ends here: %s", file.path, strerror_r(error, why, sizeof(why)));
}

/* --- the thread ---------------------------------------------------------------- */

static void wait_for_bell(void)
{
    const struct timespec period = {0, PERIOD_NS};

    (void)syscall(SYS_futex, &file.bell, FUTEX_WAIT_PRIVATE, 0, &period, NULL, 0);
    usm_store_relaxed(&file.bell, 0);
}

static void write_rounds(void *unused)
{
    bool goes_on = true;

    (void)unused;
    while (goes_on) {
        wait_for_bell();
        usm__mutex_lock(&file.lock);
        drain();
        append_maps_of_new();
        goes_on = file.fd >= 0;
        unlock_and_notify();
    }
}

/* pre: the file's lock is held.  Returns what went wrong, or NULL. */
static const char *begin(void)
{
    usm__trace_header h;
    const char       *wrong = NULL;

    if (file.wanted) {
        usm__trace_describe(&h);
        wrong = open_file(&h);
    }
    file.wanted = false;
    if (wrong != NULL || file.fd < 0)
        return wrong;
    if (usm__os_thread(write_rounds, NULL, "usm-trace") != 0)
        return "no thread can be had to write it";
    usm_store_release(&usm__traced.is_writing, true);
    return NULL;
}

static void begin_or_stop(void)
{
    const char *wrong = NULL;

    usm__mutex_lock(&file.lock);
    if (!usm_load_relaxed(&usm__traced.is_writing))
        wrong = begin();
    usm__mutex_unlock(&file.lock);
    if (wrong == NULL)
        return;
    usm_store_release(&usm__trace_on, 0);
    usm__warn("nothing is recorded in the trace %s: %s", file.path, wrong);
}

void usm__trace_ring_bell(void)
{
    if (!usm_load_acquire(&usm__traced.is_writing))
        begin_or_stop();
    else if (atomic_exchange_explicit(&file.bell, 1, memory_order_relaxed) == 0)
        (void)syscall(SYS_futex, &file.bell, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}

/* --- start, end, fork ------------------------------------------------------------ */

/* Only writes the file: no driver is called at the end of the process. */
static void at_exit(void)
{
    usm__mutex_lock(&file.lock);
    if (file.fd >= 0 && file.pid == (int)getpid()) {
        usm_store_release(&usm__trace_on, 0);
        drain();
        append_maps();
        append_definitions();
        append_chunk(USM__CHUNK_END, 0, 0);
        if (file.fd >= 0)
            (void)usm__os_close(file.fd);
        file.fd = -1;
    }
    unlock_and_notify();
}

bool usm__trace_open_file(void)
{
    usm__trace_header h;
    const char       *wrong;

    usm__trace_describe(&h);
    usm__mutex_lock(&file.lock);
    read_clocks(&file.ns, &file.ticks);
    file.start_ns = file.ns;
    file.ns_per_tick =
        usm__traced.config.use_tsc ? 0.3 : 1; /* until the first round has measured it */
    wrong      = open_file(&h);
    file.error = 0;
    usm__mutex_unlock(&file.lock);
    if (wrong != NULL)
        usm__warn("USM_TRACE: nothing is recorded in %s: %s", file.path, wrong);
    else
        (void)atexit(at_exit);
    return wrong == NULL;
}

void usm__trace_flush(void)
{
    usm__mutex_lock(&file.lock);
    if (file.fd >= 0 && file.pid == (int)getpid()) { /* not in a child in which no handler ran */
        drain();
        append_maps();
    }
    unlock_and_notify();
}

static void in_child(void)
{
    if (file.fd >= 0)
        (void)usm__os_close(file.fd);
    file.wanted = (file.fd >= 0 || file.wanted) && usm__traced.config.own_file;
    file.fd     = -1;
    file.error  = 0;
    read_clocks(&file.ns, &file.ticks);
    file.start_ns = file.ns;
    usm_store_relaxed(&usm__traced.is_writing, false);
    usm_store_relaxed(&file.bell, 0);
    if (!file.wanted)
        usm_store_relaxed(&usm__trace_on, 0);
}

/* Locks are taken by rank, and released in the reverse order. */
void usm__trace_fork(usm_fork_phase phase)
{
    if (phase == USM_FORK_PREPARE) {
        usm__mutex_fork(&file.lock, phase);
        usm__stack_fork(phase);
        usm__rings_fork(phase);
        usm__mutex_fork(&file.definitions.lock, phase);
        return;
    }
    usm__mutex_fork(&file.definitions.lock, phase);
    usm__rings_fork(phase);
    usm__stack_fork(phase);
    if (phase == USM_FORK_CHILD)
        in_child();
    usm__mutex_fork(&file.lock, phase);
}
