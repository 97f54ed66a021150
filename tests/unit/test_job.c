/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* What the launchers' variables say of the process, and what follows from it: the program starts
 * itself anew with the variables of each launcher. */
#include "plain.h"

#include "base/job.h"
#include "base/log.h"
#include "base/os.h"
#include "base/trace_ring.h"
#include "device/context.h"
#include "device/registry.h"
#include "fake_backend.h"
#include "heap/area.h"

#include <usm/usm.h>

#define VARIABLES_MAX 24

typedef const char *const *environment;

/* ---- the child ---------------------------------------------------------------------------- */

static void show_place(void)
{
    usm_job_info info = USM_JOB_INFO_INIT;

    if (usm_job_get_info(&info) != USM_OK)
        exit(1);
    printf("%s %u/%u %u/%u%s%s", info.source, info.rank, info.size, info.local_rank,
           info.local_size, info.is_job ? " job" : "",
           usm__launcher_place_get().is_local_known ? " local" : "");
}

static void show_limit(void)
{
    usm_context *ctx = usm_default_context();

    if (!ctx)
        exit(1);
    printf("%llu of %llu", (unsigned long long)usm__quota_buffer_limit(ctx),
           (unsigned long long)usm__os_memory_total());
}

static void show_name(void)
{
    char name[256];

    if (!usm__trace_expand("t.%r", name, sizeof name))
        exit(1);
    printf("%s", name);
}

static void show_device(void)
{
    usm_context *ctx;

    if (usm_init() != USM_OK)
        exit(1);
    usm__registry_add_backend("fake", fake_backend_entry); /* four GPUs */
    ctx = usm_default_context();
    printf("%s", ctx ? ctx->devices[0].dev->term : usm_last_error());
}

static void show_warning(void)
{
    usm__log(USM_LOG_WARN | USM_LOG_NODE, "the disk is slow");
    usm__log(USM_LOG_DEBUG | USM_LOG_NODE, "it spins");
}

static int be_child(const char *what)
{
    static const struct {
        const char *name;
        void (*show)(void);
    } shows[] = {{"place", show_place},
                 {"limit", show_limit},
                 {"name", show_name},
                 {"device", show_device},
                 {"warning", show_warning}};

    for (size_t i = 0; i < sizeof shows / sizeof shows[0]; i++)
        if (strcmp(shows[i].name, what) == 0)
            shows[i].show();
    return fflush(stdout) == 0 ? 0 : 1;
}

static const char *const kept[] = {"ASAN_OPTIONS",    "LSAN_OPTIONS", "TSAN_OPTIONS",
                                   "UBSAN_OPTIONS",   "GCOV_PREFIX",  "LLVM_PROFILE_FILE",
                                   "USM_PLUGIN_PATH", "TMPDIR",       "OCL_ICD_VENDORS"};

/* What it prints, with these variables and those above alone. */
static const char *run_child(const char *what, environment variables, const char *errors)
{
    static char text[4096];
    const char *out = plain_path("out");
    int         status;
    pid_t       pid;

    (void)fflush(NULL);
    pid = fork();
    if (pid == 0) {
        char *args[] = {(char *)(uintptr_t) "test_job", (char *)(uintptr_t) "--child",
                        (char *)(uintptr_t)what, NULL};
        char *list[VARIABLES_MAX + 2] = {NULL};
        int   n                       = 0;

        while (variables[n]) {
            list[n] = (char *)(uintptr_t)variables[n];
            n++;
        }
        for (size_t i = 0; i < sizeof kept / sizeof kept[0] && n < VARIABLES_MAX; i++)
            if (getenv(kept[i]) && asprintf(&list[n], "%s=%s", kept[i], getenv(kept[i])) > 0)
                n++;
        list[n] = (char *)(uintptr_t) "USM_SPILL=off";
        (void)alarm(60);
        if (dup2(creat(out, 0600), STDOUT_FILENO) < 0 ||
            (errors && dup2(creat(errors, 0600), STDERR_FILENO) < 0))
            _exit(1);
        (void)execve("/proc/self/exe", args, list);
        _exit(1);
    }
    CHECK(pid > 0);
    CHECK(waitpid(pid, &status, 0) == pid);
    CHECK_INT(status, 0);
    return plain_read(out, text, sizeof text);
}

#define PLACE(...)                                                                                 \
    run_child("place", (const char *const[VARIABLES_MAX + 1]){__VA_ARGS__, NULL}, NULL)

/* ---- launchers ------------------------------------------------------------------------------ */

static void without_a_launcher_it_is_rank_0_of_1(void)
{
    CHECK_STR(PLACE("HOME=/"), "none 0/1 0/1");
    CHECK_STR(PLACE("PMI_RANK=", "SLURM_PROCID=x", "OMPI_COMM_WORLD_RANK=-1"), "none 0/1 0/1");
    CHECK_STR(PLACE("OMPI_COMM_WORLD_RANK=99999999999"), "none 0/1 0/1");
}

static void open_mpi_says_all(void)
{
    CHECK_STR(PLACE("OMPI_COMM_WORLD_RANK=5", "OMPI_COMM_WORLD_SIZE=8",
                    "OMPI_COMM_WORLD_LOCAL_RANK=1", "OMPI_COMM_WORLD_LOCAL_SIZE=4"),
              "openmpi 5/8 1/4 job local");
    /* in a step of Slurm that has one task, the daemon */
    CHECK_STR(PLACE("OMPI_COMM_WORLD_RANK=5", "OMPI_COMM_WORLD_SIZE=8",
                    "OMPI_COMM_WORLD_LOCAL_RANK=1", "OMPI_COMM_WORLD_LOCAL_SIZE=4",
                    "SLURM_PROCID=0", "SLURM_STEP_NUM_TASKS=1", "SLURM_LOCALID=0", "PMIX_RANK=5"),
              "openmpi 5/8 1/4 job local");
}

static void hydra_says_who_is_on_the_node(void)
{
    CHECK_STR(PLACE("PMI_RANK=3", "PMI_SIZE=4", "MPI_LOCALRANKID=1", "MPI_LOCALNRANKS=2"),
              "pmi 3/4 1/2 job local");
    CHECK_STR(PLACE("PMI_RANK=3", "PMI_SIZE=4", "MPI_LOCALRANKID=1", "MPI_LOCALNRANKS=2",
                    "SLURM_PROCID=1", "SLURM_NTASKS=2", "SLURM_LOCALID=0"),
              "pmi 3/4 1/2 job local");
}

static void plain_pmi_does_not(void)
{
    CHECK_STR(PLACE("PMI_RANK=3", "PMI_SIZE=4"), "pmi 3/4 0/1 job");
    CHECK_STR(PLACE("PMI_RANK=3", "PMI_SIZE=4", "PMI_LOCAL_RANK=1", "PMI_LOCAL_SIZE=2"),
              "pmi 3/4 1/2 job local");
    CHECK_STR(PLACE("PMIX_RANK=2"), "pmi 2/3 0/1 job");
}

static void pals_says_all(void)
{
    CHECK_STR(PLACE("PALS_RANKID=6", "PALS_LOCAL_RANKID=2", "PALS_LOCAL_SIZE=4", "PMI_RANK=6",
                    "PMI_SIZE=8"),
              "pals 6/8 2/4 job local");
    CHECK_STR(PLACE("PALS_RANKID=6", "PALS_LOCAL_RANKID=2", "PMI_RANK=6", "PMI_SIZE=8",
                    "PMI_LOCAL_SIZE=4"),
              "pals 6/8 2/4 job local");
}

static void flux_deals_tasks_out_evenly(void)
{
    CHECK_STR(PLACE("FLUX_TASK_RANK=5", "FLUX_JOB_SIZE=7", "FLUX_TASK_LOCAL_ID=1",
                    "FLUX_JOB_NNODES=2", "PMI_RANK=5", "PMI_SIZE=7"),
              "flux 5/7 1/4 job local");
    CHECK_STR(PLACE("FLUX_TASK_RANK=5", "FLUX_JOB_SIZE=7", "FLUX_TASK_LOCAL_ID=1"),
              "flux 5/7 1/2 job");
}

static void slurm_counts_tasks_by_node(void)
{
    CHECK_STR(PLACE("SLURM_PROCID=4", "SLURM_NTASKS=9", "SLURM_LOCALID=0", "SLURM_NODEID=2",
                    "SLURM_TASKS_PER_NODE=2(x2),5"),
              "slurm 4/9 0/5 job local");
    CHECK_STR(PLACE("SLURM_PROCID=3", "SLURM_NTASKS=99", "SLURM_STEP_NUM_TASKS=9",
                    "SLURM_LOCALID=1", "SLURM_NODEID=1", "SLURM_TASKS_PER_NODE=7",
                    "SLURM_STEP_TASKS_PER_NODE=2(x2),5", "SLURM_STEP_ID=0", "ENVIRONMENT=BATCH"),
              "slurm 3/9 1/2 job local");
    CHECK_STR(PLACE("SLURM_PROCID=3", "SLURM_NTASKS=9", "SLURM_LOCALID=1"), "slurm 3/9 1/2 job");
    CHECK_STR(PLACE("SLURM_PROCID=3", "SLURM_NTASKS=9", "SLURM_LOCALID=1", "SLURM_NODEID=7",
                    "SLURM_TASKS_PER_NODE=2(x2),5"),
              "slurm 3/9 1/2 job");
    CHECK_STR(PLACE("SLURM_PROCID=3", "SLURM_NTASKS=4", "SLURM_LOCALID=1", "SLURM_NODEID=1",
                    "SLURM_STEP_TASKS_PER_NODE=2(x2)", "PMI_RANK=3", "PMI_SIZE=4"),
              "slurm 3/4 1/2 job local");
}

static void a_script_of_sbatch_is_no_task(void)
{
    CHECK_STR(PLACE("SLURM_PROCID=0", "SLURM_NTASKS=64", "SLURM_LOCALID=0", "SLURM_NODEID=0",
                    "SLURM_TASKS_PER_NODE=64", "ENVIRONMENT=BATCH"),
              "none 0/1 0/1");
}

static void an_outer_launcher_is_stale(void)
{
    /* mpiexec of four in a step of Slurm, in a job of Flux, on a PALS machine */
    CHECK_STR(
        PLACE("SLURM_PROCID=0", "SLURM_NTASKS=1", "SLURM_LOCALID=0", "PMI_RANK=2", "PMI_SIZE=4"),
        "pmi 2/4 0/1 job");
    CHECK_STR(
        PLACE("SLURM_PROCID=0", "SLURM_NTASKS=1", "SLURM_LOCALID=0", "PMI_RANK=0", "PMI_SIZE=4"),
        "pmi 0/4 0/1 job");
    CHECK_STR(PLACE("FLUX_TASK_RANK=0", "FLUX_JOB_SIZE=2", "PMI_RANK=0", "PMI_SIZE=4"),
              "pmi 0/4 0/1 job");
    CHECK_STR(PLACE("PALS_RANKID=1", "PALS_LOCAL_RANKID=1", "PMI_RANK=2", "PMI_SIZE=4"),
              "pmi 2/4 0/1 job");
}

/* ---- what follows ---------------------------------------------------------------------------- */

static unsigned long long limit_with(environment variables, unsigned long long *total)
{
    unsigned long long limit = 0;

    CHECK(sscanf(run_child("limit", variables, NULL), "%llu of %llu", &limit, total) == 2);
    return limit;
}

static void buffers_get_a_rank_s_share_of_the_node(void)
{
    unsigned long long total = 0, alone, shared;

    alone = limit_with((const char *const[]){"USM_DEVICE_SELECTOR=host:*", NULL}, &total);
    CHECK_INT(alone, total / 10 * 8);
    shared =
        limit_with((const char *const[]){"USM_DEVICE_SELECTOR=host:*", "OMPI_COMM_WORLD_RANK=2",
                                         "OMPI_COMM_WORLD_SIZE=8", "OMPI_COMM_WORLD_LOCAL_RANK=2",
                                         "OMPI_COMM_WORLD_LOCAL_SIZE=4", NULL},
                   &total);
    CHECK_INT(shared, total / 10 * 8 / 4);
    shared =
        limit_with((const char *const[]){"USM_DEVICE_SELECTOR=host:*", "USM_MEMORY_LIMIT=host:64M",
                                         "PMI_RANK=2", "PMI_SIZE=8", "MPI_LOCALRANKID=2",
                                         "MPI_LOCALNRANKS=4", NULL},
                   &total);
    CHECK_INT(shared, 64 << 20); /* what is said in bytes is each rank's */
}

static void traces_have_the_rank_in_their_names(void)
{
    CHECK_STR(run_child("name", (const char *const[]){"HOME=/", NULL}, NULL), "t.0");
    CHECK_STR(run_child("name", (const char *const[]){"FLUX_TASK_RANK=11", NULL}, NULL), "t.11");
}

/* No other backend is to be had: no module is. */
static const char *device_with(const char *variable)
{
    return run_child("device",
                     (const char *const[]){"USM_HOOKS=fault:os.dlopen@1+", "OMPI_COMM_WORLD_RANK=9",
                                           "OMPI_COMM_WORLD_SIZE=12",
                                           "OMPI_COMM_WORLD_LOCAL_RANK=5",
                                           "OMPI_COMM_WORLD_LOCAL_SIZE=6", variable, NULL},
                     plain_path("errors"));
}

static void ranks_of_a_node_take_turns_over_its_devices(void)
{
    CHECK_STR(device_with(NULL), "fake:1"); /* 5 modulo 4; never the host behind them */
    CHECK_STR(device_with("USM_DEVICE_SELECTOR=fake:2,3"), "fake:2");
    CHECK_STR(device_with("ZE_AFFINITY_MASK=0"), "fake:0");
    CHECK_STR(device_with("CUDA_VISIBLE_DEVICES=3"), "fake:0");
}

static const char *complaint_of(const char *rank, const char *level)
{
    static char text[4096];
    const char *errors = plain_path("errors");

    (void)run_child("place",
                    (const char *const[]){"USM_NO_SUCH_THING=1", rank, "PMI_SIZE=4", level, NULL},
                    errors);
    return plain_read(errors, text, sizeof text);
}

static void rank_0_warns_for_all(void)
{
    CHECK_IN("usm: warning: the variable USM_NO_SUCH_THING is not a setting",
             complaint_of("PMI_RANK=0", "USM_LOG=warn"));
    CHECK_STR(complaint_of("PMI_RANK=1", "USM_LOG=warn"), "");
    CHECK_IN("usm: info: the variable USM_NO_SUCH_THING is not a setting",
             complaint_of("PMI_RANK=1", "USM_LOG=info"));
}

static const char *warning_of(const char *local_rank, const char *level)
{
    static char text[4096];
    const char *errors = plain_path("errors");

    (void)run_child("warning",
                    (const char *const[]){"PMI_RANK=5", "PMI_SIZE=8", "MPI_LOCALNRANKS=2",
                                          local_rank, level, NULL},
                    errors);
    return plain_read(errors, text, sizeof text);
}

static void the_first_rank_of_a_node_warns_for_it(void)
{
    CHECK_STR(warning_of("MPI_LOCALRANKID=0", "USM_LOG=warn"), "usm: warning: the disk is slow\n");
    CHECK_STR(warning_of("MPI_LOCALRANKID=1", "USM_LOG=warn"), "");
    CHECK_STR(warning_of("MPI_LOCALRANKID=1", "USM_LOG=info"), "usm: info: the disk is slow\n");
    CHECK_STR(warning_of("MPI_LOCALRANKID=1", "USM_LOG=debug"),
              "usm: info: the disk is slow\nusm: debug: it spins\n");
}

static void questions_are_checked(void)
{
    usm_job_info info = {.struct_size = 8};

    CHECK_INT(usm_job_get_info(NULL), USM_E_INVALID);
    CHECK_INT(usm_job_get_info(&info), USM_E_ABI);
    CHECK_IN("USM_JOB_INFO_INIT", usm_last_error());
}

static void text_says_who_told(void)
{
    char   text[2048];
    size_t size;

    CHECK_INT(usm_job_describe(USM_TEXT, text, sizeof text, &size), USM_OK);
    CHECK_INT(size, strlen(text));
    CHECK_IN(usm__launcher_place_get().is_job ? " says\n" : "no job: ", text);
    CHECK_INT(usm_job_describe(USM_JSON, text, sizeof text, NULL), USM_OK);
    CHECK_IN("\"attached\":false,\"mpi\":\"\",\"members\":[],\"describe\":[]}", text);
}

static const plain_case cases[] = {
    CASE(without_a_launcher_it_is_rank_0_of_1),
    CASE(open_mpi_says_all),
    CASE(hydra_says_who_is_on_the_node),
    CASE(plain_pmi_does_not),
    CASE(pals_says_all),
    CASE(flux_deals_tasks_out_evenly),
    CASE(slurm_counts_tasks_by_node),
    CASE(a_script_of_sbatch_is_no_task),
    CASE(an_outer_launcher_is_stale),
    CASE(buffers_get_a_rank_s_share_of_the_node),
    CASE(traces_have_the_rank_in_their_names),
    CASE(ranks_of_a_node_take_turns_over_its_devices),
    CASE(rank_0_warns_for_all),
    CASE(the_first_rank_of_a_node_warns_for_it),
    CASE(questions_are_checked),
    CASE(text_says_who_told),
    {NULL, NULL},
};

int main(int argc, char **argv)
{
    if (argc == 3 && strcmp(argv[1], "--child") == 0)
        return be_child(argv[2]);
    return plain_main(argc, argv, cases);
}
