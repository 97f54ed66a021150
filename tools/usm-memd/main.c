/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* usm-memd: lends the memory of a node that computes nothing to the program it was started with.
 *
 * This file has the command line, finds the MPI whose launcher has started the tool, and ends.  The
 * MPI module (transports/mpi) serves the memory, and also initialises MPI: this program links none,
 * so one program works with all of them.
 *
 * It ends when all ranks of the program have left the job, or were silent for USM_JOB_ORPHAN.  It
 * never waits long for others in MPI_Finalize(), which would wait for dead processes. */
#include "cluster/attach.h"

#include "base/settings.h"
#include "options.h"

#include <usm/init.h>

#include <getopt.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { FINE = 0, FAILED = 1, FINALIZE_S = 5 };

static const char help[] =
    "usage: mpirun ... PROGRAM : -n N usm-memd [OPTION]...\n"
    "\n"
    "Lends memory of its node to the ranks of PROGRAM, which runs in the same mpirun and takes\n"
    "usm_mpi_app_comm() for MPI_COMM_WORLD.  What it holds is freed, and it ends, when they have\n"
    "left or were silent for USM_JOB_ORPHAN (30 s).\n"
    "\n"
    "  -l, --lend SIZE  memory to lend, as 8G (USM_SPILL_LEND)\n"
    "  -m, --mpi NAME   openmpi, mpich, mpich12 or abi: the program's MPI (USM_MPI); otherwise\n"
    "                   the one of the launcher that has started it\n"
    "  -q, --quiet      do not say what is lent\n"
    "  -V, --version\n"
    "  -h, --help\n"
    "\n"
    "USM_SPILL_DOMAIN, USM_JOB_LEASE, USM_JOB_ORPHAN, USM_JOB_KEY, USM_JOB_KEY_FILE hold for it "
    "as\n"
    "for the program.\n";

static volatile int stop;
static volatile int rc = FINE;

static void on_signal(int number)
{
    (void)number;
    stop = 1;
}

static void on_alarm(int number)
{
    (void)number;
    _exit(rc); /* the lent memory is free already: MPI waits for a dead process */
}

static int failed(void)
{
    (void)fprintf(stderr, "usm-memd: %s\n", usm_last_error());
    return FAILED;
}

static bool set(const char *key, const char *value)
{
    return usm_config_set(key, value) == USM_OK;
}

static int take_setting(const tool *t, const tool_option *o, void *line, const char *value)
{
    (void)t, (void)line;
    return set(o->letter == 'l' ? "spill_lend" : "mpi", value) ? -1 : failed();
}

static const tool_option options[] = {
    {.name = "lend", 'l', TOOL_CALL, 0, take_setting},
    {.name = "mpi", 'm', TOOL_CALL, 0, take_setting},
    {.name = "quiet", 'q', TOOL_FLAG, 0},
    {.name = NULL},
};
static const tool memd = {"usm-memd", help, options};

/* ---- which MPI ---------------------------------------------------------------------------- */

static usm_status load(const usm_transport_ops **ops)
{
    const char        *named  = usm__setting_text("mpi");
    const char *const *names  = usm__cluster_candidates();
    const char        *one[2] = {NULL, NULL};
    usm_status         st     = USM_E_MPI;

    if (named && *named && strcmp(named, "auto") != 0) {
        one[0] = named;
        names  = one;
    }
    if (!names) {
        (void)fputs("usm-memd: no launcher of MPI has started this process; start it in the "
                    "program's mpirun: mpirun -n 4 PROGRAM : -n 1 usm-memd --lend 8G\n",
                    stderr);
        return st;
    }
    for (size_t i = 0; names[i] && st != USM_OK; i++)
        st = usm__cluster_load(names[i], ops);
    if (st != USM_OK && usm__cluster_load(names[0], ops) != USM_OK)
        (void)failed(); /* with the error message of the most likely one */
    return st;
}

/* ---- serving -------------------------------------------------------------------------------- */

static void say(const usm_transport_ops *ops, void *job, const usm_job_params *params)
{
    char     text[1024] = "", host[64] = "?";
    uint32_t self = 0, count = 0;

    ops->job_describe(job, text, sizeof(text));
    (void)gethostname(host, sizeof(host) - 1);
    if (ops->members(job, &self, &count) == USM_OK)
        (void)printf("usm-memd: member %u of %u, %s: lends %llu MiB%s (%.*s)\n", self, count, host,
                     (unsigned long long)(params->lend >> 20), params->key ? ", with a key" : "",
                     (int)strcspn(text, "\n"), text);
    (void)fflush(stdout);
}

static int serve(const usm_transport_ops *ops, bool is_quiet)
{
    usm_job_params params = {.struct_size = sizeof(params)};
    void          *job    = NULL;
    usm_status     st     = usm__cluster_params(&params);

    if (st != USM_OK)
        return failed();
    if (params.lend == 0) {
        (void)fputs("usm-memd: nothing to lend: --lend SIZE or USM_SPILL_LEND says how much\n",
                    stderr);
        return TOOL_MISUSED;
    }
    params.is_server = true;
    if (ops->attach(&params, &job) != USM_OK)
        return failed();
    if (!is_quiet)
        say(ops, job, &params);
    st = ops->serve(job, &stop);
    if (st != USM_OK)
        (void)failed();
    rc = st == USM_OK ? FINE : FAILED;
    (void)signal(SIGALRM, on_alarm);
    (void)alarm(FINALIZE_S);
    ops->detach(job, false);
    return rc;
}

int main(int argc, char **argv)
{
    const usm_transport_ops *ops      = NULL;
    bool                     is_quiet = false;
    int                      status   = tool_parse(&memd, argc, argv, false, &is_quiet);

    if (status >= 0)
        return status;
    if (optind < argc) {
        (void)fprintf(stderr, "usm-memd: %s is too much\nTry usm-memd --help.\n", argv[optind]);
        return TOOL_MISUSED;
    }
    (void)signal(SIGTERM, on_signal);
    (void)signal(SIGINT, on_signal);
    (void)signal(SIGPIPE, SIG_IGN); /* MPI writes to processes that have ended */
    if (load(&ops) != USM_OK)
        return FAILED;
    return serve(ops, is_quiet);
}
