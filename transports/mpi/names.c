/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Memory servers of another launch, joined by name.
 *
 *     program                                    usm-memd --publish NAME, a launch of its own
 *                                                MPI_Publish_name: where the listener is
 *     rank 0: MPI_Lookup_name, knocks  ------->  door.c; admits it, or not
 *     all: MPI_Comm_connect, merge     <------>  all: MPI_Comm_accept, merge
 *     the next name; servers found so far take part in connecting
 *     attach.c's gather() over the result
 *
 * The program's rank 0 leads: it sends its decisions to all, so that one failure is a failure of
 * all, with one message.  MPI_Lookup_name, MPI_Comm_connect and others may wait for ever.  If MPI
 * allows threads, they run in a thread of the module, and the attaching thread waits for it until a
 * deadline.  After that the thread is left behind, and its job with it.
 *
 * Communicators of several jobs are kept until the process ends.  MPI_Comm_disconnect() of Open MPI
 * 4 hung (two and two processes), and MPI_Comm_free() of an intercommunicator made its
 * MPI_Finalize() hang.  Both MPIs finalise alone, whichever process is dead, if nothing is
 * freed. */
#include "internal.h"

#include "base/inline/bytes.h"

#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#define NAMES         16
#define NAME_SIZE     64
#define ORDER_SIZE    1024
#define STORY_SIZE    900
#define SERVE_NS      (120000 * NS_PER_MS) /* for servers: a program may look for further names */
#define AGAIN_NS      (200 * NS_PER_MS)
#define TRIES         100     /* takes some milliseconds; link.c tries again */
#define TRIES_TO_MEET 1000000 /* connecting takes some thousand attempts */
#define KNOCK_NS      (1000 * NS_PER_MS)

enum { GO_ON = 1, COMPLETE, FAIL };

/* A program that is connecting, or servers that admit one. */
typedef struct party {
    usm_host_api        api; /* the host's, except that report() stores the message */
    const usm_host_api *host;
    mpi_job            *job;
    mpi_meeting         all; /* the processes met so far */
    int                 rank;
    bool                is_root;
    /* of the root */
    mpi_doorkeeper who;
    uint64_t       until; /* deadline for finding the servers and asking them */
    char           names[NAMES][NAME_SIZE], addresses[NAMES][MPI_ADDRESS_SIZE];
    size_t         count, next;
    bool           has_looked;
    int            fd;
    /* between the thread and the one that waits for it */
    pthread_mutex_t       lock;
    pthread_cond_t        changed;
    bool                  is_over;
    usm_status            status;
    char                  story[STORY_SIZE];
    _Atomic(const char *) doing;
} party;

/* ---- errors in a thread of the module ------------------------------------------------------ */

static _Thread_local char caught[STORY_SIZE];

usm_status mpi_keep_story(usm_status status, const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    (void)vsnprintf(caught, sizeof(caught), format, arguments);
    va_end(arguments);
    return status;
}

const char *mpi_kept_story(void)
{
    return caught;
}

/* ---- names ---------------------------------------------------------------------------------- */

static const char alone[] =
    "start usm-memd in the program's own launch: mpirun -n 4 PROGRAM : -n 1 usm-memd --lend 8G";

/* 0: it is not Open MPI. */
static long open_mpi_version(void)
{
    char        version[MPI_MAX_LIBRARY_VERSION_STRING + 1] = "";
    int         n                                           = 0;
    const char *v;

    (void)MPI_Get_library_version(version, &n);
    v = strstr(version, "Open MPI v");
    return v ? strtol(v + strlen("Open MPI v"), NULL, 10) : 0;
}

/* MPICH with the netmod ucx opens ports, if at all, to which nothing can connect. */
static bool is_ucx(void)
{
    char        version[MPI_MAX_LIBRARY_VERSION_STRING + 1] = "";
    int         n                                           = 0;
    const char *wish = getenv("MPIR_CVAR_CH4_NETMOD"); /* NOLINT(concurrency-mt-unsafe) */

    (void)MPI_Get_library_version(version, &n);
    if (strstr(version, "ch4:ucx") && !strstr(version, "ofi"))
        return true;
    if (wish && *wish)
        return strcmp(wish, "ucx") == 0;
    return strstr(version, "ch4:ucx") != NULL;
}

usm_status mpi_names_check(const usm_host_api *api, char port[MPI_PORT_SIZE])
{
    char name[MPI_MAX_PORT_NAME + 1]    = "";
    char text[MPI_MAX_ERROR_STRING + 1] = "";
    int  n = 0, code = MPI_SUCCESS;

    port[0] = '\0';
    if (open_mpi_version() >= 5)
        return api->report(USM_E_NOT_SUPPORTED,
                           "Open MPI 5 has nothing by which two launches find each other "
                           "(ompi-server was Open MPI 4's); %s",
                           alone);
    if (!is_ucx())
        code = MPI_Open_port(MPI_INFO_NULL, name);
    if (code == MPI_SUCCESS && name[0] && strlen(name) < MPI_PORT_SIZE) {
        memcpy(port, name, strlen(name) + 1);
        return USM_OK;
    }
    if (code != MPI_SUCCESS)
        (void)MPI_Error_string(code, text, &n);
    return api->report(USM_E_NOT_SUPPORTED,
                       "this MPI cannot connect two launches%s%.*s: MPICH can with its netmod ofi, "
                       "mpiexec -genv MPIR_CVAR_CH4_NETMOD ofi -genv FI_PROVIDER tcp, if it was "
                       "built with it (Debian's was not); else %s",
                       text[0] ? ", MPI_Open_port: " : "", (int)strcspn(text, "\n"), text, alone);
}

/* Other users of MPI publish names as well. */
static void service_of(const char *name, char service[NAME_SIZE + 16])
{
    (void)snprintf(service, NAME_SIZE + 16, "usm-memd.%s", name);
}

/* The option that gives the name server to this MPI's launcher. */
static const char *server_option(void)
{
    return open_mpi_version() ? "--ompi-server file:URI" : "-nameserver HOST";
}

usm_status mpi_name_publish(const usm_host_api *api, const char *name, const char *address)
{
    char text[MPI_MAX_ERROR_STRING + 1] = "", service[NAME_SIZE + 16];
    int  n                              = 0, code;

    service_of(name, service);
    /* NOLINTNEXTLINE(concurrency-mt-unsafe) */
    if (open_mpi_version() && !getenv("OMPI_MCA_pmix_server_uri"))
        api->log(USM_LOG_WARN,
                 "mpirun was not given --ompi-server file:URI: programs of other "
                 "launches may not find the name %s",
                 name);
    code = MPI_Publish_name(service, MPI_INFO_NULL, address);
    if (code == MPI_SUCCESS)
        return USM_OK;
    (void)MPI_Error_string(code, text, &n);
    return api->report(USM_E_MPI,
                       "the name %s could not be published (%.*s): it is taken, or no name server "
                       "was given; start %s, and mpirun with %s",
                       name, (int)strcspn(text, ",\n"), text,
                       open_mpi_version() ? "ompi-server -r URI" : "hydra_nameserver",
                       server_option());
}

void mpi_name_unpublish(const char *name, const char *address)
{
    char service[NAME_SIZE + 16];

    service_of(name, service);
    (void)MPI_Unpublish_name(service, MPI_INFO_NULL, address);
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(a, b);
}

/* In one order in all programs, so that two that want the same servers do not wait for each
 * other. */
static usm_status take_names(party *p, const char *names)
{
    for (const char *at = names; *at; at += *at == ',') {
        const size_t n = strcspn(at, ",");

        if (n == 0 || n >= NAME_SIZE || p->count == NAMES)
            return p->host->report(
                USM_E_INVALID,
                "USM_MPI_JOIN=%.100s: up to %d names of at most %d letters, with "
                "commas between them",
                names, NAMES, NAME_SIZE - 1);
        memcpy(p->names[p->count++], at, n);
        at += n;
    }
    qsort(p->names, p->count, NAME_SIZE, compare_names);
    return USM_OK;
}

static void nap(uint64_t ns)
{
    struct timespec t = {.tv_nsec = (long)ns};

    (void)nanosleep(&t, NULL);
}

/* Waits a moment; false: there is no more time. */
static bool can_wait(const party *p)
{
    if (mpi_now() + AGAIN_NS > p->until)
        return false;
    nap(AGAIN_NS);
    return true;
}

/* The name may be published only now. */
static usm_status find(party *p, size_t i)
{
    char service[NAME_SIZE + 16], port[MPI_MAX_PORT_NAME + 1];

    service_of(p->names[i], service);
    do {
        memset(port, 0, sizeof(port));
        /* Debian's MPICH finds every name, with an empty value. */
        if (MPI_Lookup_name(service, MPI_INFO_NULL, port) == MPI_SUCCESS && port[0]) {
            (void)snprintf(p->addresses[i], MPI_ADDRESS_SIZE, "%.*s", MPI_ADDRESS_SIZE - 1, port);
            return USM_OK;
        }
    } while (can_wait(p));
    return p->api.report(USM_E_PEER,
                         "no usm-memd has published the name %s: start mpirun %s -n 1 usm-memd "
                         "--publish %s --lend 8G, and this program's mpirun with the same %s",
                         p->names[i], server_option(), p->names[i], server_option());
}

static usm_status look_around(party *p)
{
    char       port[MPI_PORT_SIZE];
    usm_status st = mpi_names_check(&p->api, port);

    if (st != USM_OK)
        return st;
    (void)MPI_Close_port(port);
    p->doing = "looking for the name in the name server";
    for (size_t i = 0; i < p->count && st == USM_OK; i++)
        st = find(p, i);
    return st;
}

/* ---- orders of the root -------------------------------------------------------------------- */

typedef struct order {
    unsigned char kind, status[4];
    char          text[ORDER_SIZE - 5];
} order;

/* Finds the port to which all connect next. */
static usm_status find_port(party *p, order *o)
{
    char       port[MPI_PORT_SIZE] = "";
    usm_status st                  = p->has_looked ? USM_OK : look_around(p);

    p->has_looked = true;
    o->kind       = COMPLETE;
    if (st != USM_OK || p->next == p->count)
        return st;
    p->doing = "waiting for usm-memd to let the program in";
    do {
        const uint64_t soon = mpi_now() + KNOCK_NS; /* the last attempt needs its time as well */

        st = mpi_door_knock(&p->who, p->addresses[p->next], p->until > soon ? p->until : soon, port,
                            &p->fd);
    } while (st == USM_E_BUSY && can_wait(p));
    p->next++;
    o->kind = GO_ON;
    (void)snprintf(o->text, sizeof(o->text), "%s", port);
    return st;
}

static void decide(party *p, order *o)
{
    usm_status st = find_port(p, o);

    if (st == USM_OK)
        return;
    o->kind = FAIL;
    usm_put_le(o->status, (unsigned)st, sizeof(o->status));
    (void)snprintf(o->text, sizeof(o->text), "%s%s%s",
                   p->next > 0 && p->next <= p->count ? p->names[p->next - 1] : "",
                   p->next > 0 ? ": " : "", caught);
}

static usm_status status_of(const order *o)
{
    return (usm_status)(int)(unsigned)usm_get_le(o->status, sizeof(o->status));
}

/* ---- MPICH and the dead --------------------------------------------------------------------- */

/* MPICH over libfabric's tcp sends to a process that has ended by trying again for ever, within
 * MPI_Isend().  It counts its attempts if a communicator asks for it. */
static void limit_tries(int tries)
{
    MPI_T_cvar_handle handle;
    int               index = 0, n = 0, level;

    if (open_mpi_version() || MPI_T_init_thread(MPI_THREAD_MULTIPLE, &level) != MPI_SUCCESS)
        return;
    if (MPI_T_cvar_get_index("MPIR_CVAR_CH4_OFI_MAX_EAGAIN_RETRY", &index) == MPI_SUCCESS &&
        MPI_T_cvar_handle_alloc(index, NULL, &handle, &n) == MPI_SUCCESS) {
        (void)MPI_T_cvar_write(handle, &tries);
        (void)MPI_T_cvar_handle_free(&handle);
    }
    (void)MPI_T_finalize();
}

void mpi_names_met(const mpi_job *job)
{
    if (job->has_joined)
        limit_tries(TRIES);
}

/* Collective. */
static void ask_for_limit(MPI_Comm comm)
{
    MPI_Info info;

    if (open_mpi_version() || MPI_Info_create(&info) != MPI_SUCCESS)
        return;
    (void)MPI_Info_set(info, "eagain", "true"); /* the name differs between versions */
    (void)MPI_Info_set(info, "MPI_OFI_set_eagain", "true");
    (void)MPI_Comm_set_info(comm, info);
    (void)MPI_Info_free(&info);
}

/* ---- connecting --------------------------------------------------------------------------- */

/* Merges with the processes that were met before; `inter` is kept. */
static usm_status merge(party *p, MPI_Comm inter, bool comes_last)
{
    MPI_Comm   all  = MPI_COMM_NULL;
    const bool turn = mpi_turn_begin();
    usm_status st   = mpi_own_errors(&p->api, inter);

    if (st == USM_OK)
        st =
            mpi_check(&p->api, MPI_Intercomm_merge(inter, comes_last, &all), "MPI_Intercomm_merge");
    mpi_turn_end(turn);
    if (st == USM_OK)
        st = mpi_own_errors(&p->api, all);
    p->all.whole = all;
    return st;
}

static usm_status go_on(party *p, const order *o)
{
    MPI_Comm   inter = MPI_COMM_NULL;
    char       port[MPI_MAX_PORT_NAME + 1];
    usm_status st;
    bool       turn;

    (void)snprintf(port, sizeof(port), "%.*s", MPI_MAX_PORT_NAME - 1, o->text);
    p->doing = "connecting by MPI";
    if (p->is_root)
        mpi_door_enter(p->fd);
    turn = mpi_turn_begin();
    limit_tries(TRIES_TO_MEET);
    st = mpi_check(&p->api, MPI_Comm_connect(port, MPI_INFO_NULL, 0, p->all.whole, &inter),
                   "MPI_Comm_connect");
    mpi_turn_end(turn);
    return st == USM_OK ? merge(p, inter, false) : st;
}

static usm_status follow(party *p)
{
    order      o;
    usm_status st;

    for (;;) {
        memset(&o, 0, sizeof(o));
        if (p->is_root)
            decide(p, &o);
        st = mpi_broadcast(&p->all, &o, sizeof(o));
        if (st != USM_OK || o.kind == COMPLETE)
            return st;
        if (o.kind == FAIL)
            return p->api.report(status_of(&o), "%.*s", (int)sizeof(o.text) - 1, o.text);
        st = go_on(p, &o);
        if (st != USM_OK)
            return st;
    }
}

/* All have been met: they gather as the processes of one launch do. */
static usm_status come_together(party *p)
{
    mpi_job   *job = p->job;
    usm_status st;

    p->doing     = "meeting the servers' processes";
    job->meeting = (mpi_meeting){.until = p->all.until};
    st = mpi_meet(&p->api, p->all.whole, job->params.is_server ? MPI_MEET_SERVER : MPI_MEET_ATTACH,
                  &job->meeting);
    if (st == USM_OK)
        st = mpi_job_gather(job, p->rank);
    if (st == USM_OK)
        ask_for_limit(job->comm);
    job->has_joined    = st == USM_OK;
    job->meeting.until = 0;
    return st;
}

static party *create_party(mpi_job *job)
{
    party *p = job->api->heap_alloc(sizeof(*p));

    if (!p)
        return NULL;
    p->host       = job->api;
    p->api        = *job->api;
    p->api.report = mpi_keep_story;
    p->job        = job;
    p->all        = job->meeting;
    p->all.api    = &p->api;
    p->doing      = "waiting for rank 0, which looks for the servers";
    job->api      = &p->api;
    return p;
}

static void end_party(party *p)
{
    const usm_host_api *host = p->host;

    p->job->api         = host;
    p->job->meeting.api = host;
    host->heap_free(p);
}

/* ---- the program's side ---------------------------------------------------------------------- */

static void run_party(party *p)
{
    usm_status st;

    caught[0] = '\0';
    st        = follow(p);
    if (st == USM_OK)
        st = come_together(p);
    p->status = st;
    (void)snprintf(p->story, sizeof(p->story), "%s", caught);
}

static void run(void *arg)
{
    party *p = arg;

    run_party(p);
    (void)pthread_mutex_lock(&p->lock);
    p->is_over = true;
    (void)pthread_cond_broadcast(&p->changed);
    (void)pthread_mutex_unlock(&p->lock);
}

/* False: it did not end in time. */
static bool await(party *p, uint64_t end)
{
    struct timespec t = {.tv_sec = (time_t)(end / 1000000000), .tv_nsec = (long)(end % 1000000000)};
    int             rc = 0;

    (void)pthread_mutex_lock(&p->lock);
    while (!p->is_over && rc == 0)
        rc = pthread_cond_timedwait(&p->changed, &p->lock, &t);
    rc = p->is_over ? 0 : rc;
    (void)pthread_mutex_unlock(&p->lock);
    return rc == 0;
}

static bool make_condition(party *p)
{
    pthread_condattr_t attr;
    bool               ok;

    if (pthread_mutex_init(&p->lock, NULL) != 0 || pthread_condattr_init(&attr) != 0)
        return false;
    (void)pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    ok = pthread_cond_init(&p->changed, &attr) == 0;
    (void)pthread_condattr_destroy(&attr);
    return ok;
}

/* Names are looked up, and ports opened, under the handlers of MPI_COMM_WORLD or _SELF, which are
 * the program's and by default end it. */
typedef struct handlers {
    MPI_Errhandler world, self;
} handlers;

static usm_status take_handlers(const usm_host_api *api, handlers *h)
{
    usm_status st = mpi_check(api, MPI_Comm_get_errhandler(MPI_COMM_WORLD, &h->world),
                              "MPI_Comm_get_errhandler");

    if (st == USM_OK)
        st = mpi_check(api, MPI_Comm_get_errhandler(MPI_COMM_SELF, &h->self),
                       "MPI_Comm_get_errhandler");
    if (st == USM_OK)
        st = mpi_own_errors(api, MPI_COMM_WORLD);
    return st == USM_OK ? mpi_own_errors(api, MPI_COMM_SELF) : st;
}

/* MPICH also passes errors of messages on other communicators to the handlers of MPI_COMM_WORLD or
 * _SELF: an error of the module's messages, to servers that have ended, must not end the
 * program. */
static void fatal_for_others(MPI_Comm *comm, int *code, ...)
{
    char text[MPI_MAX_ERROR_STRING + 1] = "";
    int  n                              = 0;

    if (mpi_is_our_turn())
        return;
    (void)MPI_Error_string(*code, text, &n);
    (void)fprintf(stderr, "fatal error in MPI: %s\n", text);
    (void)MPI_Abort(*comm, *code);
}

static void give_back(MPI_Comm comm, MPI_Errhandler *old)
{
    MPI_Errhandler ours;

    if (!open_mpi_version() && *old == MPI_ERRORS_ARE_FATAL &&
        MPI_Comm_create_errhandler(fatal_for_others, &ours) == MPI_SUCCESS) {
        (void)MPI_Comm_set_errhandler(comm, ours);
        (void)MPI_Errhandler_free(&ours);
    } else {
        (void)MPI_Comm_set_errhandler(comm, *old);
    }
    (void)MPI_Errhandler_free(old);
}

/* Open MPI writes to the sockets of processes that have ended, also in MPI_Finalize(): the program
 * would be ended by a signal that it does not expect. */
static void ignore_broken_pipes(const usm_host_api *api)
{
    struct sigaction old, ignored = {.sa_handler = SIG_IGN};

    if (sigaction(SIGPIPE, NULL, &old) != 0 || old.sa_handler != SIG_DFL)
        return;
    (void)sigaction(SIGPIPE, &ignored, NULL);
    api->log(USM_LOG_DEBUG, "SIGPIPE is ignored: MPI writes to processes of jobs that have ended");
}

static usm_status run_with_deadline(party *p, uint64_t end, bool *is_stuck)
{
    int error;

    if (p->job->level < MPI_THREAD_MULTIPLE) { /* only this thread may call MPI */
        run_party(p);
        return USM_OK;
    }
    if (!make_condition(p))
        return p->host->report(USM_E_SYSTEM, "no lock could be made");
    error = p->host->os->thread(run, p, "usm-mpi-join");
    if (error)
        return p->host->report(USM_E_SYSTEM, "no thread could be started: error %d", error);
    *is_stuck = !await(p, end);
    return USM_OK;
}

usm_status mpi_join(mpi_job *job, const char *names, int rank, bool *is_stuck)
{
    const usm_host_api *api = job->api;
    const uint64_t      ns  = api->setting_size("mpi_join_timeout") * NS_PER_MS;
    const uint64_t      now = mpi_now();
    party              *p   = create_party(job);
    handlers            h;
    usm_status          st;

    if (!p)
        return api->report(USM_E_NO_MEMORY, "no memory for joining %s", names);
    p->rank      = rank;
    p->is_root   = job->meeting.rank == 0;
    p->until     = now + ns;
    p->all.until = now + 2 * ns + 2000 * NS_PER_MS;
    p->who =
        (mpi_doorkeeper){.api = &p->api, .key = job->params.key, .key_size = job->params.key_size};
    st = take_names(p, names);
    if (st == USM_OK)
        st = take_handlers(api, &h);
    if (st != USM_OK) {
        end_party(p);
        return st;
    }
    ignore_broken_pipes(api);
    st = run_with_deadline(p, p->all.until + 1000 * NS_PER_MS, is_stuck);
    give_back(MPI_COMM_WORLD, &h.world);
    give_back(MPI_COMM_SELF, &h.self);
    if (st == USM_OK && *is_stuck) /* p and the job belong to the thread */
        return api->report(USM_E_PEER,
                           "joining usm-memd by USM_MPI_JOIN=%s took longer than twice "
                           "USM_MPI_JOIN_TIMEOUT, %s: is the name server alive, and usm-memd?",
                           names, p->doing);
    if (st == USM_OK && p->status != USM_OK)
        st = api->report(p->status, "USM_MPI_JOIN=%s: %s", names, p->story);
    end_party(p);
    return st;
}

/* ---- the servers' side ----------------------------------------------------------------------- */

usm_status mpi_welcome(mpi_job *job, const mpi_meeting *servers, const char *port)
{
    const usm_host_api *api   = job->api;
    party              *p     = create_party(job);
    MPI_Comm            inter = MPI_COMM_NULL;
    usm_status          st;
    bool                turn;

    if (!p)
        return api->report(USM_E_NO_MEMORY, "no memory for another program");
    p->all.whole = servers->whole;
    p->all.until = mpi_now() + SERVE_NS;
    caught[0]    = '\0';
    turn         = mpi_turn_begin();
    limit_tries(TRIES_TO_MEET);
    st = mpi_check(&p->api, MPI_Comm_accept(port, MPI_INFO_NULL, 0, servers->whole, &inter),
                   "MPI_Comm_accept");
    mpi_turn_end(turn);
    if (st == USM_OK)
        st = merge(p, inter, true);
    if (st == USM_OK)
        st = follow(p);
    if (st == USM_OK)
        st = come_together(p);
    end_party(p);
    return st == USM_OK ? st : api->report(st, "%s", caught);
}
