/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The children of child.h: spawning, the deadline, the scratch folder. */
#include "child.h"
#include "table.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define MAX_ARGS   16
#define MAX_ANSWER ((size_t)1 << 20)

extern char **environ;

static FILE       *answer_file;
static const char *scratch_folder;

/* --- the parent's side ------------------------------------------------------ */

static char *make_scratch(void)
{
    const char *tmp  = getenv("TMPDIR");
    char       *path = tool_printf("%s/usm-info.XXXXXX", tmp && *tmp ? tmp : "/tmp");

    if (mkdtemp(path))
        return path;
    free(path);
    return NULL;
}

static int remove_entry(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    (void)st;
    (void)type;
    (void)ftw;
    return remove(path);
}

static void remove_scratch(char *path)
{
    if (path)
        nftw(path, remove_entry, 8, FTW_DEPTH | FTW_PHYS | FTW_MOUNT);
    free(path);
}

static int64_t now_ms(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* Starts a process group of its own, so that processes which the child starts can be killed with
 * it.  Returns 0 or errno. */
static int spawn(char *const argv[], int answer_fd, pid_t *pid)
{
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t          attr;
    int                        rc;

    posix_spawn_file_actions_init(&actions);
    posix_spawnattr_init(&attr);
    posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETPGROUP);
    posix_spawn_file_actions_adddup2(&actions, answer_fd, STDOUT_FILENO);
    posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
    rc = posix_spawn(pid, "/proc/self/exe", &actions, &attr, argv, environ);
    posix_spawnattr_destroy(&attr);
    posix_spawn_file_actions_destroy(&actions);
    return rc;
}

/* Reads until the child closes its end, or until the deadline; false at the deadline. */
static bool read_answer(int fd, int64_t deadline, char *answer)
{
    size_t size = 0;

    for (;;) {
        struct pollfd p    = {.fd = fd, .events = POLLIN};
        int64_t       left = deadline - now_ms();
        char          spare[4096];
        bool          is_full = size == MAX_ANSWER - 1;
        ssize_t       n;

        if (left <= 0)
            return false;
        if (poll(&p, 1, (int)left) <= 0)
            continue;
        n = is_full ? read(fd, spare, sizeof spare)
                    : read(fd, answer + size, MAX_ANSWER - 1 - size);
        if (n <= 0 && errno != EINTR)
            return true;
        if (n > 0 && !is_full)
            size += (size_t)n;
    }
}

/* Waits for a child that closed its answer; false at the deadline. */
static bool reap(pid_t pid, int64_t deadline, int *status)
{
    const struct timespec pause = {.tv_nsec = 5000000};

    for (;;) {
        pid_t got = waitpid(pid, status, WNOHANG);

        if (got == pid)
            return true;
        if (now_ms() >= deadline)
            return false;
        nanosleep(&pause, NULL);
    }
}

static void judge(child_result *result, bool in_time, int status, int timeout_s)
{
    if (!in_time) {
        result->end  = CHILD_TIMED_OUT;
        result->code = timeout_s;
    } else if (WIFSIGNALED(status)) {
        result->end  = CHILD_KILLED;
        result->code = WTERMSIG(status);
    } else {
        result->end  = CHILD_EXITED;
        result->code = WEXITSTATUS(status);
    }
}

static void watch(pid_t pid, int fd, int timeout_s, child_result *result)
{
    int64_t deadline = now_ms() + (int64_t)timeout_s * 1000;
    int     status   = 0;
    bool    in_time  = read_answer(fd, deadline, result->answer) && reap(pid, deadline, &status);

    if (!in_time) {
        kill(-pid, SIGKILL);
        waitpid(pid, &status, 0);
    }
    judge(result, in_time, status, timeout_s);
}

void child_run(const char *const *args, int timeout_s, child_result *result)
{
    char *argv[MAX_ARGS] = {tool_printf("usm-info"), tool_printf("--child")};
    char *scratch        = make_scratch();
    int   n              = 2, fds[2], error;
    pid_t pid            = 0;

    result->answer = tool_alloc(MAX_ANSWER);
    argv[n++]      = tool_printf("%s", scratch ? scratch : "");
    while (*args && n < MAX_ARGS - 1)
        argv[n++] = tool_printf("%s", *args++);
    error = pipe2(fds, O_CLOEXEC) ? errno : 0;
    if (!error) {
        error = spawn(argv, fds[1], &pid);
        close(fds[1]);
        if (!error)
            watch(pid, fds[0], timeout_s, result);
        close(fds[0]);
    }
    if (error) {
        result->end  = CHILD_NOT_RUN;
        result->code = error;
    }
    remove_scratch(scratch);
    while (n > 0)
        free(argv[--n]);
}

const char *child_end_text(const child_result *result, char *buf, size_t size)
{
    switch (result->end) {
    case CHILD_KILLED:
        snprintf(buf, size, "the process was killed: %s", strsignal(result->code));
        break;
    case CHILD_TIMED_OUT:
        snprintf(buf, size, "there was no answer within %d s", result->code);
        break;
    case CHILD_NOT_RUN:
        snprintf(buf, size, "no process could be started: %s", strerror(result->code));
        break;
    case CHILD_EXITED:
        snprintf(buf, size, "the process ended with exit status %d", result->code);
        break;
    }
    return buf;
}

/* --- the child's side ------------------------------------------------------- */

FILE *child_answer(void)
{
    return answer_file;
}

void child_enter_scratch(void)
{
    if (*scratch_folder && chdir(scratch_folder))
        fprintf(stderr, "usm-info: %s: %s\n", scratch_folder, strerror(errno));
}

/* Drivers print on stdout: the answer keeps the pipe for itself. */
static bool take_stdout(void)
{
    int answer = fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 3);
    int null   = open("/dev/null", O_WRONLY | O_CLOEXEC);

    if (answer < 0 || null < 0 || dup2(null, STDOUT_FILENO) < 0)
        return false;
    close(null);
    answer_file = fdopen(answer, "w");
    return answer_file != NULL;
}

int child_main(int argc, char **argv)
{
    static const struct {
        const char *what;
        int (*run)(int argc, char **argv);
    } children[] = {
        {"probe-device", child_probe_device}, {"build-program", child_build_program},
        {"load-icd", child_load_icd},         {"start-level-zero", child_start_level_zero},
        {"list-devices", child_list_devices},
    };
    static const int    fatal[] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT};
    const struct rlimit no_core = {0, 0};

    if (argc < 2 || !take_stdout())
        return 2;
    setrlimit(RLIMIT_CORE, &no_core);
    for (size_t i = 0; i < sizeof fatal / sizeof *fatal; i++)
        signal(fatal[i], SIG_DFL); /* a sanitizer would turn the signal into an ordinary exit */
    scratch_folder = argv[0];
    for (size_t i = 0; i < sizeof children / sizeof *children; i++) {
        if (strcmp(argv[1], children[i].what) == 0) {
            int rc = children[i].run(argc - 2, argv + 2);

            return fflush(answer_file) ? 2 : rc;
        }
    }
    return 2;
}
