/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Blocks of ended launches in a folder, from which a run that was killed is resumed.
 *
 *     FOLDER/graph              which graph: a header without blocks
 *     FOLDER/<node>.<part>      a header, then the blocks of one launch
 *
 * Files are written under a temporary name and renamed, so each is whole or does not exist.  A kill
 * in between leaves the temporary file, which the next run recognises by its name and removes.
 * Damage by a crash of the machine is recognised by the checksum, and that launch is done again.
 * Numbers are little-endian, so a folder can be used on another machine.  The hash in each header
 * covers everything on which blocks depend: nodes, edges, sizes, images of kernels, the bytes of
 * inputs, and what the caller adds (for the code of native kernels). */
#include "offload/graph.h"

#include "base/inline/bytes.h"
#include "base/log.h"
#include "base/os.h"
#include "base/os_file.h"
#include "spill/tier_sum.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define KEEP_VERSION 1

/*  0 magic  8 version  12 node  16 part  20 blocks of the node  24 hash (16)  40 size  48 checksum
 */
enum { HEADER_SIZE = 56 };
static const char magic[8] = {'u', 's', 'm', 'g', 'r', 'a', 'p', 'h'};

struct usm__graph_keep {
    char     *folder;
    size_t    there;  /* so many characters of its path existed before */
    bool      is_new; /* it has nothing of an earlier run */
    bool      has_saved;
    usm__hash hash;
    bool      has_failed;
};

typedef struct header {
    uint32_t node, part, nblocks;
    uint64_t size, sum;
} header;

static void put_header(const usm__graph_keep *k, const header *h, unsigned char *at)
{
    memcpy(at, magic, sizeof magic);
    usm_put_le(at + 8, KEEP_VERSION, 4);
    usm_put_le(at + 12, h->node, 4);
    usm_put_le(at + 16, h->part, 4);
    usm_put_le(at + 20, h->nblocks, 4);
    usm_put_le(at + 24, k->hash.hi, 8);
    usm_put_le(at + 32, k->hash.lo, 8);
    usm_put_le(at + 40, h->size, 8);
    usm_put_le(at + 48, h->sum, 8);
}

/* False: not a header of this graph. */
static bool get_header(const usm__graph_keep *k, header *h, const unsigned char *at)
{
    if (memcmp(at, magic, sizeof magic) != 0 || usm_get_le(at + 8, 4) != KEEP_VERSION ||
        usm_get_le(at + 24, 8) != k->hash.hi || usm_get_le(at + 32, 8) != k->hash.lo)
        return false;
    h->node    = (uint32_t)usm_get_le(at + 12, 4);
    h->part    = (uint32_t)usm_get_le(at + 16, 4);
    h->nblocks = (uint32_t)usm_get_le(at + 20, 4);
    h->size    = usm_get_le(at + 40, 8);
    h->sum     = usm_get_le(at + 48, 8);
    return true;
}

/* ---- the graph ------------------------------------------------------------------------------- */

static void add_number(usm__hash *h, uint64_t value)
{
    unsigned char bytes[8];

    usm_put_le(bytes, value, 8);
    usm__hash_add(h, bytes, sizeof bytes);
}

static void add_text(usm__hash *h, const char *text)
{
    usm__hash_add(h, text, strlen(text) + 1);
}

static void add_kernel(usm__hash *h, const usm_team_kernel *k)
{
    add_text(h, k->name);
    add_number(h, k->images.hi);
    add_number(h, k->images.lo);
}

static usm__hash hash_of(const usm_graph *g, const char *key)
{
    usm__hash h = USM__HASH_INIT;

    add_text(&h, key ? key : "");
    for (uint32_t i = 0; i < g->nnodes; i++) {
        const usm_node_desc *d = &g->nodes[i].desc;

        add_text(&h, d->name);
        add_number(&h, d->kind);
        add_number(&h, d->dims);
        for (uint32_t j = 0; j < d->dims; j++) {
            add_number(&h, d->global[j]);
            add_number(&h, d->local[j]);
        }
        add_number(&h, d->out_size);
        add_number(&h, d->parts);
        add_number(&h, d->size);
        if (d->kind == USM_NODE_INPUT)
            add_number(&h, usm__xxh3(d->data, d->size, 0));
        else
            add_kernel(&h, d->kernel);
        add_number(&h, g->nodes[i].ninputs);
        for (uint32_t j = 0; j < g->nodes[i].ninputs; j++)
            add_number(&h, g->nodes[i].inputs[j]);
    }
    return h;
}

/* ---- files ----------------------------------------------------------------------------------- */

typedef char path_text[4096];

static bool path_of(const usm__graph_keep *k, uint32_t node, uint32_t part, path_text path)
{
    int n = node == USM__NOBODY
                ? snprintf(path, sizeof(path_text), "%s/graph", k->folder)
                : snprintf(path, sizeof(path_text), "%s/%u.%u", k->folder, node, part);

    return n > 0 && (size_t)n < sizeof(path_text);
}

static usm_status write_mark(usm__graph_keep *k, const char *path)
{
    unsigned char bytes[HEADER_SIZE];
    char          why[128];

    put_header(k, &(header){.node = USM__NOBODY}, bytes);
    if (usm__os_write_file(path, bytes, sizeof bytes) != 0)
        return usm__fail(USM_E_IO, "blocks cannot be kept in '%s': %s", k->folder,
                         strerror_r(errno, why, sizeof why));
    return USM_OK;
}

/* How many characters of the folder's path exist already. */
static size_t length_there(char *folder)
{
    size_t n = strlen(folder);

    while (n > 0) {
        char last = folder[n];
        bool is_there;

        folder[n] = '\0';
        is_there  = access(folder, F_OK) == 0;
        folder[n] = last;
        if (is_there)
            return n;
        while (n > 0 && folder[n - 1] != '/')
            n--;
        while (n > 0 && folder[n - 1] == '/')
            n--;
    }
    return 0;
}

/* Removes the folder, and those above it that were created for it, as far as they are empty. */
static void remove_folders(usm__graph_keep *k)
{
    size_t n    = strlen(k->folder);
    bool   gone = rmdir(k->folder) == 0;

    while (n > k->there && gone) {
        while (n > k->there && k->folder[n - 1] != '/')
            n--;
        while (n > k->there && k->folder[n - 1] == '/')
            n--;
        k->folder[n] = '\0';
        gone         = n > k->there && rmdir(k->folder) == 0;
    }
}

/* Checks that the folder is this graph's, or makes it so. */
static usm_status claim(usm__graph_keep *k)
{
    path_text      path;
    char           why[128];
    size_t         size = 0;
    unsigned char *bytes;
    header         h;
    bool           is_ours;

    if (!path_of(k, USM__NOBODY, 0, path))
        return usm__fail(USM_E_INVALID, "the name of the folder to resume from is too long");
    bytes = usm__os_read_file(path, 4096, &size);
    if (!bytes && errno == ENOENT) {
        k->is_new = true;
        return write_mark(k, path);
    }
    if (!bytes)
        return usm__fail(USM_E_IO, "'%s' cannot be read: %s", path,
                         strerror_r(errno, why, sizeof why));
    is_ours = size == HEADER_SIZE && get_header(k, &h, bytes);
    usm__heap_free(bytes);
    if (is_ours)
        return USM_OK;
    return usm__fail(USM_E_INVALID,
                     "'%s' holds the blocks of another graph, or of other inputs or kernels; name "
                     "another folder, or remove it to begin again",
                     k->folder);
}

/* ---- files of earlier runs ----------------------------------------------------------------- */

#define DIGITS       "0123456789"
#define ALPHANUMERIC DIGITS "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"

/* The end of "graph" or "<node>.<part>" at the start of the name; NULL: it starts differently. */
static const char *skip_name(const char *name)
{
    size_t node = strspn(name, DIGITS), part;

    if (strncmp(name, "graph", 5) == 0)
        return name + 5;
    part = node > 0 && name[node] == '.' ? strspn(name + node + 1, DIGITS) : 0;
    return part > 0 ? name + node + 1 + part : NULL;
}

/* ".XXXXXX", which usm__os_write_file() adds to a name until the file is whole. */
static bool is_aside(const char *ending)
{
    return strlen(ending) == 7 && ending[0] == '.' && strspn(ending + 1, ALPHANUMERIC) == 6;
}

/* Removes temporary files; with `all` also all files of a graph except its mark, since an earlier
 * run may have had more parts. */
static void sweep(const usm__graph_keep *k, bool all)
{
    DIR           *dir = opendir(k->folder);
    struct dirent *e;

    while (dir && (e = readdir(dir)) != NULL) { /* NOLINT(concurrency-mt-unsafe): this call's */
        const char *ending = skip_name(e->d_name);

        if (ending && (is_aside(ending) || (all && *ending == '\0' && e->d_name[0] != 'g')))
            (void)unlinkat(dirfd(dir), e->d_name, 0);
    }
    if (dir)
        (void)closedir(dir);
}

usm_status usm__graph_keep_open(const usm_graph *g, const char *folder, const char *key,
                                usm__graph_keep **keep)
{
    usm__graph_keep *k = usm__heap_alloc(sizeof *k);
    usm_status       st;

    if (k)
        k->folder = usm__heap_strdup(folder);
    if (!k || !k->folder) {
        usm__heap_free(k);
        return usm__fail(USM_E_NO_MEMORY, "no host memory to resume");
    }
    k->hash  = hash_of(g, key);
    k->there = length_there(k->folder);
    st       = claim(k);
    if (st != USM_OK) {
        usm__graph_keep_close(k, false);
        return st;
    }
    sweep(k, false);
    *keep = k;
    return USM_OK;
}

static size_t size_of_task(const usm__graph_node *n)
{
    return n->desc.out_size * (n->ntasks == 1 ? n->nblocks : 1);
}

void usm__graph_keep_save(usm__graph_keep *k, const usm_graph *g, const usm__graph_task *task)
{
    const usm__graph_node *n    = &g->nodes[task->node];
    size_t                 size = size_of_task(n);
    const unsigned char   *data = n->blocks + task->part * n->desc.out_size;
    unsigned char         *bytes;
    path_text              path;
    char                   why[128];
    int                    rc = -1;

    bytes = usm__heap_alloc(HEADER_SIZE + size);
    if (bytes && path_of(k, task->node, task->part, path)) {
        header h = {task->node, task->part, n->nblocks, size, usm__xxh3(data, size, 0)};

        put_header(k, &h, bytes);
        memcpy(bytes + HEADER_SIZE, data, size);
        rc = usm__os_write_file(path, bytes, HEADER_SIZE + size);
        k->has_saved |= rc == 0;
    }
    if (rc != 0 && !k->has_failed) {
        k->has_failed = true;
        usm__warn("graph: the blocks of '%s' are not kept in '%s': %s; a run that resumes does "
                  "them again",
                  n->desc.name, k->folder,
                  bytes ? strerror_r(errno, why, sizeof why) : "no host memory");
    }
    usm__heap_free(bytes);
}

uint32_t usm__graph_keep_has(usm__graph_keep *k, uint32_t node, uint32_t part)
{
    unsigned char bytes[HEADER_SIZE];
    path_text     path;
    header        h;
    int           fd;
    ssize_t       n;

    if (!path_of(k, node, part, path))
        return 0;
    fd = usm__os_open(path, 0, 0);
    if (fd < 0)
        return 0;
    n = usm__os_pread(fd, bytes, sizeof bytes, 0);
    (void)usm__os_close(fd);
    return n == HEADER_SIZE && get_header(k, &h, bytes) && h.node == node && h.part == part
               ? h.nblocks
               : 0;
}

bool usm__graph_keep_load(usm__graph_keep *k, uint32_t node, uint32_t part, void *data, size_t size)
{
    unsigned char *bytes;
    path_text      path;
    size_t         all   = 0;
    bool           is_ok = false;
    header         h;

    if (!path_of(k, node, part, path))
        return false;
    bytes = usm__os_read_file(path, HEADER_SIZE + size, &all);
    if (bytes && all == HEADER_SIZE + size && get_header(k, &h, bytes) && h.size == size &&
        h.sum == usm__xxh3(bytes + HEADER_SIZE, size, 0)) {
        memcpy(data, bytes + HEADER_SIZE, size);
        is_ok = true;
    }
    if (!is_ok)
        usm__warn("graph: '%s' is damaged; what it held is done again", path);
    usm__heap_free(bytes);
    return is_ok;
}

void usm__graph_keep_close(usm__graph_keep *k, bool remove)
{
    path_text path;

    if (!k)
        return;
    if (remove)
        sweep(k, true);
    if ((remove || (k->is_new && !k->has_saved)) && path_of(k, USM__NOBODY, 0, path)) {
        (void)unlink(path); /* the last: until then the folder is this graph's */
        if (remove || k->there < strlen(k->folder)) /* an empty folder of the user stays */
            remove_folders(k);
    }
    usm__heap_free(k->folder);
    usm__heap_free(k);
}
