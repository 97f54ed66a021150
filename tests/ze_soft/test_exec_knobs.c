/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The knobs of the software Level Zero driver's execution, and events between processes.  Each case
 * runs this program again, with a knob set and the name of a child as argument. */
#include "test_exec.h"

#include <dlfcn.h>
#include <errno.h>
#include <spawn.h>
#include <time.h>

/* --- children: other knobs, another process
 * ------------------------------------------------------------------------ */

/* The file that gets their stderr is the third argument. */
static int spawn(const char *child, const char *knob, const char *value, const char *errors)
{
    const char *const          args[] = {"test_exec_knobs", child, NULL};
    posix_spawn_file_actions_t files;
    pid_t                      pid;
    int                        status = -1;

    extern char **environ;
    CHECK(setenv(knob, value, 1) == 0);
    CHECK(posix_spawn_file_actions_init(&files) == 0);
    if (errors)
        CHECK(posix_spawn_file_actions_addopen(&files, STDERR_FILENO, errors, O_WRONLY | O_CREAT,
                                               0600) == 0);
    CHECK(posix_spawn(&pid, "/proc/self/exe", &files, NULL, (char **)(uintptr_t)args, environ) ==
          0);
    CHECK(posix_spawn_file_actions_destroy(&files) == 0);
    CHECK(unsetenv(knob) == 0);
    while (waitpid(pid, &status, 0) < 0)
        CHECK(errno == EINTR);
    return status;
}

/* The last fill of three is first. */
static void child_order(void)
{
    ze_command_queue_handle_t queue = make_queue(0);
    ze_command_list_handle_t  list  = regular(0);
    ze_event_pool_handle_t    pool  = make_pool(1, 0);
    ze_event_handle_t         ev    = make_event(pool, 0);
    unsigned char            *p     = on_host(4);

    OK(zeCommandListAppendMemoryFill(list, p, "1", 1, 1, NULL, 0, NULL));
    OK(zeCommandListAppendMemoryFill(list, p, "2", 1, 1, NULL, 0, NULL));
    OK(zeCommandListAppendMemoryFill(list, p + 1, "1", 1, 1, ev, 0, NULL));
    OK(zeCommandListAppendMemoryFill(list, p + 1, "2", 1, 1, NULL, 1, &ev));
    OK(zeCommandListAppendBarrier(list, NULL, 0, NULL));
    OK(zeCommandListAppendMemoryCopy(list, p + 2, p, 2, NULL, 0, NULL));
    OK(zeCommandListClose(list));
    OK(zeCommandQueueExecuteCommandLists(queue, 1, &list, NULL));
    OK(zeCommandQueueSynchronize(queue, FOREVER));
    CHECK(memcmp(p, "1212", 4) == 0);
    OK(zeEventDestroy(ev));
    OK(zeEventPoolDestroy(pool));
    OK(zeCommandListDestroy(list));
    OK(zeCommandQueueDestroy(queue));
    OK(zeMemFree(ctx, p));
}

/* A wait after a reset is for a signal after it, though the event is set when the list begins. */
static void child_reset(void)
{
    ze_command_queue_handle_t queue = make_queue(0);
    ze_command_list_handle_t  list  = regular(0);
    ze_event_pool_handle_t    pool  = make_pool(1, 0);
    ze_event_handle_t         ev    = make_event(pool, 0);
    unsigned char            *p     = on_host(1);

    OK(zeEventHostSignal(ev));
    OK(zeCommandListAppendEventReset(list, ev));
    OK(zeCommandListAppendMemoryFill(list, p, "1", 1, 1, NULL, 1, &ev));
    OK(zeCommandListClose(list));
    OK(zeCommandQueueExecuteCommandLists(queue, 1, &list, NULL));
    CHECK_INT(zeCommandQueueSynchronize(queue, 20000000), ZE_RESULT_NOT_READY);
    CHECK(is_filled(p, 1, 0));
    OK(zeEventHostSignal(ev));
    OK(zeCommandQueueSynchronize(queue, FOREVER));
    CHECK(is_filled(p, 1, '1'));
    OK(zeEventDestroy(ev));
    OK(zeEventPoolDestroy(pool));
    OK(zeCommandListDestroy(list));
    OK(zeCommandQueueDestroy(queue));
    OK(zeMemFree(ctx, p));
}

static void the_order_can_be_turned_round(void)
{
    CHECK(setenv("ZE_SOFT_SEED", "0", 1) == 0);
    CHECK_INT(spawn("order", "ZE_SOFT_REORDER", "1", NULL), 0);
    CHECK_INT(spawn("reset", "ZE_SOFT_REORDER", "1", NULL), 0);
    CHECK(unsetenv("ZE_SOFT_SEED") == 0);
}

/* Says on stderr which of eight commands was which. */
static void child_shuffle(void)
{
    enum { N = 8 };
    ze_command_queue_handle_t queue = make_queue(0);
    ze_command_list_handle_t  list  = regular(0);
    uint64_t                 *when  = (void *)on_host(N * sizeof(uint64_t));

    for (int i = 0; i < N; i++)
        OK(zeCommandListAppendWriteGlobalTimestamp(list, &when[i], NULL, 0, NULL));
    OK(zeCommandListClose(list));
    OK(zeCommandQueueExecuteCommandLists(queue, 1, &list, NULL));
    OK(zeCommandQueueSynchronize(queue, FOREVER));
    for (int i = 0; i < N; i++) {
        int rank = 0;

        for (int j = 0; j < N; j++)
            rank += when[j] < when[i];
        (void)fprintf(stderr, "%d", rank);
    }
    OK(zeCommandListDestroy(list));
    OK(zeCommandQueueDestroy(queue));
    OK(zeMemFree(ctx, when));
}

static void shuffle(const char *seed, const char *file, char *order, size_t size)
{
    const char *path = plain_path(file);

    CHECK(setenv("ZE_SOFT_SEED", seed, 1) == 0);
    CHECK_INT(spawn("shuffle", "ZE_SOFT_REORDER", "1", path), 0);
    CHECK(unsetenv("ZE_SOFT_SEED") == 0);
    (void)plain_read(path, order, size);
    CHECK(strlen(order) >= 8); /* a layer of the loader may have said something at the end */
    order[8] = '\0';
}

static void a_seed_gives_one_order(void)
{
    char first[64], again[64], other[64];

    shuffle("1", "first", first, sizeof(first));
    shuffle("1", "again", again, sizeof(again));
    shuffle("2", "other", other, sizeof(other));
    CHECK_STR(again, first);
    CHECK(strcmp(first, other) != 0);
}

/* Were the list done in order, the second command would wait for ever. */
static void child_overtake(void)
{
    ze_command_list_handle_t list = immediate(0, ZE_COMMAND_QUEUE_MODE_DEFAULT);
    ze_event_pool_handle_t   pool = make_pool(4, 0);
    ze_event_handle_t        ev[4];
    uint64_t                *when = (void *)on_host(8);

    for (uint32_t i = 0; i < 4; i++)
        ev[i] = make_event(pool, i);
    OK(zeCommandListAppendWriteGlobalTimestamp(list, when, ev[1], 1, &ev[0]));
    CHECK_INT(zeEventHostSynchronize(ev[1], 20000000), ZE_RESULT_NOT_READY); /* it sleeps */
    OK(zeCommandListAppendSignalEvent(list, ev[2]));
    OK(zeEventHostSynchronize(ev[2], FOREVER));
    OK(zeCommandListAppendBarrier(list, ev[3], 0, NULL));
    CHECK_INT(zeEventHostSynchronize(ev[3], 1000000), ZE_RESULT_NOT_READY);
    OK(zeEventHostSignal(ev[0]));
    OK(zeEventHostSynchronize(ev[3], FOREVER));
    OK(zeEventQueryStatus(ev[1]));
    for (uint32_t i = 0; i < 4; i++)
        OK(zeEventDestroy(ev[i]));
    OK(zeEventPoolDestroy(pool));
    OK(zeCommandListDestroy(list));
    OK(zeMemFree(ctx, when));
}

static void what_waits_can_be_overtaken(void)
{
    CHECK_INT(spawn("overtake", "ZE_SOFT_REORDER", "1", NULL), 0);
}

static void child_lenient(void)
{
    ze_command_queue_handle_t queue = make_queue(0);
    ze_command_list_handle_t  list  = regular(0);
    unsigned char            *p     = on_host(8);

    OK(zeCommandListAppendMemoryFill(list, p, "1", 1, 4, NULL, 0, NULL));
    OK(zeCommandListClose(list));
    OK(zeCommandListAppendMemoryFill(list, p + 4, "2", 1, 4, NULL, 0, NULL));
    OK(zeCommandQueueExecuteCommandLists(queue, 1, &list, NULL));
    OK(zeCommandQueueSynchronize(queue, FOREVER));
    CHECK(is_filled(p, 4, '1') && is_filled(p + 4, 4, 0));
    OK(zeCommandListDestroy(list));
    OK(zeCommandQueueDestroy(queue));
    OK(zeMemFree(ctx, p));
}

static void lenient_lists_drop_late_appends(void)
{
    CHECK_INT(spawn("lenient", "ZE_SOFT_LENIENT", "1", NULL), 0);
}

/* The third command loses the device: a wait without end ends, and so does all that comes later. */
static void child_lose(void)
{
    ze_command_list_handle_t  list  = immediate(0, ZE_COMMAND_QUEUE_MODE_DEFAULT), sound;
    ze_command_queue_handle_t queue = make_queue(0);
    ze_event_pool_handle_t    pool  = make_pool(2, 0);
    ze_event_handle_t         ev = make_event(pool, 0), never = make_event(pool, 1);

    OK(zeCommandListAppendBarrier(list, NULL, 0, NULL));
    OK(zeCommandListAppendBarrier(list, NULL, 0, NULL));
    (void)zeCommandListAppendBarrier(list, ev, 0, NULL);
    CHECK_INT(zeEventHostSynchronize(ev, FOREVER), ZE_RESULT_ERROR_DEVICE_LOST);
    CHECK_INT(zeEventHostSynchronize(never, FOREVER), ZE_RESULT_ERROR_DEVICE_LOST);
    CHECK_INT(zeCommandQueueSynchronize(queue, FOREVER), ZE_RESULT_ERROR_DEVICE_LOST);
    CHECK_INT(zeCommandListAppendBarrier(list, NULL, 0, NULL), ZE_RESULT_ERROR_DEVICE_LOST);
    sound = immediate(1, ZE_COMMAND_QUEUE_MODE_DEFAULT);
    OK(zeCommandListAppendSignalEvent(sound, never));
    OK(zeEventHostSynchronize(never, FOREVER));
    OK(zeCommandListDestroy(sound));
    OK(zeEventDestroy(ev));
    OK(zeEventDestroy(never));
    OK(zeEventPoolDestroy(pool));
    OK(zeCommandListDestroy(list));
    OK(zeCommandQueueDestroy(queue));
}

/* The third command is one of the second execution; the fence is never signalled. */
static void child_lose_batch(void)
{
    ze_command_queue_handle_t queue = make_queue(0);
    ze_command_list_handle_t  list  = regular(0);
    ze_fence_desc_t           desc  = {.stype = ZE_STRUCTURE_TYPE_FENCE_DESC};
    ze_fence_handle_t         fence;
    unsigned char            *p = on_host(16);

    OK(zeFenceCreate(queue, &desc, &fence));
    OK(zeCommandListAppendMemoryFill(list, p, "1", 1, 8, NULL, 0, NULL));
    OK(zeCommandListAppendMemoryFill(list, p + 8, "2", 1, 8, NULL, 0, NULL));
    OK(zeCommandListClose(list));
    OK(zeCommandQueueExecuteCommandLists(queue, 1, &list, fence));
    OK(zeFenceHostSynchronize(fence, FOREVER));
    CHECK(is_filled(p, 8, '1') && is_filled(p + 8, 8, '2'));
    memset(p, 0, 16);
    OK(zeFenceReset(fence));
    OK(zeCommandQueueExecuteCommandLists(queue, 1, &list, fence));
    CHECK_INT(zeFenceHostSynchronize(fence, FOREVER), ZE_RESULT_ERROR_DEVICE_LOST);
    CHECK_INT(zeCommandQueueSynchronize(queue, FOREVER), ZE_RESULT_ERROR_DEVICE_LOST);
    CHECK_INT(zeCommandQueueExecuteCommandLists(queue, 1, &list, fence),
              ZE_RESULT_ERROR_DEVICE_LOST);
    CHECK(is_filled(p, 16, 0));
    OK(zeFenceDestroy(fence));
    OK(zeCommandListDestroy(list));
    OK(zeCommandQueueDestroy(queue));
    OK(zeMemFree(ctx, p));
}

static void a_lost_device_ends_all_waits(void)
{
    CHECK_INT(spawn("lose_batch", "ZE_SOFT_LOSE", "3", NULL), 0);
    CHECK_INT(spawn("lose", "ZE_SOFT_LOSE", "3", NULL), 0);
}

static void *lose_soon(void *driver)
{
    void (*lose)(uint32_t);

    *(void **)&lose = dlsym(driver, "ze_soft_lose");
    CHECK(lose != NULL);
    lose(0);
    return NULL;
}

/* Waits that sleep already are woken. */
static void child_lose_asleep(void)
{
    ze_command_list_handle_t list = immediate(0, ZE_COMMAND_QUEUE_MODE_DEFAULT);
    ze_event_pool_handle_t   pool = make_pool(2, 0);
    ze_event_handle_t        go = make_event(pool, 0), done = make_event(pool, 1);
    void     *driver = dlopen(getenv("ZE_ENABLE_ALT_DRIVERS"), RTLD_NOW | RTLD_NOLOAD);
    pthread_t thread;

    CHECK(driver != NULL);
    OK(zeCommandListAppendBarrier(list, done, 1, &go));
    CHECK(pthread_create(&thread, NULL, lose_soon, driver) == 0);
    CHECK_INT(zeEventHostSynchronize(done, FOREVER), ZE_RESULT_ERROR_DEVICE_LOST);
    CHECK(pthread_join(thread, NULL) == 0);
    OK(zeCommandListDestroy(list));
    OK(zeEventDestroy(go));
    OK(zeEventDestroy(done));
    OK(zeEventPoolDestroy(pool));
    CHECK(dlclose(driver) == 0);
}

static void a_lost_device_wakes_who_sleeps(void)
{
    CHECK_INT(spawn("lose_asleep", "ZE_SOFT_SEED", "1", NULL), 0);
}

static void child_fault(void)
{
    ze_command_list_handle_t list = immediate(0, ZE_COMMAND_QUEUE_MODE_SYNCHRONOUS);
    unsigned char           *p    = on_host(BIG);
    void                    *dev  = on_device(0, 4096);

    (void)zeCommandListAppendMemoryCopy(list, dev, p, BIG, NULL, 0, NULL);
}

static void an_access_beyond_an_allocation_is_fatal(void)
{
    const char *errors = plain_path("errors");
    const int   status = spawn("fault", "ZE_SOFT_SEED", "1", errors);
    char        text[4096];

    CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
    CHECK_IN("zeCommandListAppendMemoryCopy", plain_read(errors, text, sizeof(text)));
}

/* 1 MiB at 100 MB/s is longer than 10 ms. */
static void child_slow(void)
{
    ze_command_list_handle_t     list = immediate(0, ZE_COMMAND_QUEUE_MODE_SYNCHRONOUS);
    ze_event_pool_handle_t       pool = make_pool(1, TIMESTAMPS);
    ze_event_handle_t            ev   = make_event(pool, 0);
    unsigned char               *p    = on_host(BIG);
    ze_kernel_timestamp_result_t t;

    OK(zeCommandListAppendMemoryFill(list, p, "s", 1, BIG, ev, 0, NULL));
    OK(zeEventQueryKernelTimestamp(ev, &t));
    CHECK(t.global.kernelEnd - t.global.kernelStart > 10000000);
    OK(zeEventDestroy(ev));
    OK(zeEventPoolDestroy(pool));
    OK(zeCommandListDestroy(list));
    OK(zeMemFree(ctx, p));
}

static void copies_have_a_bandwidth(void)
{
    CHECK_INT(spawn("slow", "ZE_SOFT_COPY_MBS", "100", NULL), 0);
}

/* The handle comes in a variable, in hexadecimal. */
static void child_ipc(void)
{
    const char                *text = getenv("TEST_EXEC_HANDLE");
    ze_ipc_event_pool_handle_t handle;
    ze_event_pool_handle_t     pool;
    ze_event_handle_t          go, done;

    CHECK(text && strlen(text) == 2 * sizeof(handle.data));
    for (size_t i = 0; i < sizeof(handle.data); i++) {
        const char two[3] = {text[2 * i], text[2 * i + 1], '\0'};

        handle.data[i] = (char)strtoul(two, NULL, 16);
    }
    OK(zeEventPoolOpenIpcHandle(ctx, handle, &pool));
    go   = make_event(pool, 0);
    done = make_event(pool, 1);
    CHECK_INT(zeEventQueryStatus(done), ZE_RESULT_NOT_READY);
    OK(zeEventHostSynchronize(go, FOREVER));
    OK(zeEventHostSignal(done));
    OK(zeEventDestroy(go));
    OK(zeEventDestroy(done));
    OK(zeEventPoolCloseIpcHandle(pool));
}

static void *signal_later(void *ev)
{
    const struct timespec a_bit = {.tv_nsec = 100000000};

    (void)nanosleep(&a_bit, NULL);
    OK(zeEventHostSignal(ev));
    return NULL;
}

static void events_reach_other_processes(void)
{
    ze_command_list_handle_t   list = immediate(0, ZE_COMMAND_QUEUE_MODE_DEFAULT);
    ze_event_pool_handle_t     pool = make_pool(2, ZE_EVENT_POOL_FLAG_IPC), own = make_pool(1, 0);
    ze_event_handle_t          go = make_event(pool, 0), done = make_event(pool, 1);
    ze_event_handle_t          seen = make_event(own, 0);
    ze_ipc_event_pool_handle_t handle;
    char                       text[2 * sizeof(handle.data) + 1];
    pthread_t                  thread;

    CHECK_INT(zeEventPoolGetIpcHandle(own, &handle), ZE_RESULT_ERROR_INVALID_ARGUMENT);
    OK(zeEventPoolGetIpcHandle(pool, &handle));
    for (size_t i = 0; i < sizeof(handle.data); i++)
        (void)snprintf(text + 2 * i, 3, "%02x", (unsigned char)handle.data[i]);
    OK(zeCommandListAppendBarrier(list, seen, 1,
                                  &done)); /* the device waits for the other process */
    CHECK(pthread_create(&thread, NULL, signal_later, go) == 0);
    CHECK_INT(spawn("ipc", "TEST_EXEC_HANDLE", text, NULL), 0);
    CHECK(pthread_join(thread, NULL) == 0);
    OK(zeEventHostSynchronize(seen, FOREVER));
    OK(zeEventDestroy(go));
    OK(zeEventDestroy(done));
    OK(zeEventDestroy(seen));
    OK(zeEventPoolDestroy(pool));
    OK(zeEventPoolDestroy(own));
    OK(zeCommandListDestroy(list));
}

static const plain_case children[] = {{"order", child_order},
                                      {"reset", child_reset},
                                      {"shuffle", child_shuffle},
                                      {"overtake", child_overtake},
                                      {"lenient", child_lenient},
                                      {"lose", child_lose},
                                      {"lose_asleep", child_lose_asleep},
                                      {"lose_batch", child_lose_batch},
                                      {"fault", child_fault},
                                      {"slow", child_slow},
                                      {"ipc", child_ipc},
                                      {NULL, NULL}};

static const plain_case cases[] = {
    CASE(the_order_can_be_turned_round),  CASE(a_seed_gives_one_order),
    CASE(what_waits_can_be_overtaken),    CASE(a_lost_device_ends_all_waits),
    CASE(a_lost_device_wakes_who_sleeps), CASE(an_access_beyond_an_allocation_is_fatal),
    CASE(copies_have_a_bandwidth),        CASE(lenient_lists_drop_late_appends),
    CASE(events_reach_other_processes),   {NULL, NULL}};

int main(int argc, char **argv)
{
    int status;

    (void)alarm(100); /* a wait that is never woken is a failure, too */
    plain.runner   = pthread_self();
    plain.in_child = true; /* a failure in start() or a child ends the process */
    start();
    for (const plain_case *c = children; argc == 2 && c->name; c++)
        if (strcmp(argv[1], c->name) == 0) {
            c->run();
            stop();
            return 0;
        }
    plain.in_child = false;
    status         = plain_main(argc, argv, cases);
    stop();
    return status;
}
