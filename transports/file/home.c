/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Backing stores ("homes"): files of the user, used in place, at any byte offset and of any size.
 * This file opens and locks them, carries out transfers, and reserves room.  What makes a series of
 * stores durable as a whole is in src/spill.  Called by file.c, and for transfers by io.c.
 *
 * Direct I/O works on whole pages of the file.  A part that begins elsewhere is moved through a
 * bounce buffer.  The pages at the ends of a store, of which it has only a part, are written with
 * the other descriptor, through the system's cache.  Both ways can be combined, because no page of
 * the file is written directly and through the cache at the same time: a page that lies within one
 * store belongs to no other store, and a page that several stores share is written through the
 * cache by all of them.  A direct fetch makes the system first write out what its cache has of the
 * range. */
#include "internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>

/* A transfer as a part of the file: bytes [at, at + size), followed by zeros. */
typedef struct part {
    uint64_t at;
    size_t   size;
} part;

static part part_of(const usm_file_store *s, const usm_transfer *t)
{
    const uint64_t begin = t->block * s->block_size + t->offset;
    part           p     = {.at = s->home.base + begin};

    if (begin < s->home.size)
        p.size = s->home.size - begin < t->size ? (size_t)(s->home.size - begin) : t->size;
    return p;
}

bool usm_file_home_is_plain(const usm_file_store *s, const usm_transfer *t)
{
    const size_t align = t->op == USM_TRANSFER_STORE ? PAGE_SIZE : s->home.fetch_align;
    const part   p     = part_of(s, t);

    return s->places[0].direct >= 0 && p.size == t->size && p.at % align == 0 &&
           (t->op == USM_TRANSFER_FETCH || s->home.writable);
}

/* ---- transfers ---------------------------------------------------------------- */

static int move(const usm_file_store *s, int fd, bool is_store, part p, char *data)
{
    usm_file_span span = {.fd = fd, .is_store = is_store, .data = data, .size = p.size, .at = p.at};

    return usm_file_move(s, &span);
}

static int through_cache(const usm_file_store *s, bool is_store, part p, char *data)
{
    return move(s, s->places[0].buffered, is_store, p, data);
}

/* Fetches a part that direct I/O cannot read to its destination. */
static int fetch_by_bounce(usm_file_store *s, part p, char *data)
{
    const uint64_t   begin = p.at & ~(uint64_t)(PAGE_SIZE - 1);
    const uint64_t   end   = (p.at + p.size + PAGE_SIZE - 1) & ~(uint64_t)(PAGE_SIZE - 1);
    usm_file_bounce *bounce;
    usm_file_span    span;
    int              error;

    bounce = usm_file_bounce_take(s);
    if (!bounce)
        return through_cache(s, false, p, data);
    span  = (usm_file_span){.fd   = s->places[0].direct,
                            .data = bounce->data,
                            .size = (size_t)(end - begin),
                            .at   = begin};
    error = usm_file_move(s, &span);
    if (error == ENODATA && begin + span.moved >= p.at + p.size)
        error = 0; /* the file ends in the last page, after the part */
    if (!error)
        memcpy(data, bounce->data + (p.at - begin), p.size);
    usm_file_bounce_give(s, bounce);
    return error;
}

static int fetch(usm_file_store *s, part p, char *data)
{
    size_t whole;
    int    error;

    if (s->places[0].direct < 0) {
        error = through_cache(s, false, p, data);
        s->api->os->drop_cache(s->places[0].buffered, p.at, p.size);
        return error;
    }
    if (p.at % s->home.fetch_align != 0)
        return fetch_by_bounce(s, p, data);
    whole = p.size - p.size % PAGE_SIZE;
    error = move(s, s->places[0].direct, false, (part){p.at, whole}, data);
    if (error || whole == p.size)
        return error;
    return through_cache(s, false, (part){p.at + whole, p.size - whole}, data + whole);
}

/* Stores whole pages of the file from memory that is not aligned. */
static int store_by_bounce(usm_file_store *s, part p, char *data)
{
    usm_file_bounce *bounce = usm_file_bounce_take(s);
    int              error;

    if (!bounce)
        return through_cache(s, true, p, data);
    memcpy(bounce->data, data, p.size);
    error = move(s, s->places[0].direct, true, p, bounce->data);
    usm_file_bounce_give(s, bounce);
    return error;
}

static int store(usm_file_store *s, part p, char *data)
{
    const size_t head = (size_t)(-p.at & (PAGE_SIZE - 1));
    size_t       whole;
    int          error = 0;

    if (s->places[0].direct < 0) {
        error = through_cache(s, true, p, data);
        s->api->os->drop_cache(s->places[0].buffered, p.at, p.size);
        return error;
    }
    if (p.size < head + PAGE_SIZE)
        return through_cache(s, true, p, data);
    whole = (p.size - head) & ~(PAGE_SIZE - 1);
    if (head > 0) {
        error = through_cache(s, true, (part){p.at, head}, data);
        if (!error)
            error = store_by_bounce(s, (part){p.at + head, whole}, data + head);
    } else {
        error = move(s, s->places[0].direct, true, (part){p.at, whole}, data);
    }
    if (error || head + whole == p.size)
        return error;
    return through_cache(s, true, (part){p.at + head + whole, p.size - head - whole},
                         data + head + whole);
}

usm_status usm_file_run_home(usm_file_store *s, usm_transfer *t)
{
    const part p     = part_of(s, t);
    char      *data  = t->data;
    int        error = 0;

    if (t->op == USM_TRANSFER_STORE && !s->home.writable)
        return s->api->report(USM_E_READ_ONLY, "%s was opened to be read only", s->places[0].path);
    if (p.size > 0)
        error = t->op == USM_TRANSFER_STORE ? store(s, p, data) : fetch(s, p, data);
    if (error)
        return usm_file_explain(s, t, error);
    if (t->op == USM_TRANSFER_FETCH && p.size < t->size)
        memset(data + p.size, 0, t->size - p.size);
    return USM_OK;
}

/* ---- opening -------------------------------------------------------------------- */

static usm_status refuse(const usm_file_store *s, const char *path, const char *what, int error)
{
    char        room[128];
    const char *text = strerror_r(error, room, sizeof(room));

    if (error == ENOMEM)
        return s->api->report(USM_E_NO_MEMORY, "no memory to open %s", path);
    if (error == EROFS || error == EACCES || error == EPERM)
        return s->api->report(USM_E_IO,
                              "%s cannot be %s: %s; ask for less, or have its permissions "
                              "changed",
                              path, what, text);
    return s->api->report(USM_E_IO, "%s cannot be %s: %s", path, what, text);
}

/* Opens the same file for direct I/O, by its descriptor: the name may mean another file by now. */
static int open_direct(const usm_file_store *s, int fd, int flags)
{
    char name[64];

    (void)snprintf(name, sizeof(name), "/proc/self/fd/%d", fd);
    return s->api->os->open(name, flags | O_DIRECT, 0);
}

static usm_status lock(const usm_file_store *s, const usm_transport_home *home, int fd)
{
    if (s->api->os->lock(fd, home->writable, home->offset, home->size) == 0)
        return USM_OK;
    if (errno == EAGAIN || errno == EACCES)
        return s->api->report(
            USM_E_BUSY, "%s is in use: %s has this part of it open%s; close that first", home->path,
            "another buffer or program", home->writable ? "" : " for writing");
    if (errno == ENOMEM)
        return refuse(s, home->path, "locked", ENOMEM);
    s->api->log(USM_LOG_INFO, "%s cannot be locked against other writers", home->path);
    return USM_OK; /* a file system without locks */
}

/* Makes the file long enough, or reports that it is not. */
static usm_status fit(usm_file_store *s, const usm_transport_home *home, int fd,
                      const usm_os_file *file)
{
    const uint64_t end = home->offset + home->size;

    if (end <= file->size)
        return USM_OK;
    if (!home->create || file->is_device)
        return s->api->report(USM_E_INVALID,
                              "%s has %llu bytes, but %llu from byte %llu on are asked for",
                              home->path, (unsigned long long)file->size,
                              (unsigned long long)home->size, (unsigned long long)home->offset);
    if (end > s->api->os->limit(USM_OS_LIMIT_FILE_SIZE))
        return refuse(s, home->path, "made longer (ulimit -f)", EFBIG);
    if (s->api->os->truncate(fd, end) != 0)
        return refuse(s, home->path, "made longer", errno);
    s->home.was_created = true; /* a new length, or a new name */
    return USM_OK;
}

static usm_status check(usm_file_store *s, const usm_transport_home *home, int fd)
{
    usm_file_place *place = &s->places[0];
    usm_os_file     file;
    usm_status      st;

    if (s->api->os->inspect(fd, &file) != 0)
        return refuse(s, home->path, "looked at", errno);
    if (!file.is_regular && !file.is_device)
        return s->api->report(USM_E_INVALID, "%s is neither a file nor a disk", home->path);
    (void)usm_file_classify(file.filesystem, &place->filesystem);
    if (file.is_device)
        place->filesystem = "device";
    st = lock(s, home, fd);
    if (st == USM_OK)
        st = fit(s, home, fd, &file);
    s->home.fetch_align = file.direct_align > 0 && file.direct_align < PAGE_SIZE
                              ? file.direct_align
                              : (uint32_t)PAGE_SIZE;
    return st;
}

usm_status usm_file_open_home(usm_file_store *s, const usm_transport_home *home)
{
    usm_file_place *place = &s->places[0];
    const int       flags = home->writable ? O_RDWR : O_RDONLY;
    usm_status      st;

    if (home->size > INT64_MAX || home->offset > INT64_MAX - home->size || home->size == 0)
        return s->api->report(USM_E_INVALID, "%s has no such part: %llu bytes from byte %llu on",
                              home->path, (unsigned long long)home->size,
                              (unsigned long long)home->offset);
    if (home->create && !home->writable)
        return s->api->report(USM_E_INVALID, "%s cannot be made without being written to",
                              home->path);
    *place  = (usm_file_place){.direct = -1, .buffered = -1, .filesystem = ""};
    s->home = (usm_file_home){.base = home->offset, .size = home->size, .writable = home->writable};
    (void)snprintf(place->path, sizeof(place->path), "%s", home->path);
    place->buffered =
        s->api->os->open(home->path, flags | O_NONBLOCK | (home->create ? O_CREAT : 0), 0666);
    if (place->buffered < 0)
        return refuse(s, home->path, home->writable ? "opened for writing" : "opened", errno);
    s->nplaces = 1;
    s->is_home = true;
    st         = check(s, home, place->buffered);
    if (st != USM_OK) {
        usm_file_close_places(s);
        return st;
    }
    if (s->config.direct)
        place->direct = open_direct(s, place->buffered, flags);
    if (place->direct < 0)
        s->api->log(USM_LOG_INFO, "%s is read and written through the system's file cache",
                    home->path);
    return USM_OK;
}

/* ---- room, durability ------------------------------------------------------------- */

usm_status usm_file_home_reserve(usm_file_store *s, uint64_t first, uint64_t n)
{
    const usm_file_home *home = &s->home;
    uint64_t             begin, end;
    int                  rc;

    if (!home->writable)
        return s->api->report(USM_E_READ_ONLY, "%s was opened to be read only", s->places[0].path);
    if (__builtin_mul_overflow(first, s->block_size, &begin) ||
        __builtin_mul_overflow(n, s->block_size, &end) || __builtin_add_overflow(begin, end, &end))
        end = UINT64_MAX;
    end = end < home->size ? end : home->size;
    if (begin >= end)
        return USM_OK;
    do
        rc = s->api->os->fallocate(s->places[0].buffered, FALLOC_FL_KEEP_SIZE, home->base + begin,
                                   end - begin);
    while (rc != 0 && errno == EINTR);
    if (rc == 0 || errno == EOPNOTSUPP || errno == ENOSYS || errno == ENODEV)
        return USM_OK; /* a device has its room; where room cannot be reserved, a store may fail
                          later */
    if (errno == ENOSPC || errno == EDQUOT)
        return s->api->report(USM_E_SPILL_FULL, "there is no room for all of %s on its disk",
                              s->places[0].path);
    return refuse(s, s->places[0].path, "given room", errno);
}

/* Makes the name of a created file durable, in its folder. */
static int sync_folder(const usm_file_store *s)
{
    const char *path  = s->places[0].path;
    const char *slash = strrchr(path, '/');
    char        folder[PATH_ROOM];
    int         fd, rc;

    (void)snprintf(folder, sizeof(folder), "%.*s", slash ? (int)(slash - path + 1) : 1,
                   slash ? path : ".");
    fd = s->api->os->open(folder, O_RDONLY | O_DIRECTORY, 0);
    if (fd < 0)
        return errno == EACCES ? 0 : -1; /* the folder is writable, but not readable */
    rc = s->api->os->sync(fd);
    if (rc != 0 && errno == EINVAL)
        rc = 0; /* a file system on which names need no sync */
    (void)s->api->os->close(fd);
    return rc;
}

usm_status usm_file_home_sync(const usm_file_store *s)
{
    if (!s->home.was_created || sync_folder(s) == 0)
        return USM_OK;
    return refuse(s, s->places[0].path, "made durable", errno);
}
