/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* usm-web: this machine, and graphs of kernels to be drawn, run and watched, in a browser.
 *
 * This file has the command line.  The manual is docs/man/usm-web.1. */
#include "options.h"
#include "web.h"

#include <errno.h>
#include <getopt.h>
#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct command_line {
    unsigned    port;
    const char *folder;
    const char *stores[STORES_MAX];
    size_t      nstores;
} command_line;

static const char help[] =
    "usage: usm-web [FOLDER] [options]\n"
    "\n"
    "Shows this machine and graphs of kernels in a browser, where they can be drawn, checked, run\n"
    "and watched.  Prints the address to open.  Files of FOLDER, by default the working folder,\n"
    "are read and written, and none outside of it.  Ends with Ctrl-C.\n"
    "\n"
    "  -p, --port N   the port of 127.0.0.1; by default one that is free\n"
    "      --store NAME:SERVERS\n"
    "                 where values \"NAME:KEY\" of apps are: valkey:host:port; at most 4 times\n"
    "  -V, --version\n"
    "  -h, --help\n";

static int take_store(const tool *t, const tool_option *o, void *line, const char *text)
{
    command_line *c     = line;
    const char   *colon = strchr(text, ':');

    (void)o;
    if (!colon || colon == text)
        return tool_misuse(t, "--store is followed by NAME:SERVERS, as in valkey:cache1:6379");
    if (c->nstores == STORES_MAX)
        return tool_misuse(t, "--store is there more than 4 times");
    c->stores[c->nstores++] = text;
    return -1;
}

static const tool_option options[] = {
    {.name = "port",
     'p',
     TOOL_NUMBER,
     offsetof(command_line, port),
     .wants = "--port wants a number from 1 to 65535",
     .least = 1,
     .most  = 65535},
    {.name = "store", 0, TOOL_CALL, 0, take_store},
    {.name = NULL},
};
static const tool usm_web = {"usm-web", help, options};

static int parse(command_line *c, int argc, char **argv)
{
    int rc = tool_parse(&usm_web, argc, argv, false, c);

    if (rc < 0 && optind + 1 < argc)
        return tool_misuse(&usm_web, "one folder at a time");
    if (rc < 0)
        c->folder = optind < argc ? argv[optind] : ".";
    return rc;
}

/* The folder of this program, in which the other tools are.  The caller frees it. */
static char *find_tools(void)
{
    char *path  = realpath("/proc/self/exe", NULL);
    char *slash = path ? strrchr(path, '/') : NULL;

    if (slash)
        *slash = '\0';
    return path;
}

/* Serves until a signal ends it. */
static int serve(web *w)
{
    struct mg_context *server;
    sigset_t           ends;
    int                number;

    (void)signal(SIGPIPE, SIG_IGN);
    (void)sigemptyset(&ends);
    (void)sigaddset(&ends, SIGINT);
    (void)sigaddset(&ends, SIGTERM);
    (void)sigaddset(&ends, SIGHUP);
    (void)sigprocmask(SIG_BLOCK, &ends, NULL); /* of all threads: sigwait() takes them */
    machine_begin();
    server = server_start(w);
    if (!server)
        return 1;
    printf("http://127.0.0.1:%u/#token=%s\n", w->port, w->token);
    (void)fflush(stdout);
    (void)sigwait(&ends, &number);
    runs_end(w);
    live_end();
    mg_stop(server);
    return 0;
}

int main(int argc, char **argv)
{
    command_line c  = {.port = 0};
    web          w  = {.folder.fd = -1};
    int          rc = parse(&c, argc, argv), error;

    if (rc >= 0)
        return rc;
    w.port = c.port;
    memcpy(w.stores, c.stores, sizeof w.stores);
    w.nstores = c.nstores;
    w.tools   = find_tools();
    error     = tool_root_open(&w.folder, c.folder);
    rc        = 1;
    if (error)
        fprintf(stderr, "usm-web: %s: %s\n", c.folder, strerror(error));
    else if (!w.tools || !token_make(w.token))
        fprintf(stderr, "usm-web: it does not start: %s\n", strerror(errno));
    else
        rc = serve(&w);
    if (w.folder.fd >= 0)
        (void)close(w.folder.fd);
    free(w.folder.path);
    free(w.tools);
    return rc;
}
