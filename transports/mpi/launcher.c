/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The command that has started this process's job, changed so that the job would survive more.
 * Called by describe.c.
 *
 * The launcher is the nearest ancestor whose program has the name of one, and its words are those
 * of its command line in /proc.  They can be found only on the node of the launcher: elsewhere the
 * ancestor is orted, prted or a daemon of Slurm.  A command that cannot be found exactly is not
 * shown. */
#include "internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define LEVELS 16 /* of ancestors */
#define WORDS  4096

/* The words one after the other, each with its zero. */
typedef struct words {
    char   text[WORDS];
    size_t size;
} words;

/* ---- reading ------------------------------------------------------------------------------ */

/* Reads /proc/PID/FILE; returns the size if it is less than `cap`, else 0. */
static size_t read_proc(long pid, const char *file, char *text, size_t cap)
{
    char   path[64];
    FILE  *f;
    size_t n;

    (void)snprintf(path, sizeof(path), "/proc/%ld/%s", pid, file);
    f = fopen(path, "re");
    if (!f)
        return 0;
    n = fread(text, 1, cap, f);
    (void)fclose(f);
    return n < cap ? n : 0;
}

/* 0: there is none. */
static long parent_of(long pid)
{
    char         text[1024];
    const size_t n = read_proc(pid, "stat", text, sizeof(text) - 1);
    const char  *end;

    text[n] = '\0';
    end     = strrchr(text, ')'); /* the end of the name, which may contain anything */
    return end && strlen(end) > 4 ? strtol(end + 4, NULL, 10) : 0;
}

static const char *next_word(const words *w, const char *at)
{
    at += strlen(at) + 1;
    return at < w->text + w->size ? at : NULL;
}

/* "/usr/bin/mpirun.openmpi" is mpirun. */
static bool is_named(const char *program, const char *const *names)
{
    const char  *slash = strrchr(program, '/');
    const char  *name  = slash ? slash + 1 : program;
    const size_t n     = strcspn(name, ".");

    for (; *names; names++)
        if (strlen(*names) == n && strncmp(name, *names, n) == 0)
            return true;
    return false;
}

/* The words of the launcher, if it is one of `wanted`. */
static bool find_launcher(words *w, const char *const *wanted)
{
    static const char *const all[] = {"mpirun", "mpiexec", "orterun", "prterun", "srun", NULL};
    long                     pid   = (long)getppid();

    for (int level = 0; level < LEVELS && pid > 1; level++) {
        w->size = read_proc(pid, "cmdline", w->text, sizeof(w->text));
        if (w->size && w->text[w->size - 1] != '\0')
            return false; /* it has written over its words */
        if (w->size && is_named(w->text, all))
            return is_named(w->text, wanted);
        pid = parent_of(pid);
    }
    return false;
}

/* ---- writing ------------------------------------------------------------------------------ */

/* A line that grows; once it is too long, or has a character that is not allowed, it stays bad. */
typedef struct line {
    char  *text;
    size_t cap, n;
    bool   is_bad;
} line;

static void put(line *l, const char *text, size_t n)
{
    if (l->is_bad || n >= l->cap - l->n) {
        l->is_bad = true;
        return;
    }
    memcpy(l->text + l->n, text, n);
    l->n += n;
    l->text[l->n] = '\0';
}

static void put_text(line *l, const char *text)
{
    put(l, text, strlen(text));
}

static bool is_plain(const char *word, size_t n)
{
    static const char plain[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_@%+=:,./-";

    return n > 0 && strspn(word, plain) >= n;
}

/* Quotes a word for a shell.  What follows "..._KEY=" is not shown. */
static void put_word(line *l, const char *word)
{
    const char *key  = strstr(word, "_KEY=");
    const char *end  = key ? key + strlen("_KEY=") : word + strlen(word);
    const char *mark = is_plain(word, (size_t)(end - word)) ? "" : "'";

    put_text(l, l->n ? " " : "");
    put_text(l, mark);
    for (; word < end; word++) {
        l->is_bad |= (unsigned char)*word < ' ';
        put(l, *word == '\'' ? "'\\''" : word, *word == '\'' ? 4 : 1);
    }
    put_text(l, key ? "..." : "");
    put_text(l, mark);
}

static void put_words(line *l, const words *w, const char *from)
{
    for (; from; from = next_word(w, from))
        put_word(l, from);
}

/* ---- the two forms ------------------------------------------------------------------------ */

/* Open MPI 5's mpirun becomes prterun, which does not know MPI's options when a user starts it. */
static void put_launcher(line *l, const char *program)
{
    const char  *slash = strrchr(program, '/');
    const size_t n     = slash ? (size_t)(slash + 1 - program) : 0;
    char         path[512];

    if (strcmp(program + n, "prterun") != 0) {
        put_word(l, program);
        return;
    }
    (void)snprintf(path, sizeof(path), "%.*smpirun", (int)n, program);
    put_word(l, n && access(path, X_OK) == 0 ? path : "mpirun");
}

bool mpi_launcher_with(const char *options, char *text, size_t cap)
{
    static const char *const open_mpi[] = {"mpirun", "mpiexec", "orterun", "prterun", NULL};
    line                     l          = {text, cap, 0, false};
    words                    w;

    if (!find_launcher(&w, open_mpi))
        return false;
    put_launcher(&l, w.text);
    put_text(&l, " ");
    put_text(&l, options);
    put_words(&l, &w, next_word(&w, w.text));
    return !l.is_bad;
}

/* The first word of the program, after options that only say how many ranks there are, and on which
 * nodes (another launcher has its own); NULL: there are other options. */
static const char *find_program(const words *w, const char **ranks)
{
    static const char *const nodes[] = {"-ppn", "-host", "-hosts", "-f", "-hostfile", NULL};
    const char              *at      = next_word(w, w->text);

    *ranks = NULL;
    while (at && *at == '-') {
        const char *value = next_word(w, at);

        if (strcmp(at, "-n") == 0 || strcmp(at, "-np") == 0)
            *ranks = value;
        else if (!is_named(at, nodes))
            return NULL;
        at = value ? next_word(w, value) : NULL;
    }
    return *ranks ? at : NULL;
}

bool mpi_launcher_instead(const char *command, char *text, size_t cap)
{
    static const char *const hydra[] = {"mpirun", "mpiexec", NULL};
    line                     l       = {text, cap, 0, false};
    const char              *ranks, *program;
    words                    w;

    if (!find_launcher(&w, hydra))
        return false;
    program = find_program(&w, &ranks);
    for (const char *at = program; at; at = next_word(&w, at))
        if (strcmp(at, ":") == 0) /* several programs: another launcher needs a file for them */
            return false;
    if (!program)
        return false;
    put_text(&l, command);
    put_word(&l, "-n");
    put_word(&l, ranks);
    put_words(&l, &w, program);
    return !l.is_bad;
}
