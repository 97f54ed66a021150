/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The calls of userfaultfd, with their fault points; see mechanism.h.  Called by managed.c.
 *
 * Who may open one: with CAP_SYS_PTRACE or vm.unprivileged_userfaultfd=1 the system call gives one
 * that reaches faults of the kernel; so does /dev/userfaultfd, where its permissions allow.
 * Otherwise there is one that reaches only faults of the program's own code. */
#include "managed/mechanism.h"

#include "base/fault.h"
#include "base/settings.h"
#include "base/status.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <sched.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifdef USM_HAVE_VALGRIND /* its header; src/CMakeLists.txt looks for it */
#include <valgrind/valgrind.h>
#else
#define RUNNING_ON_VALGRIND 0
#endif

/* Newer than the headers of the systems that libusm builds on. */
#define FEATURE_POISON   (UINT64_C(1) << 14)
#define FEATURE_MOVE     (UINT64_C(1) << 16)
#define NEW_DESCRIPTOR   _IO(0xAA, 0x00)
#define USER_MODE_ONLY   1
#define POISON_DONTWAKE  1 /* the threads that wait are woken when the reason has been told */
#define POPULATE_WRITE   23
#define TRIES_WHILE_BUSY 100 /* of a call that fails because the kernel changes the mappings */

struct move {
    uint64_t dst, src, len, mode;
    int64_t  moved;
};

struct poison {
    struct uffdio_range range;
    uint64_t            mode;
    int64_t             updated;
};

#define IOCTL_MOVE   _IOWR(UFFDIO, 0x05, struct move)
#define IOCTL_POISON _IOWR(UFFDIO, 0x08, struct poison)

static int call(const usm__mechanism *m, const char *point, unsigned long request, void *arg)
{
    return usm__fault_errno(point, EINVAL) || ioctl(m->fd, request, arg) != 0 ? errno : 0;
}

/* ---- opening ------------------------------------------------------------------------- */

static int open_by_call(int flags)
{
    return usm__fault_errno("os.userfaultfd", EPERM)
               ? -1
               : (int)syscall(SYS_userfaultfd, O_CLOEXEC | flags);
}

static int open_by_device(void)
{
    int dev = usm__fault_errno("os.userfaultfd", EPERM)
                  ? -1
                  : open("/dev/userfaultfd", O_RDWR | O_CLOEXEC);
    int fd;

    if (dev < 0)
        return -1;
    fd = ioctl(dev, NEW_DESCRIPTOR, O_CLOEXEC);
    (void)close(dev);
    return fd;
}

static int agree(usm__mechanism *m, uint64_t features)
{
    struct uffdio_api api = {.api = UFFD_API, .features = features};

    return call(m, "os.uffd_api", UFFDIO_API, &api);
}

/* The newest that the kernel has; returns 0 or errno. */
static int agree_on_most(usm__mechanism *m)
{
    int rc = agree(m, UFFD_FEATURE_PAGEFAULT_FLAG_WP | FEATURE_POISON | FEATURE_MOVE);

    m->moves = m->can_poison = rc == 0;
    if (rc != 0) {
        rc            = agree(m, UFFD_FEATURE_PAGEFAULT_FLAG_WP | FEATURE_POISON);
        m->can_poison = rc == 0;
    }
    return rc == 0 ? 0 : agree(m, UFFD_FEATURE_PAGEFAULT_FLAG_WP);
}

static int watch(const usm__mechanism *m, void *p, size_t size, uint64_t mode)
{
    struct uffdio_register r = {.range = {(uintptr_t)p, size}, .mode = mode};

    return call(m, "os.uffd_register", UFFDIO_REGISTER, &r);
}

/* Pages can only be moved into memory that is watched.  Absent pages of the arena are the kernel's
 * to fill, so that only their protection is watched, which is never set. */
static int watch_arena(const usm__mechanism *m, void *p, size_t size)
{
    return watch(m, p, size, UFFDIO_REGISTER_MODE_WP);
}

usm_status usm__mechanism_open(usm__mechanism *m, char *arena, size_t size, bool can_move)
{
    const char *how = usm__setting_text("managed");
    int         rc;

    if (strcmp(how, "off") == 0)
        return usm__fail(USM_E_NOT_SUPPORTED, "managed memory is off (USM_MANAGED)");
    if (RUNNING_ON_VALGRIND)
        return usm__fail(USM_E_NOT_SUPPORTED,
                         "there is no managed memory under valgrind, which runs "
                         "one thread at a time: the one that serves an access "
                         "would wait for the one that makes it");
    *m = (usm__mechanism){.fd = open_by_call(0), .is_file = !can_move};
    if (m->fd < 0)
        m->fd = open_by_device();
    if (m->fd < 0) {
        m->fd           = open_by_call(USER_MODE_ONLY);
        m->is_user_only = true;
    }
    if (m->fd < 0)
        return usm__fail(USM_E_NOT_SUPPORTED,
                         "managed memory needs userfaultfd, which this machine refuses (errno %d); "
                         "set vm.unprivileged_userfaultfd=1, or let the user open /dev/userfaultfd",
                         errno);
    rc       = agree_on_most(m);
    m->moves = m->moves && can_move && strcmp(how, "copy") != 0;
    if (rc == 0 && m->moves)
        rc = watch_arena(m, arena, size);
    if (rc == 0 && (m->moves || strcmp(how, "move") != 0)) {
        m->frees_tables = m->moves && usm__mechanism_tries_tables(m);
        return USM_OK;
    }
    (void)close(m->fd);
    m->fd = -1;
    return rc == 0 ? usm__fail(
                         USM_E_NOT_SUPPORTED,
                         "USM_MANAGED=move needs UFFDIO_MOVE of Linux 6.8 and pages that can move")
                   : usm__fail(USM_E_NOT_SUPPORTED,
                               "managed memory needs write protection by userfaultfd, of Linux 5.7 "
                               "(errno %d)",
                               rc);
}

int usm__mechanism_watch(const usm__mechanism *m, void *p, size_t size)
{
    return watch(m, p, size, UFFDIO_REGISTER_MODE_MISSING | UFFDIO_REGISTER_MODE_WP);
}

/* ---- pages --------------------------------------------------------------------------- */

/* Whether a call that has failed with `rc` is to be made again; EAGAIN: the kernel is changing
 * mappings of the process, and says so until it has. */
static bool is_again(int rc, unsigned *tries)
{
    if (rc != EAGAIN || ++*tries > TRIES_WHILE_BUSY * 1000)
        return false;
    (void)sched_yield();
    return true;
}

/* Moves as much as can be; returns errno if that is not all.  *done: bytes.  Threads that wait for
 * what has come go on: what they write moves back with it. */
static int move(const usm__mechanism *m, char *from, char *to, size_t size, size_t *done)
{
    unsigned tries = 0;
    int      rc    = 0;

    *done = 0;
    while (*done < size) {
        struct move a = {
            .dst = (uintptr_t)to + *done, .src = (uintptr_t)from + *done, .len = size - *done};

        rc = call(m, "os.uffd_move", IOCTL_MOVE, &a);
        *done += a.moved > 0 ? (size_t)a.moved : 0;
        if (rc != 0 && a.moved <= 0 && !is_again(rc, &tries) &&
            (rc != EBUSY || ++tries > TRIES_WHILE_BUSY))
            break;
    }
    return *done == size ? 0 : rc;
}

static int copy(const usm__mechanism *m, const char *from, char *to, size_t size, bool is_protected)
{
    unsigned tries = 0;
    size_t   done  = 0;
    int      rc    = 0;

    while (done < size) {
        struct uffdio_copy a = {.dst  = (uintptr_t)to + done,
                                .src  = (uintptr_t)from + done,
                                .len  = size - done,
                                .mode = UFFDIO_COPY_MODE_DONTWAKE |
                                        (is_protected ? UFFDIO_COPY_MODE_WP : 0)};

        rc = call(m, "os.uffd_copy", UFFDIO_COPY, &a);
        done += a.copy > 0 ? (size_t)a.copy : 0;
        if (rc != 0 && a.copy <= 0 && !is_again(rc, &tries))
            break;
    }
    return done == size ? 0 : rc;
}

static int drop(void *p, size_t size, int how)
{
    return usm__fault_errno("os.madvise", EINVAL) || madvise(p, size, how) != 0 ? errno : 0;
}

/* The first `size` bytes of the frame have moved, and the others cannot come: these go back.  Pages
 * that do not move are copied; nobody writes to them meanwhile, as they are protected. */
static void move_back(const usm__mechanism *m, char *at, char *frame, size_t size)
{
    size_t done;

    if (move(m, at, frame, size, &done) == 0)
        return;
    (void)usm__mechanism_protect(m, at + done, size - done, true);
    memcpy(frame + done, at + done, size - done);
    (void)madvise(at + done, size - done, MADV_DONTNEED);
}

/* The frame may have no memory yet.  Pages that do not move, because the kernel uses them at this
 * moment, are copied: all of them come, or none. */
static int place_by_move(const usm__mechanism *m, char *frame, char *at, size_t size)
{
    size_t done, more = 0;
    int    rc;

    if (m->frees_tables && size % USM__HUGE_PAGE == 0)
        usm__mechanism_free_tables(at, size); /* that the access has made */
    rc = move(m, frame, at, size, &done);
    if (rc == ENOENT && drop(frame + done, size - done, POPULATE_WRITE) == 0) {
        rc = move(m, frame + done, at + done, size - done, &more);
        done += more;
    }
    if (rc == 0 || done == 0)
        return rc;
    rc = copy(m, frame + done, at + done, size - done, false);
    if (rc == 0) {
        (void)drop(frame + done, size - done, MADV_DONTNEED);
    } else {
        if (rc != EEXIST) /* nobody knows what a page that is in the way holds */
            (void)madvise(at + done, size - done, MADV_DONTNEED);
        move_back(m, at, frame, done);
    }
    return rc;
}

int usm__mechanism_place(const usm__mechanism *m, void *frame, char *at, size_t size,
                         bool is_protected)
{
    int rc;

    if (m->moves && place_by_move(m, frame, at, size) == 0)
        return 0;
    rc = copy(m, frame, at, size, is_protected);
    if (rc == 0)
        (void)drop(frame, size, m->is_file ? MADV_REMOVE : MADV_DONTNEED);
    else if (rc != EEXIST)
        (void)drop(at, size, MADV_DONTNEED);
    return rc;
}

static int take(const usm__mechanism *m, char *at, void *frame, size_t size)
{
    size_t done = 0;
    int    rc;

    if (!m->moves)
        return drop(at, size, MADV_DONTNEED);
    rc = move(m, at, frame, size, &done);
    if (rc == EEXIST && done == 0 && drop(frame, size, MADV_DONTNEED) == 0) {
        rc = move(m, at, frame, size, &done);
    } else if (rc != 0 && rc != EBUSY && done == 0 && watch_arena(m, frame, size) == 0) {
        /* A buffer had the frame, and the kernel watches it no more. */
        rc = move(m, at, frame, size, &done);
    }
    /* The frame's next content need not begin with this one: what does not move is dropped; so is a
     * block that the program has dropped pages of (ENOENT). */
    if (rc != 0 && (done > 0 || rc == ENOENT))
        rc = drop(at + done, size - done, MADV_DONTNEED);
    /* Present pages arrive without protection, but what the system has swapped out keeps it. */
    if (done > 0)
        (void)usm__mechanism_protect(m, frame, done, false);
    return rc;
}

/* Pages that the program has locked (mlock(), mlockall()) do not leave: they are unlocked. */
int usm__mechanism_take(const usm__mechanism *m, char *at, void *frame, size_t size)
{
    int rc = take(m, at, frame, size);

    return rc == EINVAL && munlock(at, size) == 0 ? take(m, at, frame, size) : rc;
}

int usm__mechanism_protect(const usm__mechanism *m, char *at, size_t size, bool is_protected)
{
    struct uffdio_writeprotect a     = {.range = {(uintptr_t)at, size},
                                        .mode  = is_protected ? UFFDIO_WRITEPROTECT_MODE_WP
                                                              : UFFDIO_WRITEPROTECT_MODE_DONTWAKE};
    unsigned                   tries = 0;
    int                        rc;

    do
        rc = call(m, "os.uffd_protect", UFFDIO_WRITEPROTECT, &a);
    while (is_again(rc, &tries));
    return rc;
}

void usm__mechanism_wake(const usm__mechanism *m, char *at, size_t size)
{
    struct uffdio_range range = {(uintptr_t)at, size};

    (void)ioctl(m->fd, UFFDIO_WAKE, &range);
}

int usm__mechanism_poison(const usm__mechanism *m, char *at, size_t size)
{
    struct poison a = {.range = {(uintptr_t)at, size}, .mode = POISON_DONTWAKE};

    return call(m, "os.uffd_poison", IOCTL_POISON, &a);
}

int usm__mechanism_forbid(const usm__mechanism *m, char *at, size_t size)
{
    if (m->can_poison && usm__mechanism_poison(m, at, size) == 0)
        return 0;
    return mprotect(at, size, PROT_NONE) == 0 ? 0 : errno;
}
