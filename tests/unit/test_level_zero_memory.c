/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The Level Zero backend: address ranges and the memory behind them, memory of other processes, out
 * of memory at each driver call of these and of plain allocation, a lost device. */
#include "level_zero_fixture.h"

#include "base/inline/atomic.h"

#include <errno.h>
#include <stdarg.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>

/* --- a system that gives no descriptor of another process ---------------------------------------
 *
 * With USM_TEST_REFUSES=open it knows no pidfds (Linux before 5.3), with =getfd none gives a
 * descriptor (before 5.6, or Yama's doing).  libc's function for the whole process: the backend and
 * the driver are modules. */

#define EXPORTED __attribute__((visibility("default")))

static _Atomic(unsigned) refusals;

static bool is_refused(long number)
{
    const char *which = getenv("USM_TEST_REFUSES");

    return which && ((number == SYS_pidfd_open && strcmp(which, "open") == 0) ||
                     (number == SYS_pidfd_getfd && strcmp(which, "getfd") == 0));
}

EXPORTED long syscall(long number, ...)
{
    static _Atomic(void *) found;
    long (*real)(long number, ...);
    void   *f = usm_load_acquire(&found);
    long    a[6];
    va_list list;

    va_start(list, number);
    for (int i = 0; i < 6; i++)
        a[i] = va_arg(list, long);
    va_end(list);
    if (is_refused(number)) {
        refusals++;
        errno = number == SYS_pidfd_open ? ENOSYS : EPERM;
        return -1;
    }
    if (!f) {
        f = dlsym(RTLD_NEXT, "syscall");
        usm_store_release(&found, f);
    }
    memcpy(&real, &f, sizeof(f)); /* ISO C has no cast from data to code */
    return real(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}

/* --- address ranges --------------------------------------------------------------------------- */

static void check_bytes(const void *p, unsigned char value, size_t n)
{
    unsigned char *out  = malloc(n);
    void          *copy = NULL;

    CHECK(out != NULL);
    CHECK_INT(ops->copy(q, out, p, n, 0, NULL, &copy), USM_OK);
    finish(copy);
    for (size_t i = 0; i < n; i++)
        CHECK_INT(out[i], value);
    free(out);
}

static void fill_bytes(void *p, unsigned char value, size_t n)
{
    void *ev = NULL;

    CHECK_INT(ops->fill(q, p, &value, 1, n, 0, NULL, &ev), USM_OK);
    finish(ev);
}

static void ranges_and_memory_are_joined_and_parted(void)
{
    size_t     g     = 0;
    void      *range = NULL, *phys = NULL;
    char      *at;
    usm_status status;

    open_with(0);
    CHECK_INT(ops->vmem_granularity(ctx, dev->handle, USM_DEVICE, 1 << 20, &g), USM_OK);
    CHECK(g >= 4096 && !(g & (g - 1)));
    status = ops->vmem_reserve(ctx, USM_DEVICE, 4 * g, &range);
    if (status == USM_E_NOT_SUPPORTED) { /* Intel's driver without a GPU */
        close_all();
        SKIP("the driver reserves no address ranges");
    }
    CHECK_INT(status, USM_OK);
    at = range;
    CHECK((uintptr_t)range % g == 0);
    CHECK_INT(ops->phys_create(ctx, dev->handle, USM_DEVICE, 2 * g, &phys), USM_OK);
    CHECK_INT(ops->vmem_map(ctx, at, 2 * g, phys, 0), USM_OK);
    fill_bytes(at, 1, g);
    fill_bytes(at + g, 2, g);
    /* The second half at another address, where it keeps what it holds. */
    CHECK_INT(ops->vmem_unmap(ctx, at, 2 * g), USM_OK);
    CHECK_INT(ops->vmem_map(ctx, at + 2 * g, g, phys, g), USM_OK);
    check_bytes(at + 2 * g, 2, g);
    CHECK_INT(ops->vmem_unmap(ctx, at + 2 * g, g), USM_OK);
    CHECK_INT(ops->phys_destroy(ctx, phys), USM_OK);
    CHECK_INT(ops->vmem_release(ctx, range, 4 * g), USM_OK);
    close_all();
}

static void ranges_of_odd_sizes_are_refused(void)
{
    void *range = NULL, *phys = NULL;

    needs_soft();
    module_start();
    ctx = context_of(1, dev);
    CHECK(ops->vmem_reserve(ctx, USM_DEVICE, 100, &range) < 0);
    CHECK_IN("zeVirtualMemReserve failed", usm_last_error());
    CHECK(ops->phys_create(ctx, dev->handle, USM_DEVICE, 100, &phys) < 0);
    CHECK_IN("zePhysicalMemCreate failed", usm_last_error());
    CHECK(range == NULL && phys == NULL);
    ops->context_destroy(ctx);
    module_clean();
}

/* --- memory of other processes ---------------------------------------------------------------- */

/* A handle goes through a socket, its descriptor beside it. */
static void send_handle(int to, const usm_backend_ipc *handle)
{
    usm_backend_ipc copy = *handle;
    struct iovec    part = {&copy, sizeof(copy)};
    union {
        struct cmsghdr head;
        char           bytes[CMSG_SPACE(sizeof(int))];
    } control;
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};

    memset(&control, 0, sizeof(control));
    if (handle->fd >= 0) {
        message.msg_control     = control.bytes;
        message.msg_controllen  = sizeof(control.bytes);
        control.head.cmsg_level = SOL_SOCKET;
        control.head.cmsg_type  = SCM_RIGHTS;
        control.head.cmsg_len   = CMSG_LEN(sizeof(int));
        memcpy(CMSG_DATA(&control.head), &handle->fd, sizeof(int));
    }
    CHECK_INT(sendmsg(to, &message, 0), sizeof(copy));
}

static void receive_handle(int from, usm_backend_ipc *handle)
{
    struct iovec part = {handle, sizeof(*handle)};
    union {
        struct cmsghdr head;
        char           bytes[CMSG_SPACE(sizeof(int))];
    } control;
    struct msghdr message = {.msg_iov        = &part,
                             .msg_iovlen     = 1,
                             .msg_control    = control.bytes,
                             .msg_controllen = sizeof(control.bytes)};

    memset(&control, 0, sizeof(control));
    CHECK_INT(recvmsg(from, &message, MSG_CMSG_CLOEXEC), sizeof(*handle));
    handle->fd = -1;
    if (message.msg_controllen >= CMSG_LEN(sizeof(int)) && control.head.cmsg_type == SCM_RIGHTS)
        memcpy(&handle->fd, CMSG_DATA(&control.head), sizeof(int));
}

/* Wherever a number is taken for a descriptor that it is not, it finds a file of nothing. */
static void fill_numbers(int count, off_t size)
{
    for (int i = 0; i < count; i++) {
        int fd = memfd_create("decoy", MFD_CLOEXEC);

        CHECK(fd >= 0 && ftruncate(fd, size) == 0);
    }
}

/* The other process: opens what comes through its standard input, looks and writes. */
static void open_and_answer(void)
{
    usm_backend_ipc handle;
    void           *p = NULL;

    if (getenv("USM_TEST_REFUSES")) /* the exporter's number as well: large enough to be opened */
        fill_numbers(200, 64 << 20);
    receive_handle(STDIN_FILENO, &handle);
    open_with(0);
    CHECK_INT(ops->ipc_open(ctx, dev->handle, &handle, &p), USM_OK);
    CHECK(!getenv("USM_TEST_REFUSES") || refusals > 0);
    check_bytes(p, 11, N);
    fill_bytes((char *)p + N / 2, 22, N / 2);
    CHECK_INT(ops->ipc_close(ctx, p), USM_OK);
    if (handle.fd >= 0)
        (void)close(handle.fd);
    close_all();
}

static void needs_ipc(void)
{
    needs_commands(); /* Intel's driver without a GPU opens no handle */
}

static void another_process_opens_our_memory(void)
{
    usm_backend_ipc handle;
    int             pair[2];
    pid_t           other;
    char           *p;

    needs_ipc();
    CHECK_INT(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
    open_with(0);
    p = allocate_in(ctx, USM_DEVICE, N);
    fill_bytes(p, 11, N);
    CHECK_INT(ops->ipc_get(ctx, p, &handle), USM_OK);
    printf("# the handle has %s\n", handle.fd >= 0 ? "a descriptor" : "no descriptor of its own");
    other = start_self("--open", "USM_TEST_ROLE=opens", pair[1]);
    send_handle(pair[0], &handle);
    ends_well(other);
    check_bytes(p, 11, N / 2);
    check_bytes(p + N / 2, 22, N / 2);
    CHECK_INT(ops->ipc_put(ctx, &handle), USM_OK);
    CHECK_INT(handle.fd, -1);
    CHECK_INT(ops->mem_free(ctx, USM_DEVICE, p, N), USM_OK);
    close_all();
    (void)close(pair[0]);
    (void)close(pair[1]);
}

/* As a process of its own, whose descriptors may stay open. */
static void own_and_lend(void)
{
    fill_numbers(64, 0);
    another_process_opens_our_memory();
}

/* What the handle names is a number of the opener's, as before August 2025, or of the exporter's;
 * and where the opener may not take that from the exporter, none of either. */
static void a_descriptors_number_is_one_of_the_process_it_is_named_in(void)
{
    needs_ipc();
    needs_soft();
    ends_well(start_self("--lend", "ZE_SOFT_IPC=1", -1));
    ends_well(start_self("--lend", "ZE_SOFT_IPC=2", -1));
}

/* The driver, too, cannot take the descriptor then, and looks for the number among the opener's. */
static void where_no_process_gives_its_descriptors_the_one_that_was_sent_is_named(void)
{
    static const char *const refused[] = {"open", "getfd"};

    needs_ipc();
    needs_soft();
    for (int i = 0; i < 2; i++) {
        CHECK(setenv("USM_TEST_REFUSES", refused[i], 1) == 0);
        ends_well(start_self("--lend", "ZE_SOFT_IPC=2", -1));
    }
    CHECK(unsetenv("USM_TEST_REFUSES") == 0);
}

static void each_opening_has_its_own_address(void)
{
    usm_backend_ipc handle;
    void           *p, *one = NULL, *two = NULL;

    needs_ipc();
    open_with(0);
    p = allocate_in(ctx, USM_DEVICE, N);
    CHECK_INT(ops->ipc_get(ctx, p, &handle), USM_OK);
    CHECK_INT(ops->ipc_open(ctx, dev->handle, &handle, &one), USM_OK);
    CHECK_INT(ops->ipc_open(ctx, dev->handle, &handle, &two), USM_OK);
    CHECK(one != p && two != p && one != two);
    CHECK_INT(ops->ipc_put(ctx, &handle), USM_OK); /* what was opened stays open */
    fill_bytes(one, 33, N);
    check_bytes(two, 33, N);
    check_bytes(p, 33, N);
    CHECK_INT(ops->mem_free(ctx, USM_DEVICE, p, N), USM_OK);
    check_bytes(one, 33, N);
    CHECK_INT(ops->ipc_close(ctx, one), USM_OK);
    CHECK_INT(ops->ipc_close(ctx, two), USM_OK);
    close_all();
}

static void bytes_that_are_no_handle_are_refused(void)
{
    usm_backend_ipc handle = {.fd = -1};
    void           *p      = NULL;

    needs_ipc();
    module_start();
    ctx = context_of(1, dev);
    for (int byte = 0; byte < 256; byte += 51) {
        memset(handle.bytes, byte, sizeof(handle.bytes));
        CHECK_INT(ops->ipc_open(ctx, dev->handle, &handle, &p), USM_E_INVALID);
        CHECK_IN("names no memory of this driver", usm_last_error());
    }
    CHECK(p == NULL);
    ops->context_destroy(ctx);
    module_clean();
}

/* --- faults ----------------------------------------------------------------------------------- */

static usm_status use_memory(void *own)
{
    void      *blocks[4] = {NULL, NULL, NULL, NULL};
    usm_status status    = USM_OK;

    for (usm_kind kind = USM_HOST; kind <= USM_SHARED && !status; kind++)
        status =
            ops->mem_alloc(own, kind == USM_HOST ? NULL : dev->handle, kind, N, 64, &blocks[kind]);
    for (usm_kind kind = USM_HOST; kind <= USM_SHARED; kind++)
        if (blocks[kind])
            CHECK_INT(ops->mem_free(own, kind, blocks[kind], N), USM_OK);
    return status;
}

static usm_status use_ipc(void *own)
{
    usm_backend_ipc handle;
    void           *p = NULL, *opened = NULL;
    usm_status      status = ops->mem_alloc(own, dev->handle, USM_DEVICE, N, 64, &p);

    if (status)
        return status;
    status = ops->ipc_get(own, p, &handle);
    if (!status) {
        status = ops->ipc_open(own, dev->handle, &handle, &opened);
        CHECK((opened != NULL) == !status);
        if (opened)
            CHECK_INT(ops->ipc_close(own, opened), USM_OK);
        (void)ops->ipc_put(own, &handle);
    }
    CHECK_INT(ops->mem_free(own, USM_DEVICE, p, N), USM_OK);
    return status;
}

static usm_status use_range(void *own)
{
    size_t     g     = 0;
    void      *range = NULL, *phys = NULL;
    usm_status status = ops->vmem_granularity(own, dev->handle, USM_DEVICE, N, &g);

    if (!status)
        status = ops->vmem_reserve(own, USM_DEVICE, g, &range);
    if (!status)
        status = ops->phys_create(own, dev->handle, USM_DEVICE, g, &phys);
    if (!status)
        status = ops->vmem_map(own, range, g, phys, 0);
    if (!status)
        (void)ops->vmem_unmap(own, range, g);
    if (phys)
        (void)ops->phys_destroy(own, phys);
    if (range)
        (void)ops->vmem_release(own, range, g);
    return status;
}

static usm_status use_all(void)
{
    void      *own    = NULL;
    usm_status status = ops->context_create(1, &dev->handle, &own);

    if (status)
        return status;
    status = use_memory(own);
    if (!status)
        status = use_ipc(own);
    if (!status)
        status = use_range(own);
    ops->context_destroy(own);
    return status;
}

static void expected_is(usm_status status, usm_status expected, const char *call)
{
    if (status != expected)
        printf("# after the failure of %s: %s\n", call, usm_last_error());
    CHECK_INT(status, expected);
}

/* What a descriptor is asked of has another way, and what is evicted is freed all the same; all
 * else has none. */
static bool is_dispensable(const char *call)
{
    return strstr(call, "FileDescriptor") || strcmp(call, "zeMemGetAllocProperties") == 0 ||
           strcmp(call, "zeContextEvictMemory") == 0;
}

/* Each driver call in turn fails; what it failed with comes back, and nothing stays behind. */
static void fail_each_call(ze_result_t code, usm_status expected)
{
    uint64_t before = soft.live(), n = 0;
    int      made_resident = 0;
    bool     has_failed    = true;

    while (has_failed) {
        usm_status  status;
        const char *call;

        soft.fail_at(++n, (uint32_t)code, 0);
        status     = use_all();
        has_failed = soft.has_failed() != 0;
        call       = soft.failed_call();
        if (!has_failed || is_dispensable(call))
            expected_is(status, USM_OK, call);
        else
            expected_is(status, expected, call);
        made_resident += has_failed && strcmp(call, "zeContextMakeMemoryResident") == 0;
        soft.fail_at(0, 0, 0);
        CHECK_INT(soft.live(), before);
    }
    printf("# %d calls failed in turn\n", (int)n - 1);
    CHECK(n > 10);
    CHECK_INT(made_resident, 2); /* device memory, in use_memory() and in use_ipc() */
}

static void each_driver_call_may_be_out_of_memory(void)
{
    needs_soft();
    module_start();
    fail_each_call(ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY, USM_E_NO_MEMORY);
    module_clean();
}

static void the_host_heap_may_be_exhausted(void)
{
    uint64_t n          = 0;
    bool     has_failed = true;

    module_start();
    while (has_failed) {
        usm_status status;
        void      *own = NULL;

        CHECK(usm__fault_arm("heap.alloc", ++n, false, USM_OK));
        status     = ops->context_create(1, &dev->handle, &own);
        has_failed = status != USM_OK;
        usm__fault_disarm_all();
        CHECK_INT(status, has_failed ? USM_E_NO_MEMORY : USM_OK);
        if (own)
            ops->context_destroy(own);
    }
    CHECK(n > 1);
    module_clean();
}

/* The other process: a lost device takes back what it gave. */
static void lose_the_device(void)
{
    void *p, *range = NULL, *phys = NULL, *none = NULL;

    CHECK(soft.is_there);
    module_start();
    ctx = context_of(1, dev);
    p   = allocate_in(ctx, USM_DEVICE, N);
    CHECK_INT(ops->vmem_reserve(ctx, USM_DEVICE, 2 << 20, &range), USM_OK);
    CHECK_INT(ops->phys_create(ctx, dev->handle, USM_DEVICE, 2 << 20, &phys), USM_OK);
    CHECK_INT(ops->vmem_map(ctx, range, 2 << 20, phys, 0), USM_OK);
    soft.lose(0);
    CHECK_INT(ops->mem_alloc(ctx, dev->handle, USM_DEVICE, N, 64, &none), USM_E_DEVICE_LOST);
    CHECK_IN("must be reset", usm_last_error());
    CHECK_INT(ops->mem_alloc(ctx, dev->handle, USM_SHARED, N, 64, &none), USM_E_DEVICE_LOST);
    CHECK(none == NULL);
    CHECK_INT(ops->mem_free(ctx, USM_DEVICE, p, N), USM_OK);
    CHECK_INT(ops->vmem_unmap(ctx, range, 2 << 20), USM_OK);
    CHECK_INT(ops->phys_destroy(ctx, phys), USM_OK);
    CHECK_INT(ops->vmem_release(ctx, range, 2 << 20), USM_OK);
    ops->context_destroy(ctx);
    module_clean();
}

static void a_lost_device_takes_back_what_it_gave(void)
{
    needs_soft();
    ends_well(start_self("--lose", "USM_TEST_ROLE=loses", -1));
}

/* ---------------------------------------------------------------------------------------------- */

static const plain_case cases[] = {
    CASE(the_software_driver_is_found_where_it_runs),
    CASE(ranges_and_memory_are_joined_and_parted),
    CASE(ranges_of_odd_sizes_are_refused),
    CASE(another_process_opens_our_memory),
    CASE(a_descriptors_number_is_one_of_the_process_it_is_named_in),
    CASE(where_no_process_gives_its_descriptors_the_one_that_was_sent_is_named),
    CASE(each_opening_has_its_own_address),
    CASE(bytes_that_are_no_handle_are_refused),
    CASE(each_driver_call_may_be_out_of_memory),
    CASE(the_host_heap_may_be_exhausted),
    CASE(a_lost_device_takes_back_what_it_gave),
    {NULL, NULL},
};

static const plain_case others[] = {
    {"--lend", own_and_lend},
    {"--open", open_and_answer},
    {"--lose", lose_the_device},
    {NULL, NULL},
};

int main(int argc, char **argv)
{
    return level_zero_main(argc, argv, cases, others);
}
