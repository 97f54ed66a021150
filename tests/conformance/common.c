/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The record of what passed and what a device does not offer; devices, memory, waiting.
 *
 * The record goes to the file USM_TEST_TABLE; unset, to
 * $USM_TEST_BINARY_DIR/conformance/<ctest's name>.tsv.  The runner begins it and writes each test's
 * end; tests append what they found not to be offered.  Several processes write: every line is one
 * write() to a file opened with O_APPEND. */
#include "common.h"

#include <ctype.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <stdarg.h>
#include <strings.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define MAX_DEVICES 32

static void table_path(char *path, size_t size)
{
    const char *given = getenv("USM_TEST_TABLE"), *build = getenv("USM_TEST_BINARY_DIR"),
               *name = getenv("USM_TEST_NAME");

    path[0] = 0;
    if (given)
        snprintf(path, size, "%s", given);
    else if (build && name)
        snprintf(path, size, "%s/conformance/%s.tsv", build, name);
}

static void record(const char *status, const char *class, const char *behaviour, const char *reason)
{
    char path[4096], line[1024];
    int  fd, n;

    table_path(path, sizeof path);
    if (!path[0])
        return;
    fd = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0666);
    CHECK(fd >= 0, "cannot write the record %s", path);
    n = snprintf(line, sizeof line, "%s\t%s\t%s\t%s\n", status, class, behaviour, reason);
    if (n >= (int)sizeof line) {
        n           = sizeof line - 1;
        line[n - 1] = '\n';
    }
    CHECK(write(fd, line, (size_t)n) == n, "cannot write the record %s", path);
    close(fd);
}

static void record_here(const char *status, const char *reason)
{
    record(status, test_current()->suite, test_current()->name, reason);
}

void record_begin(void)
{
    const char *build = getenv("USM_TEST_BINARY_DIR");
    char        path[4096];

    if (build) {
        snprintf(path, sizeof path, "%s/conformance", build);
        mkdir(path, 0777);
    }
    table_path(path, sizeof path);
    unlink(path);
}

void record_end(const test_case *t, const char *status, const char *reason)
{
    record(status, t->suite, t->name, reason);
}

void not_offered(const char *reason, ...)
{
    char    text[512];
    va_list args;

    va_start(args, reason);
    vsnprintf(text, sizeof text, reason, args);
    va_end(args);
    record_here("NOT_OFFERED", text);
}

void tried(void)
{
    record_here("TRIED", "");
}

/* Whether allowed_skips.txt lets this test be skipped: lines "<pattern> <why>". */
static bool skip_is_allowed(void)
{
    const char *source = getenv("USM_TEST_SOURCE_DIR"), *runtime = getenv("USM_TEST_RUNTIME");
    char        path[4096], line[512], name[512], pattern[256];
    bool        found = false;
    FILE       *f;

    snprintf(path, sizeof path, "%s/tests/allowed_skips.txt", source ? source : ".");
    snprintf(name, sizeof name, "%s/%s@%s", test_current()->suite, test_current()->name,
             runtime ? runtime : "none");
    f = fopen(path, "r");
    while (f && !found && fgets(line, sizeof line, f))
        found = line[0] != '#' && sscanf(line, "%255s", pattern) == 1 && !fnmatch(pattern, name, 0);
    if (f)
        fclose(f);
    return found;
}

void skip(const char *reason, ...)
{
    const char *no_skip = getenv("USM_TEST_NO_SKIP");
    static char text[512];
    va_list     args;

    va_start(args, reason);
    vsnprintf(text, sizeof text, reason, args);
    va_end(args);
    CHECK(!no_skip || strcmp(no_skip, "1") || skip_is_allowed(),
          "skipped (%s), and tests/allowed_skips.txt does not have it", text);
    record_here("SKIPPED", text);
    test_skip(text);
}

bool story_names(const char *culprit)
{
    const char *message = usm_last_error();
    size_t      n       = strlen(culprit);

    if (!*message)
        return false;
    for (; *message; message++)
        if (!strncasecmp(message, culprit, n))
            return true;
    return n == 0;
}

static size_t devices(usm_device **list)
{
    size_t count = 0;

    CHECK_OK(usm_get_devices(list, MAX_DEVICES, &count));
    CHECK(count > 0, "no device, and no failure");
    return count < MAX_DEVICES ? count : MAX_DEVICES;
}

static void rig_open(rig *r, usm_device *dev)
{
    usm_context_desc desc = USM_CONTEXT_DESC_INIT;
    usm_device_info  info = USM_DEVICE_INFO_INIT;

    desc.ndevices = 1;
    desc.devices  = &dev;
    r->dev        = dev;
    CHECK_OK(usm_device_get_info(dev, &info));
    r->name = info.selector;
    CHECK_OK(usm_context_create(&desc, &r->ctx));
    CHECK_OK(usm_queue_create(r->ctx, dev, NULL, &r->q));
}

bool rig_next(rig *r)
{
    usm_device *list[MAX_DEVICES];

    rig_end(r);
    if (r->index >= devices(list))
        return false;
    rig_open(r, list[r->index++]);
    return true;
}

rig rig_first(void)
{
    rig r = {0};

    rig_next(&r);
    return r;
}

void rig_end(rig *r)
{
    usm_queue_destroy(r->q);
    usm_context_destroy(r->ctx);
    r->q   = NULL;
    r->ctx = NULL;
}

uint64_t need_kind(usm_kind kind)
{
    return kind == USM_HOST ? NEED_HOST : kind == USM_DEVICE ? NEED_DEVICE : NEED_SHARED;
}

bool commands_crash(void)
{
    const char *runtime = getenv("USM_TEST_RUNTIME");

    return runtime && !strcmp(runtime, "neo-ze-dg2");
}

/* Whether copies move data: asked of libusm by a first copy, in a context of its own. */
static bool moves_data(const rig *r)
{
    static const usm_device *known[2]; /* answered before: [0] moves not, [1] moves */
    usm_kind                 kind     = has(r, NEED_DEVICE) ? USM_DEVICE : USM_HOST;
    char                     text[64] = "does it move?", back[64] = "";
    rig                      own = {0};
    usm_event               *ev  = NULL;
    usm_status               status;
    void                    *p;

    if (commands_crash())
        return false;
    if (known[0] == r->dev || known[1] == r->dev)
        return known[1] == r->dev;
    rig_open(&own, r->dev);
    p      = mem(&own, kind, sizeof text);
    status = usm_memcpy(own.q, p, text, sizeof text, 0, NULL, NULL);
    if (!status)
        status = usm_memcpy(own.q, back, p, sizeof text, 0, NULL, &ev);
    if (!status)
        status = usm_event_wait(ev);
    CHECK(!status || status == USM_E_NO_DATA_MOVED, "the first copy: %s: %s",
          usm_status_name(status), usm_last_error());
    CHECK(status || !memcmp(text, back, sizeof text),
          "%s: the copy succeeded, but data did not move, and libusm did not say so", own.name);
    usm_event_release(ev);
    usm_free(p);
    rig_end(&own);
    known[!status] = r->dev;
    return !status;
}

bool has(const rig *r, uint64_t needs)
{
    for (int a = 0; a < USM_ASPECT_COUNT; a++)
        if (needs & UINT64_C(1) << a && !usm_device_has(r->dev, (usm_aspect)a))
            return false;
    if (needs & NEED_COMMANDS && commands_crash())
        return false;
    return !(needs & NEED_DATA) || moves_data(r);
}

bool can(const rig *r, uint64_t needs)
{
    for (int a = 0; a < USM_ASPECT_COUNT; a++) {
        if (needs & UINT64_C(1) << a && !usm_device_has(r->dev, (usm_aspect)a)) {
            not_offered("%s lacks %s", r->name, usm_aspect_name((usm_aspect)a));
            return false;
        }
    }
    if (needs & (NEED_COMMANDS | NEED_DATA | NEED(KERNELS)) && commands_crash()) {
        not_offered("%s crashes at the first command, and makes no kernel, without its GPU",
                    r->name);
        return false;
    }
    if (needs & NEED_DATA && !moves_data(r)) {
        not_offered("%s completes commands without moving data", r->name);
        return false;
    }
    tried();
    return true;
}

usm_kind next_kind(usm_kind kind)
{
    return (usm_kind)(kind + 1);
}

const char *kind_name(usm_kind kind)
{
    static const char *const names[] = {"malloc", "host", "device", "shared"};

    return kind >= USM_UNKNOWN && kind <= USM_SHARED ? names[kind] : "?";
}

void *mem(const rig *r, usm_kind kind, size_t size)
{
    void *p = kind == USM_UNKNOWN ? malloc(size ? size : 1) : usm_malloc(size, r->q, kind);

    CHECK(p, "%s: %zu bytes of %s memory: %s", r->name, size, kind_name(kind), usm_last_error());
    return p;
}

void mem_free(usm_kind kind, void *p)
{
    if (kind == USM_UNKNOWN)
        free(p);
    else
        CHECK_OK(usm_free_ctx(p, NULL));
}

/* In a file of its own they are enough: nothing is compiled across files. */
void *opaque(const void *p)
{
    return (void *)(uintptr_t)p;
}

size_t opaque_size(size_t n)
{
    volatile size_t hidden = n;

    return hidden;
}

void pattern_fill(void *p, size_t n, unsigned seed)
{
    unsigned char *bytes = p, row[256];

    for (size_t i = 0; i < n; i += sizeof row) { /* in rows, which compilers make fast */
        unsigned first = (unsigned)((i >> 8) * 7 + (i >> 16) * 3 + seed);

        for (unsigned j = 0; j < sizeof row; j++)
            row[j] = (unsigned char)((j * 31 + first) & 0xff);
        memcpy(bytes + i, row, n - i < sizeof row ? n - i : sizeof row);
    }
}

void put(const rig *r, void *dst, const void *src, size_t n)
{
    CHECK_OK(usm_memcpy(r->q, dst, src, n, 0, NULL, NULL));
    CHECK_OK(usm_queue_wait(r->q));
}

void get(const rig *r, void *dst, const void *src, size_t n)
{
    put(r, dst, src, n);
}

void check_bytes(const rig *r, const void *p, const void *want, size_t n, const char *what)
{
    const unsigned char *expected = want;
    unsigned char       *seen     = malloc(n ? n : 1);

    CHECK(seen, "no memory for the test itself");
    get(r, seen, p, n);
    for (size_t i = 0, end = memcmp(seen, expected, n) ? n : 0; i < end; i++)
        CHECK(seen[i] == expected[i], "%s: %s: byte %zu of %zu is %#x, not %#x", r->name, what, i,
              n, seen[i], expected[i]);
    free(seen);
}

usm_queue *queue_with(const rig *r, uint32_t flags)
{
    usm_queue_desc desc = USM_QUEUE_DESC_INIT;
    usm_queue     *q    = NULL;

    desc.flags = flags;
    CHECK_OK(usm_queue_create(r->ctx, r->dev, &desc, &q));
    return q;
}

usm_event *gate_new(const rig *r)
{
    usm_event *gate = NULL;

    CHECK_OK(usm_event_create(r->ctx, &gate));
    return gate;
}

void gate_open(usm_event *gate)
{
    CHECK_OK(usm_event_signal(gate, USM_OK));
}

void wait_until(const atomic_int *value, int n, const char *what)
{
    for (int ms = 0; atomic_load(value) < n; ms++) {
        CHECK(ms < 20000, "%s: still %d of %d after 20 s", what, atomic_load(value), n);
        sleep_ms(1);
    }
}

void sleep_ms(unsigned ms)
{
    struct timespec t = {ms / 1000, (long)(ms % 1000) * 1000000};

    nanosleep(&t, NULL);
}

void wait_for_nothing_held(const rig *r)
{
    usm_memory_info info = USM_MEMORY_INFO_INIT;

    for (int i = 0; i < 5000; i++) {
        CHECK_OK(usm_device_memory(r->dev, &info));
        if (info.pooled == 0)
            return;
        sleep_ms(1);
    }
    CHECK(info.pooled == 0, "%s: %llu bytes are still held", r->name,
          (unsigned long long)info.pooled);
}
