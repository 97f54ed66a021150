/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Shared by the files of usm-web, which shows this machine, its programs and graphs of usm-run in a
 * browser.
 *
 *     main.c      the command line
 *     server.c    requests: who may ask, which function answers
 *     token.c     the secret that each request carries
 *     files.c     the page: files inside the program
 *     answer.c    answers: headers, JSON, errors
 *     child.c     the other tools, as children with bounds of time and memory
 *     machine.c   devices and limits (usm-info); processors, memories, links (sysfs)
 *     hwloc.c     the same as lstopo sees it; no_hwloc.c where hwloc is not installed
 *     compose.c   files of the folder: list, read, save; checks of apps (usm-run --dry-run)
 *     runs.c      apps that run: usm-run as a child, its progress, its results
 *     kept.c      what stopped runs had ended, to be resumed from
 *     graphs.c    graphs of usm-run that were started elsewhere
 *     processes.c processes that use libusm, by their monitor pages (usm-top's model)
 *     sites.c     who holds memory in a process that writes a trace (usm-prof)
 *     traces.c    pages and timelines of traces (usm-prof)
 *     live.c      the stream of events that pages listen to
 *
 * Threads: civetweb calls the functions of requests on its own threads, several at once; each run
 * has one more, which reads what usm-run writes.  `web` is fixed once the server listens (requests
 * do not read the port); the state that changes is that of runs.c, processes.c and graphs.c, under their locks. */
#ifndef USM_WEB_WEB_H
#define USM_WEB_WEB_H

#include "base/json.h"
#include "beneath.h"

#include <civetweb.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

enum {
    TOKEN_BYTES  = 16,
    TOKEN_DIGITS = 2 * TOKEN_BYTES,
    TEXT_MAX     = 16 << 20, /* of an app, of a file that is shown */
    RUNS_MAX     = 16,
    STREAMS_MAX  = 24,             /* pages that listen at the same time */
    STORES_MAX   = 4,              /* of --store */
    THREADS      = STREAMS_MAX + 8 /* so that listening pages leave some for requests */
};

typedef struct web {
    tool_root   folder; /* the one that apps may read and write */
    char       *tools;  /* the folder of usm-info, usm-run, usm-prof */
    char        token[TOKEN_DIGITS + 1];
    unsigned    port;
    const char *stores[STORES_MAX]; /* of --store, for usm-run */
    size_t      nstores;
} web;

typedef struct request {
    struct mg_connection         *c;
    const struct mg_request_info *info;
    const web                    *w;
} request;

/* Answers a request; returns its HTTP status. */
typedef int handler(request *r);

/* ---- server.c: NULL, and the reason is printed */
struct mg_context *server_start(web *w);

/* ---- token.c */
bool token_make(char *token); /* TOKEN_DIGITS and 0 */
/* Takes the same time wherever the two differ. */
bool token_equal(const char *token, const char *given);

/* ---- files.c: false if the page has no such file */
bool files_answer(request *r, int *status);

/* ---- answer.c */
int answer(request *r, int status, const char *type, const void *body, size_t size);
/* {"error": a sentence} */
int answer_error(request *r, int status, const char *format, ...) USM_PRINTF(3, 4);
/* The headers that all answers have. */
void answer_head(request *r, int status, const char *type);
/* A text that json_close() sends; json_open() fails when no memory is left, and has answered. */
typedef struct json_answer {
    usm__json j;
    char     *text;
    size_t    size;
} json_answer;
bool json_open(request *r, json_answer *a);
int  json_close(request *r, int status, json_answer *a);
/* A field of the query, decoded; false if there is none, or it is longer than size - 1. */
bool query_text(const request *r, const char *key, char *text, size_t size);
/* The body, 0-terminated, that the caller frees; NULL: it has been answered. */
char *read_body(request *r, size_t *size);

/* ---- child.c */
typedef struct child_plan {
    const char        *program; /* the name of a tool */
    const char *const *args;    /* without the program, ended by NULL */
    const char        *in;      /* its standard input */
    size_t             in_size;
    int                folder; /* its working folder, opened; -1: that of this program */
    uint64_t           memory; /* bytes of data it may have; 0: no limit */
} child_plan;
typedef struct child {
    pid_t pid;
    int   out, err; /* to be read, non-blocking */
} child;
/* 0, or errno. */
int child_start(const web *w, const child_plan *plan, child *c);
/* What a stream has said: at most `max` bytes are kept, and the rest is read and dropped. */
typedef struct child_text {
    char  *text; /* NULL, or 0-terminated */
    size_t size, max;
    bool   is_cut, is_ended;
} child_text;
/* Waits until a stream has something or has ended, or for ms.  Returns false when both have ended.
 */
bool child_read(child *c, child_text *out, child_text *err, int ms);
/* Closes the streams and waits for the end; the status of waitpid(). */
int child_end(child *c);
/* Adds "--store NAME:SERVERS" for each of the command line behind n arguments of usm-run; returns how
 * many there are then. */
size_t child_add_stores(const web *w, const char **args, size_t n);
/* All of it, killed after `seconds`.  0, or errno (ETIMEDOUT).  The caller frees both texts. */
int child_run(const web *w, const child_plan *plan, int seconds, child_text *out, child_text *err,
              int *status);
/* "was killed: Segmentation fault", "ended with exit status 1" */
const char *child_end_text(int status, char *text, size_t size);

/* ---- machine.c, compose.c, runs.c, live.c */
handler machine_devices, machine_topology;
handler compose_list, compose_read, compose_save, compose_check;
handler runs_start, runs_resume, runs_stop, runs_result, runs_app;
handler graphs_text, graphs_stop;
handler traces_export;
handler processes_map, sites_list;
handler live_stream;
void    live_end(void); /* of all streams */

/* Whether the query names a file; if not, it has been answered. */
bool compose_path(request *r, char *path); /* of PATH_MAX bytes */
/* Opens the folder of an app, a name relative to the web's folder; -1, and it has been answered. */
int compose_folder_of(request *r, const char *path);

/* What a device on PCI is, by its class code of 24 bits; NULL: nothing that memory travels to. */
const char *machine_pci_kind(unsigned long class_code);
/* To be called before there are threads: the environment is changed. */
void machine_begin(void);
/* Writes the key "tree", an array of one object, as hwloc sees the machine; nothing without hwloc. */
void machine_write_tree(usm__json *j);

/* The use of processors and memory, for the stream; keeps what it saw last. */
typedef struct machine_use {
    uint64_t busy[1024], all[1024];
} machine_use;
void machine_write_use(usm__json *j, machine_use *last);

/* Writes the states of all runs if any is newer than *version, and says so. */
bool runs_write_new(usm__json *j, uint64_t *version);
/* Writes what usm-top knows of all processes, if it is newer than *seen, and says so.  now_ms: of
 * CLOCK_MONOTONIC. */
bool processes_write_new(usm__json *j, uint64_t *seen, uint64_t now_ms);
/* The process that the query names, if the stream has shown it; 0: it has been answered. */
uint32_t processes_asked(request *r);
/* Waits until a run is newer than `version`, at most for ms. */
void runs_wait(uint64_t version, int ms);
/* Whether that process is the child of a run. */
bool runs_has_child(pid_t pid);
/* Ends the children of all runs, and removes what was kept of them. */
void runs_end(const web *w);

/* ---- kept.c: the folder of a run, by its number; "" if nothing can be kept */
void kept_path(const web *w, uint64_t number, char *path, size_t size);
bool kept_is_there(const char *path);
void kept_remove(const char *path);
void kept_end(const web *w);

/* Writes the graphs that processes show, if anything of them is newer than *seen, and says so. */
bool graphs_write_new(usm__json *j, uint64_t *seen, uint64_t now_ms);

#endif
