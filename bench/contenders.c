/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Finding the peers, and talking to the workers: see contenders.h.
 *
 * The environments below may contain %L, the folder of the build's libraries, %S, SYCL's folder,
 * and %T, a temporary folder of this run with an .icd file that names Intel's CPU runtime. */
#include "contenders.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define ANSWER_WITHIN_MS 120000
#define ENV_MAX          6

static const struct {
    const char *name, *allocator;
    const char *library; /* to preload, or a plugin: in %L */
    const char *package; /* what brings it                 */
    const char *env[ENV_MAX];
} list[CONTENDERS] = {
#define NULL_DEVICE "USM_DEVICE_SELECTOR=null:*"
    [OURS_NULL]  = {"libusm", "pool:device", NULL, NULL, {NULL_DEVICE, "USM_NULL_VMEM=1"}},
    [OURS_AREAS] = {"libusm, areas", "pool:device", NULL, NULL, {NULL_DEVICE, "USM_NULL_VMEM=0"}},
    [OURS_GUARD] = {"PROT_NONE",
                    "pool:device",
                    NULL,
                    NULL,
                    {"USM_DEVICE_SELECTOR=host:*", "USM_HOST_GUARD_DEVICE=1"}},
    [OURS_HOST]  = {"libusm", "pool-touch:host", NULL, NULL, {"USM_DEVICE_SELECTOR=host:*"}},
    [OURS_TRACE] = {"libusm, traced",
                    "pool:device",
                    NULL,
                    NULL,
                    {NULL_DEVICE, "USM_NULL_VMEM=1", "USM_TRACE=%T/trace"}},
#define EIGHT_GIB                                                                                  \
    {                                                                                              \
        NULL_DEVICE, "USM_NULL_VMEM=1", "USM_NULL_MEMORY=8G"                                       \
    }
    [OURS_IDLE]    = {"libusm", "pool:device", NULL, NULL, EIGHT_GIB},
    [OURS_TRIMMED] = {"after a trim", "pool:device", NULL, NULL, EIGHT_GIB},
    [OURS_NEEDED]  = {"in the way", "pool:device", NULL, NULL, EIGHT_GIB},
#define MALLOCS(ID, ALLOCATOR)                                                                       \
    [GLIBC##ID]    = {"glibc", ALLOCATOR, NULL, NULL, {NULL}},                                       \
    [JEMALLOC##ID] = {"jemalloc", ALLOCATOR, "libjemalloc.so.2", "libjemalloc2", {NULL}},            \
    [MIMALLOC##ID] = {"mimalloc", ALLOCATOR, "libmimalloc.so.2", "libmimalloc2.0", {NULL}},          \
    [TCMALLOC##                                                                                      \
        ID]   = {"tcmalloc", ALLOCATOR, "libtcmalloc_minimal.so.4", "libtcmalloc-minimal4", {NULL}}, \
    [TBB##ID] = {"TBB", ALLOCATOR, "libtbbmalloc_proxy.so.2", "libtbbmalloc2", {NULL}}
    MALLOCS(, "malloc"),
    MALLOCS(_TOUCH, "malloc-touch"),
#define UMF_PLUGIN "%L/libusm_bench_umf.so"
#define UMF_HOW    "PyPI: umf, then cmake -DUSM_BENCH_UMF_DIR=<its virtual environment>"
    [UMF_DISJOINT] = {"UMF disjoint", "plugin:" UMF_PLUGIN ":disjoint", UMF_PLUGIN, UMF_HOW, {0}},
    [UMF_SCALABLE] = {"UMF scalable", "plugin:" UMF_PLUGIN ":scalable", UMF_PLUGIN, UMF_HOW, {0}},
#define SYCL_PLUGIN "%L/libusm_bench_sycl.so"
#define SYCL_HOW                                                                                   \
    "PyPI: intel-sycl-rt intel-opencl-rt intel-cmplr-lib-rt, then cmake "                          \
    "-DUSM_BENCH_SYCL_DIR=<their virtual environment>"
#define OF_OPENCL "OCL_ICD_VENDORS=%T"
#define OF_ZE     "ZE_ENABLE_ALT_DRIVERS=%L/libze_soft.so"
#define SYCL_PATH "LD_LIBRARY_PATH=%S/lib"
#define KIND(ID, KIND_NAME)                                                                        \
    [OURS_CL_##ID] = {"libusm",                                                                    \
                      "queue:" KIND_NAME,                                                          \
                      "%S/lib/libintelocl.so",                                                     \
                      SYCL_HOW,                                                                    \
                      {"USM_DEVICE_SELECTOR=opencl:*", OF_OPENCL}},                                \
    [SYCL_CL_##ID] = {"SYCL",                                                                      \
                      "plugin:" SYCL_PLUGIN ":" KIND_NAME,                                         \
                      SYCL_PLUGIN,                                                                 \
                      SYCL_HOW,                                                                    \
                      {SYCL_PATH, "ONEAPI_DEVICE_SELECTOR=opencl:cpu", OF_OPENCL}},                \
    [OURS_ZE_##ID] = {"libusm",                                                                    \
                      "queue:" KIND_NAME,                                                          \
                      "%L/libze_soft.so",                                                          \
                      "libze-dev, then a build with the tests, which bring the software driver",   \
                      {"USM_DEVICE_SELECTOR=level_zero:*", OF_ZE}},                                \
    [SYCL_ZE_##ID] = {"SYCL",                                                                      \
                      "plugin:" SYCL_PLUGIN ":" KIND_NAME,                                         \
                      SYCL_PLUGIN,                                                                 \
                      SYCL_HOW,                                                                    \
                      {SYCL_PATH, "ONEAPI_DEVICE_SELECTOR=level_zero:*", OF_ZE}}
    KIND(DEVICE, "device"),
    KIND(SHARED, "shared"),
    KIND(HOST, "host"),
    [SPILL_HOST] = {"libusm", "spill", NULL, NULL, {"USM_DEVICE_SELECTOR=host:*"}},
    [SPILL_POCL] = {"libusm", "spill", NULL, NULL, {"USM_DEVICE_SELECTOR=opencl:cpu"}},
    [SPILL_CL]   = {"libusm",
                    "spill",
                    "%S/lib/libintelocl.so",
                    SYCL_HOW,
                    {"USM_DEVICE_SELECTOR=opencl:*", OF_OPENCL}},
    [SPILL_SYCL] = {"SYCL",
                    "spill-plugin:" SYCL_PLUGIN,
                    SYCL_PLUGIN,
                    SYCL_HOW,
                    {SYCL_PATH, "ONEAPI_DEVICE_SELECTOR=opencl:cpu", OF_OPENCL}},
    [ASYNC_NULL] =
        {"libusm", "async", NULL, NULL, {NULL_DEVICE, "USM_NULL_VMEM=1", "USM_NULL_MEMORY=400G"}},
    [ASYNC_HOST]    = {"libusm", "async", NULL, NULL, {"USM_DEVICE_SELECTOR=host:*"}},
    [ASYNC_POCL]    = {"libusm", "async", NULL, NULL, {"USM_DEVICE_SELECTOR=opencl:cpu"}},
    [ASYNC_CL]      = {"libusm",
                       "async",
                       "%S/lib/libintelocl.so",
                       SYCL_HOW,
                       {"USM_DEVICE_SELECTOR=opencl:*", OF_OPENCL}},
    [ASYNC_ZE]      = {"libusm",
                       "async",
                       "%L/libze_soft.so",
                       "libze-dev, then a build with the tests, which bring the software driver",
                       {"USM_DEVICE_SELECTOR=level_zero:*", OF_ZE}},
    [ASYNC_SYCL_CL] = {"SYCL",
                       "async-plugin:" SYCL_PLUGIN,
                       SYCL_PLUGIN,
                       SYCL_HOW,
                       {SYCL_PATH, "ONEAPI_DEVICE_SELECTOR=opencl:cpu", OF_OPENCL}},
    [ASYNC_SYCL_ZE] = {"SYCL",
                       "async-plugin:" SYCL_PLUGIN,
                       SYCL_PLUGIN,
                       SYCL_HOW,
                       {SYCL_PATH, "ONEAPI_DEVICE_SELECTOR=level_zero:*", OF_ZE}},
};

/* Of the user's environment, what would change what is measured. */
static const char *const cleared[] = {
    "LD_PRELOAD",    "USM_DEVICE_SELECTOR", "ONEAPI_DEVICE_SELECTOR", "USM_TRACE",
    "USM_DEBUG",     "USM_HOOKS",           "USM_VALIDATION",         "USM_HOST_GUARD_DEVICE",
    "USM_NULL_VMEM", "OCL_ICD_VENDORS",     "OCL_ICD_FILENAMES",      "ZE_ENABLE_ALT_DRIVERS",
    "MALLOC_CONF",   "MALLOC_ARENA_MAX",    "GLIBC_TUNABLES",
};

static struct {
    char exe[512], lib[600], sycl[512], temporary[64], system[512];
    bool verbose;
} place;

static struct contender {
    char  library[1200], missing[300], error[1000];
    pid_t pid;
    int   to, from;
} state[CONTENDERS];

/* ------------------------------------------------------------------ finding them */

static void expand(const char *text, char *out, size_t cap)
{
    size_t n = 0;

    for (; *text && n + 1 < cap; text++) {
        const char *with = NULL;

        if (text[0] == '%')
            with = text[1] == 'L' ? place.lib : text[1] == 'S' ? place.sycl : place.temporary;
        if (!with) {
            out[n++] = *text;
            continue;
        }
        n += (size_t)snprintf(out + n, cap - n, "%s", with);
        n = n < cap ? n : cap - 1;
        text++;
    }
    out[n] = '\0';
}

static void folder_of(const char *path, char *out, size_t cap)
{
    const char *slash = strrchr(path, '/');

    snprintf(out, cap, "%.*s", slash ? (int)(slash - path) : 1, slash ? path : ".");
}

/* Where the system's libraries are: beside libc. */
static void find_places(const char *sycl)
{
    ssize_t n = readlink("/proc/self/exe", place.exe, sizeof place.exe - 1);
    char    bin[512];
    Dl_info info;

    place.exe[n > 0 ? n : 0] = '\0';
    folder_of(place.exe, bin, sizeof bin);
    snprintf(place.lib, sizeof place.lib, "%s/../lib", bin);
    snprintf(place.sycl, sizeof place.sycl, "%s", sycl ? sycl : "");
    snprintf(place.system, sizeof place.system, "/usr/lib");
    if (dladdr(__extension__(void *) fputs, &info) && info.dli_fname)
        folder_of(info.dli_fname, place.system, sizeof place.system);
}

static void make_icd(void)
{
    char  path[128], library[600];
    FILE *file;

    snprintf(place.temporary, sizeof place.temporary, "/tmp/usm-bench-XXXXXX");
    if (!mkdtemp(place.temporary)) {
        place.temporary[0] = '\0';
        return;
    }
    snprintf(path, sizeof path, "%s/icd.icd", place.temporary);
    expand("%S/lib/libintelocl.so", library, sizeof library);
    file = fopen(path, "w");
    if (file) {
        fprintf(file, "%s\n", library);
        fclose(file);
    }
}

static bool find_library(contender_id id)
{
    static const char *const folders[] = {NULL, "/usr/lib64", "/usr/lib", "/usr/local/lib"};
    const char              *name      = list[id].library;

    if (name[0] == '%') {
        expand(name, state[id].library, sizeof state[id].library);
        return access(state[id].library, R_OK) == 0;
    }
    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++) {
        snprintf(state[id].library, sizeof state[id].library, "%s/%s",
                 folders[i] ? folders[i] : place.system, name);
        if (access(state[id].library, R_OK) == 0)
            return true;
    }
    return false;
}

void contenders_find(const char *sycl, bool verbose)
{
    place.verbose = verbose;
    find_places(sycl);
    make_icd();
    signal(SIGPIPE, SIG_IGN);
    for (int id = 0; id < CONTENDERS; id++)
        if (list[id].library && !find_library((contender_id)id))
            snprintf(state[id].missing, sizeof state[id].missing, "it needs %s", list[id].package);
}

void contenders_forget(void)
{
    static const char *const made[] = {"icd.icd", "trace"};
    char                     path[128];

    for (size_t i = 0; place.temporary[0] && i < sizeof made / sizeof *made; i++) {
        snprintf(path, sizeof path, "%s/%s", place.temporary, made[i]);
        unlink(path);
    }
    if (place.temporary[0])
        rmdir(place.temporary);
}

const char *contender_name(contender_id id)
{
    return list[id].name;
}

const char *contender_missing(contender_id id)
{
    return state[id].missing[0] ? state[id].missing : NULL;
}

const char *contender_library(contender_id id)
{
    static char path[4096];
    const char *slash;

    if (!list[id].library || !realpath(state[id].library, path))
        return "";
    slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

const char *contender_error(contender_id id)
{
    return state[id].error;
}

/* ------------------------------------------------------------------ the worker */

static void set_environment(contender_id id)
{
    char text[1024], *equals;

    /* NOLINTBEGIN(concurrency-mt-unsafe): a forked child has one thread */
    for (size_t i = 0; i < sizeof cleared / sizeof *cleared; i++)
        unsetenv(cleared[i]);
    for (size_t i = 0; i < ENV_MAX && list[id].env[i]; i++) {
        expand(list[id].env[i], text, sizeof text);
        equals  = strchr(text, '=');
        *equals = '\0';
        setenv(text, equals + 1, 1);
    }
    if (list[id].library && list[id].library[0] != '%')
        setenv("LD_PRELOAD", state[id].library, 1);
    /* NOLINTEND(concurrency-mt-unsafe) */
}

/* In the child: becomes the worker. */
static _Noreturn void become(contender_id id, int to, int from)
{
    char allocator[1024];

    expand(list[id].allocator, allocator, sizeof allocator);
    if (dup2(to, 0) < 0 || dup2(from, 1) < 0)
        _exit(127);
    set_environment(id);
    if (!place.verbose && !freopen("/dev/null", "w", stderr))
        _exit(127);
    execl(place.exe, place.exe, "--worker", allocator, (char *)NULL);
    _exit(127);
}

static bool fail(contender_id id, const char *what)
{
    size_t n = strnlen(what, sizeof state[id].error - 1);

    memmove(state[id].error, what, n);
    state[id].error[n] = '\0';
    return false;
}

/* Its output has ended. */
static bool fail_ended(contender_id id)
{
    bool              of_ze  = (id >= SYCL_ZE_DEVICE && id <= SYCL_ZE_HOST) || id == ASYNC_SYCL_ZE;
    struct contender *c      = &state[id];
    int               status = 0;
    char              text[200];

    waitpid(c->pid, &status, 0); /* it ends at the end of its output, or by its alarm */
    c->pid = -1;
    if (WIFSIGNALED(status))
        snprintf(text, sizeof text, "its process ended by signal %d%s", WTERMSIG(status),
                 of_ze ? "; it needs a loader newer than Debian 12's (page.sh --level-zero)" : "");
    else
        snprintf(text, sizeof text, "its process ended");
    return fail(id, text);
}

/* A line of the worker, without its end. */
static bool read_line(contender_id id, char *line, size_t cap)
{
    struct pollfd from = {.fd = state[id].from, .events = POLLIN};

    for (size_t n = 0; n + 1 < cap; n++) {
        if (poll(&from, 1, ANSWER_WITHIN_MS) <= 0) {
            kill(state[id].pid, SIGKILL);
            return fail(id, "no answer within two minutes");
        }
        if (read(from.fd, line + n, 1) != 1)
            return fail_ended(id);
        if (line[n] == '\n') {
            line[n] = '\0';
            return true;
        }
    }
    return fail(id, "its answer has no end");
}

/* Lines that are no answer are what a library printed. */
static bool read_answer(contender_id id, char *answer, size_t cap)
{
    char line[700];

    while (read_line(id, line, sizeof line)) {
        if (strncmp(line, "ok", 2) == 0) {
            if (answer)
                snprintf(answer, cap, "%s", line[2] ? line + 3 : "");
            return true;
        }
        if (strncmp(line, "error ", 6) == 0)
            return fail(id, line + 6);
    }
    return false;
}

bool contender_start(contender_id id)
{
    struct contender *c = &state[id];
    int               to[2], from[2];

    if (c->pid > 0)
        return true;
    if (c->missing[0])
        return fail(id, c->missing);
    if (pipe2(to, O_CLOEXEC) != 0 || pipe2(from, O_CLOEXEC) != 0)
        return fail(id, "no pipe can be had");
    c->pid = fork();
    if (c->pid == 0)
        become(id, to[0], from[1]);
    close(to[0]);
    close(from[1]);
    c->to   = to[1];
    c->from = from[0];
    if (c->pid < 0 || !read_answer(id, NULL, 0)) {
        contender_stop(id);
        return false;
    }
    return true;
}

bool contender_ask(contender_id id, const char *command, char *answer, size_t cap)
{
    char   line[1024];
    size_t n = (size_t)snprintf(line, sizeof line, "%s\n", command);

    if (state[id].pid <= 0)
        return fail(id, "has not been started");
    if (write(state[id].to, line, n) != (ssize_t)n)
        return fail_ended(id);
    return read_answer(id, answer, cap);
}

void contender_stop(contender_id id)
{
    struct contender *c = &state[id];

    if (c->pid == 0)
        return;
    close(c->to);
    close(c->from);
    if (c->pid > 0)
        waitpid(c->pid, NULL, 0); /* it ends at the end of its input, or by its alarm */
    c->pid = 0;
}
