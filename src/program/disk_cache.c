/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Files of compiled programs: $USM_CACHE_DIR/<key>.bin.
 *
 *     "USMC1", 3 zeros | key 16 bytes | payload's size 8 | payload's hash 16 | payload
 *
 * Numbers are in the machine's own byte order; a file in another order looks damaged and is
 * replaced.  A file is written under another name and then renamed, so a reader sees all of it or
 * none.  The hashes detect accidents, not forgery.  Whoever can write to the folder can make the
 * program run any code, so the default folder is the user's own.
 *
 * Ranks of a job start at once and want the same programs.  Who builds one locks a byte of the file
 * `.lock`, at an offset that the key says; the others wait for that lock as readers, so that all go
 * on together when it ends, whether the build has failed or not.  Where there are no locks, or one
 * takes too long, several build: the last one's file stays.  A lock ends with its process.  PoCL
 * needs it: where six processes compile one program at once, in one run of thirty it is broken for
 * one of them, and a broken one that is kept ends every process that loads it.
 *
 * The folder is kept to USM__DISK_CACHE_FILES files.  Each write scans it, which is cheap compared
 * with the build before it.
 *
 * Not here: what is cached, and under which key (cache.c, offload/tune.c). */
#include "program/disk_cache.h"

#include "base/log.h"
#include "base/os.h"
#include "base/os_storage.h"
#include "base/settings.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define SUFFIX       ".bin"
#define KEY_DIGITS   32
#define NAME_LENGTH  (KEY_DIGITS + 4)  /* <key>.bin                                              */
#define ASIDE_LENGTH (NAME_LENGTH + 7) /* <key>.bin.XXXXXX, a name that usm__os_write_file makes */
/* A file that is unfinished after this time belongs to a process that died. */
#define ASIDE_SECONDS 3600
#define FILE_MOST     ((size_t)1 << 30) /* a driver's binary is some MiB */
/* A lock that another process has is tried again so often, and so many times. */
#define TURN_NAP_NS 2000000
#define TURN_NAPS   30000
/* Deletions at one write at most: a folder with far too many files shrinks step by step. */
#define DELETE_MAX 4

static const char file_magic[8] = "USMC1";

typedef struct file_header {
    char      magic[8];
    usm__hash key;
    uint64_t  size;
    usm__hash sum;
} file_header;
_Static_assert(sizeof(file_header) == 48, "no padding: the struct is the file's format");

static usm__hash hash_of(const void *data, size_t size)
{
    usm__hash h = USM__HASH_INIT;

    usm__hash_add(&h, data, size);
    return h;
}

static bool is_same(const usm__hash *a, const usm__hash *b)
{
    return a->hi == b->hi && a->lo == b->lo;
}

/* secure_getenv: a setuid program must not use files of another user. */
bool usm__disk_cache_folder(char *folder, size_t size)
{
    const char *set  = usm__setting_text("cache_dir");
    const char *xdg  = secure_getenv("XDG_CACHE_HOME");
    const char *home = secure_getenv("HOME");
    int         n;

    if (strcasecmp(set, "off") == 0)
        return false;
    if (*set)
        n = snprintf(folder, size, "%s", set);
    else if (xdg && xdg[0] == '/')
        n = snprintf(folder, size, "%s/usm", xdg);
    else if (home && home[0] == '/')
        n = snprintf(folder, size, "%s/.cache/usm", home);
    else
        return false;
    return n > 0 && (size_t)n < size;
}

static bool path_of(const usm__hash *key, char *path, size_t size)
{
    char folder[PATH_MAX];
    int  n;

    if (!usm__disk_cache_folder(folder, sizeof folder))
        return false;
    n = snprintf(path, size, "%s/%016llx%016llx" SUFFIX, folder, (unsigned long long)key->hi,
                 (unsigned long long)key->lo);
    return n > 0 && (size_t)n < size;
}

/* --- reading -------------------------------------------------------------- */

/* Returns what is wrong with the content of a file; NULL: nothing. */
static const char *find_defect(const usm__hash *key, const char *file, size_t size)
{
    file_header h;
    usm__hash   sum;

    if (size < sizeof h)
        return "it is shorter than its header";
    memcpy(&h, file, sizeof h);
    if (memcmp(h.magic, file_magic, sizeof file_magic) != 0)
        return "it is of another format";
    if (!is_same(&h.key, key))
        return "it holds another program";
    if (h.size != size - sizeof h || h.size == 0)
        return "it is cut off or too long";
    sum = hash_of(file + sizeof h, size - sizeof h);
    return is_same(&h.sum, &sum) ? NULL : "its content is corrupt";
}

void *usm__disk_cache_read(const usm__hash *key, size_t *size)
{
    char        path[PATH_MAX];
    const char *defect;
    size_t      bytes = 0;
    char       *file;

    if (!path_of(key, path, sizeof path))
        return NULL;
    file = usm__os_read_file(path, FILE_MOST, &bytes);
    if (!file) {
        usm__debug("program cache: %s cannot be read (errno %d)", path, errno);
        return NULL;
    }
    defect = find_defect(key, file, bytes);
    if (defect) {
        usm__debug("program cache: %s is not used: %s", path, defect);
        usm__heap_free(file);
        return NULL;
    }
    *size = bytes - sizeof(file_header);
    memmove(file, file + sizeof(file_header), *size);
    return file;
}

/* --- keeping the folder small --------------------------------------------- */

typedef struct survey {
    size_t count; /* finished files */
    char   oldest[NAME_LENGTH + 1];
    time_t oldest_time;
} survey;

/* "<key>.bin", or that and a suffix: only files that this code makes are ever deleted. */
static bool is_ours(const char *name, size_t length)
{
    return strlen(name) == length && strspn(name, "0123456789abcdef") == KEY_DIGITS &&
           memcmp(name + KEY_DIGITS, SUFFIX, sizeof SUFFIX - 1) == 0;
}

static void look_at(int folder, const char *name, time_t now, survey *s)
{
    bool        is_aside = is_ours(name, ASIDE_LENGTH);
    struct stat st;

    if (!is_aside && !is_ours(name, NAME_LENGTH))
        return;
    if (fstatat(folder, name, &st, AT_SYMLINK_NOFOLLOW) != 0)
        return;
    if (is_aside) {
        if (now - st.st_mtime > ASIDE_SECONDS)
            (void)unlinkat(folder, name, 0);
        return;
    }
    if (s->count++ == 0 || st.st_mtime < s->oldest_time) {
        memcpy(s->oldest, name, NAME_LENGTH + 1);
        s->oldest_time = st.st_mtime;
    }
}

static survey look_through(DIR *dir)
{
    survey         s   = {0, "", 0};
    time_t         now = time(NULL);
    struct dirent *entry;

    rewinddir(dir);
    while ((entry = readdir(dir)) != NULL) /* NOLINT(concurrency-mt-unsafe): dir is this call's */
        look_at(dirfd(dir), entry->d_name, now, &s);
    return s;
}

/* Makes room for one more file.  If another process does the same at this moment, some more files
 * are deleted, which costs the next program that needs one of them a build. */
static void make_room(void)
{
    char folder[PATH_MAX];
    DIR *dir;

    if (!usm__disk_cache_folder(folder, sizeof folder))
        return;
    dir = opendir(folder);
    if (!dir)
        return; /* it may not exist yet */
    for (int i = 0; i < DELETE_MAX; i++) {
        survey s = look_through(dir);

        if (s.count < USM__DISK_CACHE_FILES)
            break;
        (void)unlinkat(dirfd(dir), s.oldest, 0);
    }
    (void)closedir(dir);
}

/* --- writing -------------------------------------------------------------- */

void usm__disk_cache_write(const usm__hash *key, const void *payload, size_t size)
{
    file_header h = {.key = *key, .size = size};
    char        path[PATH_MAX];
    char       *file;

    if (size == 0 || !path_of(key, path, sizeof path))
        return;
    file = usm__heap_alloc(sizeof h + size);
    if (!file)
        return;
    memcpy(h.magic, file_magic, sizeof file_magic);
    h.sum = hash_of(payload, size);
    memcpy(file, &h, sizeof h);
    memcpy(file + sizeof h, payload, size);
    make_room();
    if (usm__os_write_file(path, file, sizeof h + size) != 0)
        usm__debug("program cache: %s cannot be written (errno %d)", path, errno);
    usm__heap_free(file);
}

/* --- one process after the other ------------------------------------------ */

static int open_locks(const usm__hash *key)
{
    char path[PATH_MAX], *slash;
    int  fd;

    if (!path_of(key, path, sizeof path))
        return -1;
    slash = strrchr(path, '/');
    (void)snprintf(slash, sizeof path - (size_t)(slash - path), "/.lock");
    fd = usm__os_file_open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0 && errno == ENOENT && usm__os_make_folders(path) == 0)
        fd = usm__os_file_open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    return fd;
}

/* True if another process has the lock. */
static bool is_taken(int fd, bool is_exclusive, const usm__hash *key)
{
    return usm__os_file_lock(fd, is_exclusive, key->lo >> 2, 1) != 0 &&
           (errno == EAGAIN || errno == EACCES);
}

int usm__disk_cache_turn(const usm__hash *key)
{
    int fd = open_locks(key);

    if (fd < 0 || !is_taken(fd, true, key))
        return fd;
    for (int i = 0; i < TURN_NAPS && is_taken(fd, false, key); i++)
        usm__os_sleep_ns(TURN_NAP_NS);
    (void)usm__os_close(fd);
    return -1;
}

void usm__disk_cache_turn_end(int turn)
{
    if (turn >= 0)
        (void)usm__os_close(turn);
}
