/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Processes that compute when they are told to, and what their figures come to (offload.h).  A
 * process dies with this one. */
#include "offload.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define ANSWER_WITHIN_MS 120000
#define END_WITHIN_MS    5000

/* ---- a process ----------------------------------------------------------------------- */

static bool fail(offload_peer *p, const char *why)
{
    snprintf(p->why, sizeof p->why, "%s", why);
    return false;
}

/* In the child: becomes the program. */
static _Noreturn void become(const offload_peer *p, int to, int from, bool is_verbose)
{
    int err = p->log ? open(p->log, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600)
                     : open("/dev/null", O_WRONLY | O_CLOEXEC);

    (void)prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (dup2(to, 0) < 0 || dup2(from, 1) < 0 || err < 0)
        _exit(127);
    if ((p->log || !is_verbose) && dup2(err, 2) < 0)
        _exit(127);
    for (size_t i = 0; p->env[i]; i++)
        (void)putenv((char *)(uintptr_t)p->env[i]); /* NOLINT(concurrency-mt-unsafe): one thread */
    execv(p->words[0], (char **)(uintptr_t)p->words);
    _exit(127);
}

/* The next line, without its end. */
static bool read_line(offload_peer *p, char *line, size_t cap)
{
    struct pollfd from = {.fd = p->from, .events = POLLIN};
    size_t        have = strlen(p->rest);
    char         *end;

    while ((end = strchr(p->rest, '\n')) == NULL) {
        ssize_t n;

        if (have + 1 == sizeof p->rest)
            return fail(p, "its line has no end");
        if (poll(&from, 1, ANSWER_WITHIN_MS) <= 0)
            return fail(p, "no answer within two minutes");
        n = read(p->from, p->rest + have, sizeof p->rest - 1 - have);
        if (n <= 0)
            return fail(p, "its process ended");
        have += (size_t)n;
        p->rest[have] = '\0';
    }
    snprintf(line, cap, "%.*s", (int)(end - p->rest), p->rest);
    memmove(p->rest, end + 1, strlen(end + 1) + 1);
    return true;
}

static void read_stats(offload_peer *p, const char *line)
{
    (void)sscanf(line, "stats chunks=%" SCNu64 " spread=%lf sent=%" SCNu64, &p->chunks, &p->spread,
                 &p->sent);
}

/* Its next answer: all else is what libraries print. */
static bool read_answer(offload_peer *p, const char *mark)
{
    char  line[512];
    char *at;

    while (read_line(p, line, sizeof line)) {
        read_stats(p, line);
        at = strstr(line, mark);
        if (!at)
            continue;
        if ((at = strstr(line, " wall_ms=")) != NULL)
            (void)sscanf(at, " wall_ms=%lf cpu_ms=%lf", &p->wall_ms, &p->cpu_ms);
        if ((at = strstr(line, " answer=")) != NULL)
            p->answer = strtoull(at + 8, NULL, 16);
        return true;
    }
    return false;
}

bool offload_start(offload_peer *p, bool is_verbose)
{
    int to[2], from[2];

    p->rest[0] = '\0';
    if (!p->words[0])
        return fail(p, "it was not built");
    if (pipe2(to, O_CLOEXEC) != 0 || pipe2(from, O_CLOEXEC) != 0)
        return fail(p, "no pipe can be had");
    (void)fflush(NULL);
    p->pid = fork();
    if (p->pid == 0)
        become(p, to[0], from[1], is_verbose);
    close(to[0]);
    close(from[1]);
    p->to   = to[1];
    p->from = from[0];
    if (p->pid < 0) {
        close(p->to);
        close(p->from);
        p->pid = 0;
        return fail(p, "no process can be had");
    }
    if (read_answer(p, "ready "))
        return true;
    offload_stop(p);
    return false;
}

bool offload_go(offload_peer *p, unsigned chunks)
{
    char      text[32];
    const int n = snprintf(text, sizeof text, "go %u\n", chunks);

    if (p->pid == 0)
        return false;
    if (write(p->to, text, (size_t)n) != n)
        return fail(p, "its process ended");
    return read_answer(p, " wall_ms=");
}

void offload_stop(offload_peer *p)
{
    struct pollfd from = {.fd = p->from};

    if (p->pid == 0)
        return;
    close(p->to); /* it ends at the end of its input, and closes its output */
    (void)poll(&from, 1, END_WITHIN_MS);
    close(p->from);
    kill(p->pid, SIGTERM);
    waitpid(p->pid, NULL, 0);
    p->pid = 0;
}

/* ---- samples --------------------------------------------------------------------------- */

static int compare_doubles(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static void sort(const offload_samples *s, double value[OFFLOAD_ROUNDS_MAX])
{
    memcpy(value, s->value, s->n * sizeof *value);
    qsort(value, s->n, sizeof *value, compare_doubles);
}

void offload_sample(offload_samples *s, double value)
{
    if (s->n < OFFLOAD_ROUNDS_MAX)
        s->value[s->n++] = value;
}

double offload_median(const offload_samples *s)
{
    double value[OFFLOAD_ROUNDS_MAX];

    if (s->n == 0)
        return 0;
    sort(s, value);
    return s->n % 2 ? value[s->n / 2] : (value[s->n / 2 - 1] + value[s->n / 2]) / 2;
}

/* The median lies below the k + 1st smallest with the chance that at most k of n coins show heads:
 * of both ends as many samples are left out as that stays under 2.5 %. */
void offload_interval(const offload_samples *s, double *low, double *high)
{
    double   value[OFFLOAD_ROUNDS_MAX], one = pow(0.5, s->n), sum = one;
    unsigned left_out = 0;

    *low = *high = 0;
    if (s->n == 0)
        return;
    sort(s, value);
    for (unsigned k = 0; sum <= 0.025 && 2 * (k + 1) < s->n; k++) {
        left_out = k;
        one      = one * (s->n - k) / (k + 1);
        sum += one;
    }
    *low  = value[left_out];
    *high = value[s->n - 1 - left_out];
}
