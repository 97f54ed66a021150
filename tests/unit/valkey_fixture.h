/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Servers for tests: valkey-server or redis-server, whichever is installed, each without files, in
 * a folder of the test, ended by its process id. */
#ifndef VALKEY_FIXTURE_H
#define VALKEY_FIXTURE_H

#include "transport_fixture.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <plain.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>

typedef struct server {
    pid_t pid;
    int   port, cluster_port;
    char  path[108]; /* of its socket       */
} server;

/* The program's name; NULL: there is none.  Debian's redis-tools has the server under another name,
 * and does what its own name says. */
static inline const char *server_program(void)
{
    static const char *const names[] = {"valkey-server", "redis-server", "valkey-check-rdb",
                                        "redis-check-rdb"};
    const char              *folders = getenv("PATH");
    char                     path[512];

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        for (const char *at = folders; at && *at; at += strcspn(at, ":"), at += *at == ':') {
            (void)snprintf(path, sizeof(path), "%.*s/%s", (int)strcspn(at, ":"), at, names[i]);
            if (access(path, X_OK) == 0)
                return names[i];
        }
    return NULL;
}

static inline int server_dial(const server *s)
{
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    int                fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    CHECK(fd >= 0);
    memcpy(to.sun_path, s->path, sizeof(to.sun_path));
    if (connect(fd, (const struct sockaddr *)&to, sizeof(to)) == 0)
        return fd;
    (void)close(fd);
    return -1;
}

/* The answer to a command, as far as it comes at once; "": there is no server. */
static inline const char *server_say(const server *s, const char *command)
{
    static char answer[4096];
    char        line[1024];
    int         fd = server_dial(s);
    ssize_t     n  = -1;

    answer[0] = '\0';
    if (fd < 0)
        return answer;
    (void)snprintf(line, sizeof(line), "%s\r\n", command);
    if (send(fd, line, strlen(line), MSG_NOSIGNAL) == (ssize_t)strlen(line))
        n = recv(fd, answer, sizeof(answer) - 1, 0);
    answer[n > 0 ? n : 0] = '\0';
    (void)close(fd);
    return answer;
}

static inline void server_await(const server *s)
{
    for (int i = 0; i < 10000; i++) {
        const char *answer = server_say(s, "PING");

        if (answer[0] == '+' || strncmp(answer, "-NOAUTH", 7) == 0)
            return;
        (void)usleep(1000);
    }
    plain_fail(__FILE__, __LINE__, "the server starts");
}

/* A port that nobody has at the moment. */
static inline int server_free_port(void)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t          n  = sizeof(at);
    int                fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    CHECK(fd >= 0 && bind(fd, (const struct sockaddr *)&at, sizeof(at)) == 0);
    CHECK(getsockname(fd, (struct sockaddr *)&at, &n) == 0);
    (void)close(fd);
    return ntohs(at.sin_port);
}

/* Starts it again, empty, at the same addresses.  `options`: more lines of its configuration; NULL:
 * none. */
static inline void server_restart(server *s, const char *options)
{
    const char *path = plain_path("server.conf");
    char        text[4096];

    (void)snprintf(text, sizeof(text),
                   "port %d\nbind 127.0.0.1\nunixsocket %s\nsave \"\"\nappendonly no\n"
                   "daemonize no\ndir %s\nlogfile /dev/null\n%s\n",
                   s->port, s->path, plain.folder, options ? options : "");
    plain_write(path, text);
    (void)fflush(NULL);
    s->pid = fork();
    CHECK(s->pid >= 0);
    if (s->pid == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL); /* a test that crashes leaves no server */
        (void)execlp(server_program(), "redis-server", path, (char *)NULL);
        _exit(127);
    }
    server_await(s);
}

static inline void server_start(server *s, const char *options)
{
    static int n;
    char       name[32];

    (void)snprintf(name, sizeof(name), "s%d", n++);
    (void)snprintf(s->path, sizeof(s->path), "%.107s", plain_path(name));
    CHECK(strlen(s->path) < sizeof(s->path) - 1);
    s->port = server_free_port();
    server_restart(s, options);
}

/* Why there can be no test; NULL: there can.  Loads the module. */
static inline const char *valkey_missing(void)
{
    const char *why = load_transport("valkey");

    if (!why && !server_program())
        why = "there is neither valkey-server nor redis-server here (Debian: redis-tools)";
    return why;
}

/* The server's commands are done a moment after they were sent. */
static inline void check_keys(const server *s, const char *answer)
{
    for (int i = 0; i < 5000 && !strstr(server_say(s, "DBSIZE"), answer); i++)
        module_sleep_ms(1);
    CHECK_IN(answer, server_say(s, "DBSIZE"));
}

static inline void server_kill(server *s)
{
    if (s->pid == 0)
        return; /* a case that failed has killed it; 0 would be the whole group */
    CHECK(kill(s->pid, SIGKILL) == 0);
    CHECK(waitpid(s->pid, NULL, 0) == s->pid);
    (void)unlink(s->path);
    s->pid = 0;
}

#endif
