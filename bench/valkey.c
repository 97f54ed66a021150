/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* usm-bench-valkey: the transport over Valkey and Redis servers against hiredis' own pipeline on the same
 * server, by turns: blocks of 1 MiB and 64 KiB stored and fetched, over a socket's path and over TCP.
 * With a program (the sample out_of_core), a server and a folder: the program with its data on that server
 * against the same with its data on the disk, by turns; bench/valkey.sh has the server behind a network.
 *
 * It starts a server of its own (valkey-server or redis-server), without files, and drives the module
 * through the table of usm/transport.h.  A program by itself, because it links hiredis. */
#include "bench.h"

#include <arpa/inet.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <hiredis/hiredis.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include <usm/transport.h>

#define MIB   ((size_t)1 << 20)
#define BYTES (16 * MIB) /* of a turn */

/* ---- a libusm for the module ---------------------------------------------------------------- */

static usm_status host_report(usm_status status, const char *format, ...) USM_PRINTF(2, 3);
static void       host_log(usm_log_level level, const char *format, ...) USM_PRINTF(2, 3);

static usm_status host_report(usm_status status, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    (void)vfprintf(stderr, format, args);
    va_end(args);
    (void)fputc('\n', stderr);
    return status;
}

static void host_log(usm_log_level level, const char *format, ...)
{
    (void)level;
    (void)format;
}

static const char *host_setting(const char *key)
{
    (void)key;
    return NULL;
}

static void *host_alloc(size_t size)
{
    return calloc(1, size);
}

static bool host_fault(const char *name, usm_status *status)
{
    (void)name;
    (void)status;
    return false;
}

static size_t host_secret(const char *key, char *text, size_t cap)
{
    (void)key;
    (void)text;
    (void)cap;
    return 0;
}

static void *host_secret_map(size_t size)
{
    return calloc(1, size);
}

static void host_secret_unmap(void *p, size_t size)
{
    (void)size;
    free(p);
}

static int host_event_fd(void)
{
    return eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
}

typedef struct start {
    void (*fn)(void *);
    void *arg;
} start;

static void *host_main(void *arg)
{
    start s = *(start *)arg;

    free(arg);
    s.fn(s.arg);
    return NULL;
}

static int host_thread(void (*fn)(void *), void *arg, const char *name)
{
    start    *s = malloc(sizeof *s);
    pthread_t thread;
    int       error;

    (void)name;
    if (!s)
        return ENOMEM;
    *s    = (start){fn, arg};
    error = pthread_create(&thread, NULL, host_main, s);
    if (error == 0)
        (void)pthread_detach(thread);
    return error;
}

static int host_poll(struct pollfd *list, unsigned n, uint64_t deadline)
{
    const uint64_t now = bench_now_ns();

    return poll(list, n, deadline <= now ? 0 : (int)((deadline - now) / 1000000 + 1));
}

static const usm_os_api   host_os = {.close        = close,
                                     .thread       = host_thread,
                                     .event_fd     = host_event_fd,
                                     .secret_map   = host_secret_map,
                                     .secret_unmap = host_secret_unmap,
                                     .poll         = host_poll};
static const usm_host_api host    = {.abi         = USM_MODULE_ABI,
                                     .struct_size = sizeof(usm_host_api),
                                     .report      = host_report,
                                     .log         = host_log,
                                     .setting     = host_setting,
                                     .heap_alloc  = host_alloc,
                                     .heap_free   = free,
                                     .os          = &host_os,
                                     .fault       = host_fault,
                                     .take_secret = host_secret};

/* ---- the server ------------------------------------------------------------------------------- */

typedef struct server {
    pid_t pid;
    int   port;
    char  folder[64], path[80];
} server;

static int free_port(void)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t          n  = sizeof at;
    int                fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    if (fd < 0 || bind(fd, (const struct sockaddr *)&at, sizeof at) != 0 ||
        getsockname(fd, (struct sockaddr *)&at, &n) != 0)
        at.sin_port = 0;
    (void)close(fd);
    return ntohs(at.sin_port);
}

static void run_server(const server *s)
{
    static const char *const names[] = {"valkey-server", "redis-server", "redis-check-rdb"};
    char                     port[16];

    (void)snprintf(port, sizeof port, "%d", s->port);
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        (void)execlp(names[i], "redis-server", "--port", port, "--bind", "127.0.0.1",
                     "--unixsocket", s->path, "--save", "", "--dir", s->folder, "--logfile",
                     "/dev/null", (char *)NULL);
    _exit(127);
}

static bool start_server(server *s)
{
    (void)snprintf(s->folder, sizeof s->folder, "/tmp/usm-bench-valkey.XXXXXX");
    if (!mkdtemp(s->folder))
        return false;
    (void)snprintf(s->path, sizeof s->path, "%s/s", s->folder);
    s->port = free_port();
    s->pid  = fork();
    if (s->pid == 0)
        run_server(s);
    for (int i = 0; s->pid > 0 && i < 500; i++) {
        redisContext *c  = redisConnectUnix(s->path);
        const bool    ok = c && !c->err;

        redisFree(c);
        if (ok)
            return true;
        (void)usleep(10000);
    }
    return false;
}

static void stop_server(const server *s)
{
    if (s->pid > 0) {
        (void)kill(s->pid, SIGKILL);
        (void)waitpid(s->pid, NULL, 0);
    }
    (void)unlink(s->path);
    (void)rmdir(s->folder);
}

/* ---- what is measured ------------------------------------------------------------------------- */

typedef struct load {
    size_t block, n; /* bytes; blocks of a turn */
    char  *data;
    /* ours */
    const usm_transport_ops *ops;
    void                    *store;
    usm_transfer            *transfers;
    usm_transfer_op          op;
    pthread_mutex_t          lock;
    pthread_cond_t           ended;
    size_t                   left;
    bool                     failed;
    /* the peer's */
    redisContext *link;
    size_t        window; /* commands in flight */
} load;

static load now;

static void done(usm_transfer *t, usm_status status)
{
    (void)t;
    (void)pthread_mutex_lock(&now.lock);
    now.failed |= status != USM_OK;
    if (--now.left == 0)
        (void)pthread_cond_signal(&now.ended);
    (void)pthread_mutex_unlock(&now.lock);
}

/* n turns, each a list of all blocks. */
static bool ours(void *arg, size_t n)
{
    (void)arg;
    for (; n > 0; n--) {
        now.left = now.n;
        for (size_t i = 0; i < now.n; i++)
            now.transfers[i] = (usm_transfer){.op         = now.op,
                                              .block      = i,
                                              .size       = now.block,
                                              .data       = now.data + i * now.block,
                                              .registered = SIZE_MAX,
                                              .done       = done,
                                              .next = i + 1 < now.n ? &now.transfers[i + 1] : NULL};
        now.ops->submit(now.store, now.transfers);
        (void)pthread_mutex_lock(&now.lock);
        while (now.left > 0)
            (void)pthread_cond_wait(&now.ended, &now.lock);
        (void)pthread_mutex_unlock(&now.lock);
    }
    return !now.failed;
}

static bool take_reply(size_t i)
{
    redisReply *r = NULL;
    bool ok = redisGetReply(now.link, (void **)&r) == REDIS_OK && r && r->type != REDIS_REPLY_ERROR;

    /* A program wants the bytes where it wants them. */
    if (ok && now.op == USM_TRANSFER_FETCH) {
        ok = r->type == REDIS_REPLY_STRING && r->len == now.block;
        if (ok)
            memcpy(now.data + i * now.block, r->str, r->len);
    }
    freeReplyObject(r);
    return ok;
}

static bool append(size_t i)
{
    if (now.op == USM_TRANSFER_STORE)
        return redisAppendCommand(now.link, "SET peer:%lu %b EX 600", (unsigned long)i,
                                  now.data + i * now.block, now.block) == REDIS_OK;
    return redisAppendCommand(now.link, "GET peer:%lu", (unsigned long)i) == REDIS_OK;
}

/* hiredis as its manual says: commands are appended, then replies are taken; `window` commands
 * ahead. */
static bool theirs(void *arg, size_t n)
{
    (void)arg;
    for (; n > 0; n--) {
        for (size_t i = 0; i < now.window; i++)
            if (!append(i))
                return false;
        for (size_t i = 0; i < now.n; i++)
            if (!take_reply(i) || (i + now.window < now.n && !append(i + now.window)))
                return false;
    }
    return true;
}

/* How far ahead hiredis is fastest with this server: it moves what it has not sent yet. */
static bool choose_window(void)
{
    static const size_t windows[] = {1, 2, 4, 8, 16, 64};
    uint64_t            best      = UINT64_MAX;
    size_t              window    = 1;

    for (int turn = 0; turn < 3; turn++)
        for (size_t i = 0; i < sizeof windows / sizeof *windows && windows[i] <= now.n; i++) {
            uint64_t began = bench_now_ns();

            now.window = windows[i];
            if (!theirs(NULL, 1))
                return false;
            began = bench_now_ns() - began;
            if (began < best) {
                best   = began;
                window = now.window;
            }
        }
    now.window = window;
    return true;
}

static bool compare(bench_report *report, const char *where, const char *what, usm_transfer_op op)
{
    static char names[16][64], peers[16][64];
    char       *name = names[report->nrows], *peer = peers[report->nrows];

    now.op = op;
    if (!choose_window())
        return false;
    (void)snprintf(name, sizeof names[0], "%s %zu KiB, %s", what, now.block >> 10, where);
    (void)snprintf(peer, sizeof peers[0], "hiredis, %zu ahead", now.window);
    return bench_compare(report, name, peer, 1 / 0.9, 1, ours, theirs, NULL);
}

static bool measure(bench_report *report, const char *config, const char *where, size_t block)
{
    const usm_transport_params params = {
        .struct_size = sizeof params, .api = &host, .config = config, .block_size = block};
    bool ok;

    now.block = block;
    now.n     = BYTES / block;
    if (now.ops->open(&params, &now.store) != USM_OK)
        return false;
    ok = now.ops->reserve(now.store, 0, now.n) == USM_OK &&
         compare(report, where, "store", USM_TRANSFER_STORE) &&
         compare(report, where, "fetch", USM_TRANSFER_FETCH);
    now.ops->close(now.store);
    return ok;
}

static bool measure_all(bench_report *report, const server *s)
{
    char tcp[32];
    bool ok;

    (void)snprintf(tcp, sizeof tcp, "127.0.0.1:%d", s->port);
    now.link = redisConnectUnix(s->path);
    ok       = now.link && !now.link->err && measure(report, s->path, "socket", MIB) &&
         measure(report, s->path, "socket", MIB / 16);
    redisFree(now.link);
    if (!ok)
        return false;
    now.link = redisConnect("127.0.0.1", s->port);
    ok       = now.link && !now.link->err && measure(report, tcp, "TCP", MIB) &&
         measure(report, tcp, "TCP", MIB / 16);
    redisFree(now.link);
    return ok;
}

/* ---- a program whose data do not fit ---------------------------------------------------------- */

typedef struct sample {
    const char *program, *task;
    char        server[128], disk[256]; /* USM_SPILL=... */
} sample;

static bool run_sample(const sample *s, const char *tier, size_t n)
{
    bool ok = true;

    for (; ok && n > 0; n--) {
        const pid_t pid    = fork();
        int         status = 1;

        if (pid == 0) { /* what it says on stderr is wanted when it fails */
            (void)dup2(open("/dev/null", O_WRONLY | O_CLOEXEC), STDOUT_FILENO);
            (void)execlp("env", "env", "USM_LOG=error", tier, s->program, s->task, "--size", "256M",
                         "--limit", "64M", "--quiet", "--no-statistics", (char *)NULL);
            _exit(127);
        }
        ok = pid > 0 && waitpid(pid, &status, 0) == pid && WIFEXITED(status) &&
             WEXITSTATUS(status) == 0;
    }
    return ok;
}

static bool on_server(void *arg, size_t n)
{
    const sample *s = arg;

    return run_sample(s, s->server, n);
}

static bool on_disk(void *arg, size_t n)
{
    const sample *s = arg;

    return run_sample(s, s->disk, n);
}

static bool measure_program(bench_report *report, char **argv)
{
    static const char *const tasks[] = {"transpose", "difference"};
    static char              names[2][64];
    sample                   s  = {.program = argv[0]};
    bool                     ok = true;

    (void)snprintf(s.server, sizeof s.server, "USM_SPILL=valkey:%s", argv[1]);
    (void)snprintf(s.disk, sizeof s.disk, "USM_SPILL=file:%s", argv[2]);
    for (size_t i = 0; i < 2 && ok; i++) {
        s.task = tasks[i];
        (void)snprintf(names[i], sizeof names[0], "%s of 256 MiB in 64 MiB, %s", tasks[i], argv[1]);
        ok = bench_compare(report, names[i], argv[2], 1, 1, on_server, on_disk, &s);
    }
    return ok;
}

/* ---- the program -------------------------------------------------------------------------------- */

static bool load_module(void)
{
    usm_transport_entry_fn *entry;
    void                   *library = dlopen(USM_BENCH_VALKEY, RTLD_NOW | RTLD_LOCAL);
    void                   *symbol  = library ? dlsym(library, "usm_transport_entry") : NULL;

    if (!symbol) {
        (void)fprintf(stderr, "usm-bench-valkey: %s does not load\n", USM_BENCH_VALKEY);
        return false;
    }
    memcpy(&entry, &symbol, sizeof entry);
    now.ops = entry(&host);
    return now.ops != NULL;
}

/* Of the transport alone, on a server of its own. */
static int bench_transport(bench_report *report)
{
    server s = {0};
    bool   ok;

    now.data = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE,
                    -1, 0);
    now.transfers = calloc(BYTES / (MIB / 16), sizeof *now.transfers);
    if (now.data == MAP_FAILED || !now.transfers) {
        (void)fprintf(stderr, "usm-bench-valkey: there is no memory\n");
        return 1;
    }
    (void)pthread_mutex_init(&now.lock, NULL);
    (void)pthread_cond_init(&now.ended, NULL);
    ok = load_module() && start_server(&s) && measure_all(report, &s);
    stop_server(&s);
    free(now.transfers);
    if (!ok) {
        (void)fprintf(stderr, "usm-bench-valkey: it needs valkey-server or redis-server\n");
        return 1;
    }
    return 0;
}

int main(int argc, char **argv)
{
    static bench_report report;
    const bool          json = argc > 1 && strcmp(argv[1], "--json") == 0;
    int                 rc   = 0;

    argv += 1 + json;
    argc -= 1 + json;
    if (argc != 0 && argc != 3) {
        (void)fprintf(stderr, "usage: usm-bench-valkey [--json] [PROGRAM SERVER FOLDER]\n");
        return 2;
    }
    if (argc == 0)
        rc = bench_transport(&report);
    else if (!measure_program(&report, argv))
        rc = 1;
    if (rc == 0)
        bench_print(&report, json);
    return rc;
}
