/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* A machine that loses power.  Every call that changes a file or a name is recorded (the linker's
 * --wrap puts these functions in between) and carried out; afterwards the states are built in which
 * a disk may be found if the power had gone after any of the calls:
 *
 *   data    what a sync of its file has confirmed is there; of the rest each write is lost, there,
 * or torn into sectors of 512 bytes or 4 KiB, in any mixture and order; so are lengths names   what
 * a sync of the folder has confirmed is there; each later change is lost or not, in any mixture; a
 * rename is one change syncs   one that did not come back has confirmed nothing
 *
 * Room that was reserved and not written reads as zeros or as what somebody else left there. */
#ifndef POWER_LOSS_H
#define POWER_LOSS_H

#include "home_fixture.h"

#include "base/os_file.h"

#define FILES_MAX 64
#define OPS_MAX   4096

typedef enum power_kind {
    POWER_WRITE,
    POWER_TRUNCATE,
    POWER_ALLOCATE,
    POWER_SYNC,
    POWER_SYNC_FAILED,
    POWER_NAME,
    POWER_RENAME,
    POWER_UNNAME,
    POWER_SYNC_DIR,
    POWER_SYNC_DIR_FAILED,
    POWER_NOTHING /* left out by a test                                                      */
} power_kind;

typedef struct power_op {
    power_kind kind;
    int        file;
    uint64_t   at, size;
    char      *data;
    char       from[64], to[64]; /* names in the folder                                      */
} power_op;

typedef struct power_image {
    char    *data;
    uint64_t size;
} power_image;

static struct {
    bool        is_recording;
    bool        is_killed;        /* what fails was never asked for                          */
    bool        refuses_nameless; /* as a file system without O_TMPFILE                      */
    char        folder[512];
    ino_t       inodes[FILES_MAX]; /* file 0 is the home                                     */
    int         nfiles;
    power_op    ops[OPS_MAX];
    int         nops;
    power_image base[FILES_MAX]; /* durable at the beginning                                 */
    char        base_names[FILES_MAX][64];
    char        home[64]; /* its name                                                        */
    uint64_t    seed;
} power;

/* --- recording -------------------------------------------------------------------- */

static inline int power_file(int fd)
{
    struct stat st;

    CHECK(fstat(fd, &st) == 0);
    for (int i = 0; i < power.nfiles; i++)
        if (power.inodes[i] == st.st_ino)
            return i;
    CHECK(power.nfiles < FILES_MAX);
    power.inodes[power.nfiles] = st.st_ino;
    return power.nfiles++;
}

/* One that was just made: the number of a file that is gone may have come back. */
static inline int power_new_file(int fd)
{
    struct stat st;

    CHECK(fstat(fd, &st) == 0);
    for (int i = 0; i < power.nfiles; i++)
        if (power.inodes[i] == st.st_ino)
            power.inodes[i] = 0;
    return power_file(fd);
}

static inline power_op *power_note(power_kind kind, int file)
{
    power_op *op = &power.ops[power.nops++];

    CHECK(power.nops < OPS_MAX);
    *op = (power_op){.kind = kind, .file = file};
    return op;
}

static inline const char *power_base_name(const char *path)
{
    return strrchr(path, '/') + 1;
}

static inline int power_file_named(const char *path)
{
    int fd   = open(path, O_RDONLY | O_CLOEXEC);
    int file = fd >= 0 ? power_file(fd) : -1;

    (void)close(fd);
    return file;
}

#define WRAPPED(result, name, ...)                                                                 \
    result __real_##name(__VA_ARGS__); /* NOLINT(bugprone-reserved-identifier): the linker's */    \
    result __wrap_##name(__VA_ARGS__); /* NOLINT(bugprone-reserved-identifier) */                  \
    result __wrap_##name(__VA_ARGS__)  /* NOLINT(bugprone-reserved-identifier) */

WRAPPED(int, usm__os_file_open, const char *path, int flags, unsigned mode)
{
    bool is_new = (flags & O_CREAT) != 0 && access(path, F_OK) != 0;
    int  fd;

    if ((flags & O_TMPFILE) == O_TMPFILE && power.refuses_nameless) {
        errno = EOPNOTSUPP;
        return -1;
    }
    fd = __real_usm__os_file_open(path, flags, mode);
    if (fd < 0 || !power.is_recording)
        return fd;
    if ((flags & O_TMPFILE) == O_TMPFILE)
        (void)power_new_file(fd);
    else if (is_new)
        (void)snprintf(power_note(POWER_NAME, power_new_file(fd))->to, 64, "%.63s",
                       power_base_name(path));
    return fd;
}

WRAPPED(int64_t, usm__os_file_pwrite, int fd, const void *data, size_t size, uint64_t at)
{
    int64_t done = __real_usm__os_file_pwrite(fd, data, size, at);

    if (done > 0 && power.is_recording) {
        power_op *op = power_note(POWER_WRITE, power_file(fd));

        op->at   = at;
        op->size = (uint64_t)done;
        op->data = malloc((size_t)done);
        CHECK(op->data != NULL);
        memcpy(op->data, data, (size_t)done);
    }
    return done;
}

WRAPPED(int, usm__os_file_truncate, int fd, uint64_t size)
{
    int rc = __real_usm__os_file_truncate(fd, size);

    if (rc == 0 && power.is_recording)
        power_note(POWER_TRUNCATE, power_file(fd))->size = size;
    return rc;
}

WRAPPED(int, usm__os_file_fallocate, int fd, int mode, uint64_t at, uint64_t size)
{
    int rc = __real_usm__os_file_fallocate(fd, mode, at, size);

    if (rc == 0 && power.is_recording && mode == 0)
        power_note(POWER_ALLOCATE, power_file(fd))->size = at + size;
    return rc;
}

WRAPPED(int, usm__os_file_unlink, const char *path)
{
    int rc = __real_usm__os_file_unlink(path);

    if (rc == 0 && power.is_recording)
        (void)snprintf(power_note(POWER_UNNAME, -1)->from, 64, "%.63s", power_base_name(path));
    return rc;
}

/* The machine's own syncs are left out: nothing here depends on them, and they take long. */
static inline int power_sync(const char *call, power_kind kind, int fd)
{
    bool fails = usm__fault_hit(call, NULL);

    if (power.is_recording && !(fails && power.is_killed))
        (void)power_note(fails ? (power_kind)(kind + 1) : kind, fd < 0 ? -1 : power_file(fd));
    errno = EIO;
    return fails ? -1 : 0;
}

WRAPPED(int, usm__os_fsync, int fd)
{
    return power_sync("os.fsync", POWER_SYNC, fd);
}

WRAPPED(int, usm__os_file_sync, int fd)
{
    return power_sync("os.fsync", POWER_SYNC, fd);
}

WRAPPED(int, usm__os_fsync_dir, const char *folder)
{
    (void)folder;
    return power_sync("os.fsync_dir", POWER_SYNC_DIR, -1);
}

WRAPPED(int, usm__os_link_fd, int fd, const char *path)
{
    int rc = __real_usm__os_link_fd(fd, path);

    if (rc == 0 && power.is_recording)
        (void)snprintf(power_note(POWER_NAME, power_file(fd))->to, 64, "%.63s",
                       power_base_name(path));
    return rc;
}

WRAPPED(int, usm__os_rename, const char *from, const char *to)
{
    int file = power.is_recording ? power_file_named(from) : -1;
    int rc   = __real_usm__os_rename(from, to);

    if (rc == 0 && power.is_recording) {
        power_op *op = power_note(POWER_RENAME, file);

        (void)snprintf(op->from, sizeof(op->from), "%.63s", power_base_name(from));
        (void)snprintf(op->to, sizeof(op->to), "%.63s", power_base_name(to));
    }
    return rc;
}

static inline power_image power_read(const char *path)
{
    power_image image = {NULL, 0};
    struct stat st;
    int         fd = open(path, O_RDONLY | O_CLOEXEC);

    CHECK(fd >= 0 && fstat(fd, &st) == 0);
    image.size = (uint64_t)st.st_size;
    image.data = malloc(image.size + 1);
    CHECK(image.data != NULL && read(fd, image.data, image.size) == (ssize_t)image.size);
    (void)close(fd);
    return image;
}

static inline void power_add_base(const char *path)
{
    int file = power_file_named(path);

    CHECK(file >= 0);
    free(power.base[file].data);
    power.base[file] = power_read(path);
    (void)snprintf(power.base_names[file], 64, "%.63s", power_base_name(path));
}

static inline void power_forget(void)
{
    for (int i = 0; i < power.nops; i++)
        free(power.ops[i].data);
    for (int i = 0; i < FILES_MAX; i++)
        free(power.base[i].data);
    memset(power.base, 0, sizeof(power.base));
    memset(power.base_names, 0, sizeof(power.base_names));
    power.nops = power.nfiles = 0;
}

/* From here on; what is there now is durable.  The home is file 0, also when it is not there yet.
 */
static inline void power_record(const test_file *f)
{
    char journal[600];

    power_forget();
    (void)snprintf(power.folder, sizeof(power.folder), "%.*s",
                   (int)(strrchr(f->path, '/') - f->path), f->path);
    (void)snprintf(power.home, sizeof(power.home), "%.63s", power_base_name(f->path));
    if (access(f->path, F_OK) == 0)
        power_add_base(f->path);
    (void)snprintf(journal, sizeof(journal), "%s%s", f->path, USM__JOURNAL_SUFFIX);
    if (access(journal, F_OK) == 0)
        power_add_base(journal);
    power.is_recording = true;
}

static inline void power_stop(void)
{
    power.is_recording = false;
}

/* --- what the disk holds ------------------------------------------------------------- */

static inline uint64_t power_random(void)
{
    power.seed ^= power.seed << 13;
    power.seed ^= power.seed >> 7;
    power.seed ^= power.seed << 17;
    return power.seed * 0x2545f4914f6cdd1du;
}

static inline bool power_coin(void)
{
    return power_random() >> 63;
}

/* How the unsynced fare: all lost, all there, each for itself, torn by 512 bytes, by 4 KiB. */
typedef enum power_fate { FATE_LOST, FATE_THERE, FATE_EACH, FATE_512, FATE_4K } power_fate;

static inline void power_grow(power_image *image, uint64_t size, bool has_junk)
{
    if (size <= image->size)
        return;
    image->data = realloc(image->data, size + 1);
    CHECK(image->data != NULL);
    for (uint64_t i = image->size; i < size; i++) {
        uint64_t junk = has_junk ? power_random() : 0;

        memcpy(image->data + i, &junk, 1);
    }
    image->size = size;
}

static inline void power_put(power_image *image, const power_op *op, uint64_t from, uint64_t to)
{
    power_grow(image, op->at + to, false);
    memcpy(image->data + op->at + from, op->data + from, to - from);
}

static inline void power_write(power_image *image, const power_op *op, power_fate fate)
{
    uint64_t grain = fate == FATE_512 ? 512 : fate == FATE_4K ? 4096 : UINT64_MAX / 2;

    for (uint64_t from = 0; from < op->size;) {
        /* Sectors lie at multiples in the file. */
        uint64_t to = grain > op->size ? op->size : ((op->at + from) / grain + 1) * grain - op->at;

        if (to > op->size)
            to = op->size;
        if (fate == FATE_THERE || (fate != FATE_LOST && power_coin()))
            power_put(image, op, from, to);
        from = to;
    }
}

static inline void power_apply(power_image *image, const power_op *op, power_fate fate)
{
    bool is_there = fate == FATE_THERE || (fate != FATE_LOST && power_coin());

    if (op->kind == POWER_WRITE)
        power_write(image, op, fate);
    else if (op->kind == POWER_ALLOCATE && is_there)
        power_grow(image, op->size, fate != FATE_THERE);
    else if (op->kind == POWER_TRUNCATE && is_there) {
        power_grow(image, op->size, false);
        image->size = op->size;
    }
}

/* Whether op `at` is confirmed before op `end`: by the first sync of its kind and file after it, if
 * that went well. */
static inline bool power_is_durable(int at, int end, power_kind sync)
{
    for (int i = at + 1; i < end; i++)
        if ((sync == POWER_SYNC_DIR || power.ops[i].file == power.ops[at].file) &&
            (power.ops[i].kind == sync || power.ops[i].kind == sync + 1))
            return power.ops[i].kind == sync;
    return false;
}

/* The content of a file if the power goes before op `end`. */
static inline power_image power_content(int file, int end, power_fate fate)
{
    power_image image = {malloc(power.base[file].size + 1), power.base[file].size};

    CHECK(image.data != NULL);
    if (image.size > 0)
        memcpy(image.data, power.base[file].data, image.size);
    for (int i = 0; i < end; i++)
        if (power.ops[i].file == file)
            power_apply(&image, &power.ops[i],
                        power_is_durable(i, end, POWER_SYNC) ? FATE_THERE : fate);
    return image;
}

typedef struct power_names {
    char name[FILES_MAX][64];
    int  file[FILES_MAX];
    int  n;
} power_names;

static inline void power_unname(power_names *names, const char *name)
{
    for (int i = 0; i < names->n; i++) {
        if (strcmp(names->name[i], name) != 0)
            continue;
        names->n--;
        memmove(names->name[i], names->name[names->n], 64);
        names->file[i] = names->file[names->n];
        return;
    }
}

static inline void power_name(power_names *names, const char *name, int file)
{
    power_unname(names, name);
    memcpy(names->name[names->n], name, 64);
    names->file[names->n++] = file;
}

static inline void power_name_op(power_names *names, const power_op *op)
{
    if (op->kind == POWER_NAME)
        power_name(names, op->to, op->file);
    if (op->kind == POWER_UNNAME || op->kind == POWER_RENAME)
        power_unname(names, op->from);
    if (op->kind == POWER_RENAME)
        power_name(names, op->to, op->file);
}

static inline void power_folder(power_names *names, int end, power_fate fate)
{
    names->n = 0;
    for (int i = 0; i < FILES_MAX; i++)
        if (power.base_names[i][0] != '\0')
            power_name(names, power.base_names[i], i);
    for (int i = 0; i < end; i++)
        if (power_is_durable(i, end, POWER_SYNC_DIR) || fate == FATE_THERE ||
            (fate != FATE_LOST && power_coin()))
            power_name_op(names, &power.ops[i]);
}

static inline void power_path(char path[700], const char *name, const char *tail)
{
    (void)snprintf(path, 700, "%s/%s%s", power.folder, name, tail);
}

static inline void power_store(const char *path, const power_image *image, bool is_home)
{
    int fd = open(path, O_RDWR | O_CLOEXEC | (is_home ? 0 : O_CREAT | O_EXCL), 0644);

    CHECK(fd >= 0 && ftruncate(fd, (off_t)image->size) == 0);
    CHECK(pwrite(fd, image->data, image->size, 0) == (ssize_t)image->size);
    CHECK(close(fd) == 0);
}

/* A home whose name was lost is out of the way, and keeps its inode. */
static inline void power_place_home(bool is_there)
{
    char path[700], aside[700];

    power_path(path, power.home, "");
    power_path(aside, power.home, ".aside");
    if (access(aside, F_OK) == 0)
        CHECK(rename(aside, path) == 0); /* over one that was made anew */
    if (!is_there)
        CHECK(rename(path, aside) == 0);
}

/* Puts the disk into a state in which it may be found. */
static inline void power_fail(int end, uint64_t seed)
{
    power_names names;
    char        path[700];
    bool        has_home = false;

    power.seed = seed * 0x9e3779b97f4a7c15u + (uint64_t)end + 1;
    power_path(path, power.home, USM__JOURNAL_SUFFIX);
    (void)unlink(path);
    power_path(path, power.home, USM__JOURNAL_SUFFIX ".new");
    (void)unlink(path);
    power_folder(&names, end, (power_fate)(power_random() % 3));
    for (int i = 0; i < names.n; i++)
        has_home = has_home || names.file[i] == 0;
    power_place_home(has_home);
    for (int i = 0; i < names.n; i++) {
        /* The first seeds are the pure fates. */
        power_fate  fate  = (power_fate)(seed < 5 ? seed : power_random() % 5);
        power_image image = power_content(names.file[i], end, fate);

        power_path(path, names.name[i], "");
        power_store(path, &image, names.file[i] == 0);
        free(image.data);
    }
}

#endif
