/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The server: see web.h.  It listens on 127.0.0.1, which the network does not reach.  What else can
 * reach it, and what stops that:
 *
 *   another user's program     has no token (token.c): 401
 *   a page of a foreign site   its requests have that site's Origin, and no token: 403, 401
 *   a foreign name that was    the Host header still has that name: 403 (DNS rebinding)
 *   made to lead to 127.0.0.1
 *
 * The page's own files hold no secret, and are served without the token: the browser asks for them
 * before a script of the page can send it. */
#include "web.h"

#include <errno.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static const struct {
    const char *method, *path;
    handler    *fn;
} routes[] = {
    {"GET", "/api/devices", machine_devices}, {"GET", "/api/topology", machine_topology},
    {"GET", "/api/files", compose_list},      {"GET", "/api/file", compose_read},
    {"PUT", "/api/file", compose_save},       {"POST", "/api/check", compose_check},
    {"POST", "/api/run", runs_start},         {"POST", "/api/resume", runs_resume},
    {"POST", "/api/stop", runs_stop},         {"GET", "/api/graph", graphs_text},
    {"POST", "/api/graph/stop", graphs_stop}, {"GET", "/api/result", runs_result},
    {"GET", "/api/live", live_stream},        {"GET", "/api/app", runs_app},
    {"POST", "/api/export", traces_export},   {"GET", "/api/map", processes_map},
    {"GET", "/api/sites", sites_list},
};

/* The port that was opened.  Requests may come before it is known, from whoever tries all ports: as
 * they name another port than 0, they are refused.  Nothing else is published by it: relaxed. */
static _Atomic(unsigned) listens_at;

static unsigned own_port(void)
{
    return atomic_load_explicit(&listens_at, memory_order_relaxed);
}

/* Whether `host` is this server as the browser of this machine knows it: name:port. */
static bool is_own_host(const char *host)
{
    char own[2][32];

    (void)snprintf(own[0], sizeof own[0], "127.0.0.1:%u", own_port());
    (void)snprintf(own[1], sizeof own[1], "localhost:%u", own_port());
    return host && (strcmp(host, own[0]) == 0 || strcmp(host, own[1]) == 0);
}

static bool is_own_origin(const request *r)
{
    static const char scheme[] = "http://";
    const char       *origin   = mg_get_header(r->c, "Origin");
    const char       *site     = mg_get_header(r->c, "Sec-Fetch-Site");

    if (site && strcmp(site, "same-origin") != 0 && strcmp(site, "none") != 0)
        return false;
    return !origin || (strncmp(origin, scheme, sizeof scheme - 1) == 0 &&
                       is_own_host(origin + sizeof scheme - 1));
}

static bool has_token(const request *r)
{
    static const char scheme[] = "Bearer ";
    const char       *given    = mg_get_header(r->c, "Authorization");

    return given && strncmp(given, scheme, sizeof scheme - 1) == 0 &&
           token_equal(r->w->token, given + sizeof scheme - 1);
}

static int call(request *r)
{
    bool is_known = false;

    for (size_t i = 0; i < sizeof routes / sizeof *routes; i++) {
        if (strcmp(routes[i].path, r->info->local_uri) != 0)
            continue;
        if (strcmp(routes[i].method, r->info->request_method) == 0)
            return routes[i].fn(r);
        is_known = true;
    }
    return is_known ? answer_error(r, 405, "this address does not take %s", r->info->request_method)
                    : answer_error(r, 404, "there is nothing at this address");
}

static int on_request(struct mg_connection *c)
{
    const struct mg_request_info *info = mg_get_request_info(c);
    request                       r    = {c, info, info->user_data};
    int                           status;

    if (!is_own_host(mg_get_header(c, "Host")))
        return answer_error(&r, 403,
                            "this server is http://127.0.0.1:%u; another name for it is "
                            "refused",
                            own_port());
    if (!is_own_origin(&r))
        return answer_error(&r, 403, "requests of other pages are refused");
    if (files_answer(&r, &status))
        return status;
    if (!has_token(&r))
        return answer_error(&r, 401,
                            "the token is missing or wrong: open the address that usm-web "
                            "has printed");
    return call(&r);
}

/* civetweb's own messages: only the reason why it does not start is of use, and is told here. */
static int on_log(const struct mg_connection *c, const char *message)
{
    (void)c;
    (void)message;
    return 1;
}

/* Why the port could not be opened: asks for it once more. */
static const char *port_error(unsigned port)
{
    struct sockaddr_in at = {.sin_family      = AF_INET,
                             .sin_port        = htons((uint16_t)port),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int                fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), error = 0;

    if (fd < 0 || bind(fd, (const struct sockaddr *)&at, sizeof at) || listen(fd, 1))
        error = errno;
    if (fd >= 0)
        (void)close(fd);
    return error ? strerror(error) : "the server did not start";
}

struct mg_context *server_start(web *w)
{
    struct mg_callbacks   callbacks = {.begin_request = on_request, .log_message = on_log};
    struct mg_server_port port;
    struct mg_context    *server;
    char                  listen_at[32], threads[16];
    const char           *options[] = {"listening_ports",
                                       listen_at,
                                       "num_threads",
                                       threads,
                                       "request_timeout_ms",
                                       "10000",
                                       "tcp_nodelay",
                                       "1",
                                       "enable_keep_alive",
                                       "yes",
                                       "keep_alive_timeout_ms",
                                       "500",
                                       NULL};

    (void)snprintf(listen_at, sizeof listen_at, "127.0.0.1:%u", w->port);
    (void)snprintf(threads, sizeof threads, "%d", THREADS);
    server = mg_start(&callbacks, w, options);
    if (!server) {
        fprintf(stderr,
                "usm-web: port %u of 127.0.0.1 cannot be opened: %s; choose another one with "
                "--port, or none, for one that is free\n",
                w->port, port_error(w->port));
        return NULL;
    }
    (void)signal(SIGCHLD, SIG_DFL); /* mg_start() ignores it, and waitpid() would find no child */
    if (mg_get_server_ports(server, 1, &port) == 1)
        w->port = (unsigned)port.port;
    atomic_store_explicit(&listens_at, w->port, memory_order_relaxed);
    return server;
}
