/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Blocks of ended launches in a folder, from which a run that was killed is resumed.
 *
 *     FOLDER/graph              which graph: a head (saved.h) without records
 *     FOLDER/<node>.<part>      a head and one record, the blocks of one launch: its node and part,
 *                               blocks of the node
 *
 * Each file is written at once, so it is whole or does not exist.  Damage by a crash of the machine
 * is recognised by the checksum, and that launch is done again.  The hash in each head covers
 * everything on which blocks depend: nodes, edges, sizes, images of kernels, the bytes of
 * inputs, and what the caller adds (for the code of native kernels). */
#include "offload/graph.h"
#include "offload/saved.h"

#include "base/log.h"
#include "base/os.h"
#include "base/os_file.h"
#include "spill/tier_sum.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { HEAD_SIZE = USM__SAVED_MAGIC + 24, BEFORE_BLOCKS = HEAD_SIZE + USM__RECORD_SIZE };

struct usm__graph_keep {
    char           *folder;
    size_t          there;  /* so many characters of its path existed before */
    bool            is_new; /* it has nothing of an earlier run */
    bool            has_saved;
    bool            has_failed;
    usm__saved_head head; /* of each file */
};

static uint64_t name_of(uint32_t node, uint32_t part)
{
    return (uint64_t)node << 32 | part;
}

static bool is_ours(const usm__graph_keep *k, const unsigned char *bytes, size_t size)
{
    return size >= k->head.size && memcmp(bytes, k->head.bytes, k->head.size) == 0;
}

/* ---- the graph ------------------------------------------------------------------------------- */

static void add_kernel(usm__hash *h, const usm_team_kernel *k)
{
    usm__hash_text(h, k->name);
    usm__hash_number(h, k->images.hi);
    usm__hash_number(h, k->images.lo);
}

static usm__hash hash_of(const usm_graph *g, const char *key)
{
    usm__hash h = USM__HASH_INIT;

    usm__hash_text(&h, key ? key : "");
    for (uint32_t i = 0; i < g->nnodes; i++) {
        const usm_node_desc *d = &g->nodes[i].desc;

        usm__hash_text(&h, d->name);
        usm__hash_number(&h, d->kind);
        usm__hash_number(&h, d->dims);
        for (uint32_t j = 0; j < d->dims; j++) {
            usm__hash_number(&h, d->global[j]);
            usm__hash_number(&h, d->local[j]);
        }
        usm__hash_number(&h, d->out_size);
        usm__hash_number(&h, d->parts);
        usm__hash_number(&h, d->size);
        if (d->kind == USM_NODE_INPUT)
            usm__hash_number(&h, usm__xxh3(d->data, d->size, 0));
        else if (d->kernel) /* what a call does is the caller's to tell, by the key */
            add_kernel(&h, d->kernel);
        usm__hash_number(&h, g->nodes[i].ninputs);
        for (uint32_t j = 0; j < g->nodes[i].ninputs; j++)
            usm__hash_number(&h, g->nodes[i].inputs[j]);
    }
    return h;
}

static void put_head(usm__saved_head *head, const usm_graph *g, const char *key)
{
    usm__hash hash = hash_of(g, key);

    usm__saved_head_begin(head, USM__SAVED_GRAPH);
    usm__saved_head_hash(head, &hash);
    usm__saved_head_end(head);
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

static usm_status write_mark(const usm__graph_keep *k, const char *path)
{
    char why[128];

    if (usm__os_write_file(path, k->head.bytes, k->head.size) != 0)
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
    bool           is_it, is_old;

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
    is_it  = size == k->head.size && is_ours(k, bytes, size);
    is_old = usm__saved_look(&k->head, bytes, size) == USM__SAVED_OTHER;
    usm__heap_free(bytes);
    if (is_it)
        return USM_OK;
    if (is_old)
        return usm__fail(USM_E_INVALID,
                         "'%s' holds the blocks of another version of libusm; name another folder, "
                         "or remove it to begin again",
                         k->folder);
    return usm__fail(USM_E_INVALID,
                     "'%s' holds the blocks of another graph, or of other inputs or kernels; name "
                     "another folder, or remove it to begin again",
                     k->folder);
}

/* ---- files of earlier runs ----------------------------------------------------------------- */

#define DIGITS "0123456789"

/* The end of "graph" or "<node>.<part>" at the start of the name; NULL: it starts differently. */
static const char *skip_name(const char *name)
{
    size_t node = strspn(name, DIGITS), part;

    if (strncmp(name, "graph", 5) == 0)
        return name + 5;
    part = node > 0 && name[node] == '.' ? strspn(name + node + 1, DIGITS) : 0;
    return part > 0 ? name + node + 1 + part : NULL;
}

static bool is_left_over(const char *name, const void *arg)
{
    const char *ending = skip_name(name);

    (void)arg;
    return ending && usm__saved_is_aside(ending);
}

/* All of a graph but its mark: an earlier run may have had more parts. */
static bool is_of_graph(const char *name, const void *arg)
{
    const char *ending = skip_name(name);

    return is_left_over(name, arg) || (ending && *ending == '\0' && name[0] != 'g');
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
    put_head(&k->head, g, key);
    k->there = length_there(k->folder);
    st       = claim(k);
    if (st != USM_OK) {
        usm__graph_keep_close(k, false);
        return st;
    }
    usm__saved_sweep(k->folder, is_left_over, NULL);
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

    bytes = usm__heap_alloc(BEFORE_BLOCKS + size);
    if (bytes && path_of(k, task->node, task->part, path)) {
        memcpy(bytes, k->head.bytes, HEAD_SIZE);
        memcpy(bytes + BEFORE_BLOCKS, data, size);
        usm__saved_seal(bytes + HEAD_SIZE, name_of(task->node, task->part), n->nblocks, size);
        rc = usm__os_write_file(path, bytes, BEFORE_BLOCKS + size);
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
    unsigned char     bytes[BEFORE_BLOCKS];
    path_text         path;
    usm__saved_record r;
    int               fd;
    ssize_t           n;

    if (!path_of(k, node, part, path))
        return 0;
    fd = usm__os_open(path, 0, 0);
    if (fd < 0)
        return 0;
    n = usm__os_pread(fd, bytes, sizeof bytes, 0);
    (void)usm__os_close(fd);
    if (n != BEFORE_BLOCKS || !is_ours(k, bytes, HEAD_SIZE))
        return 0;
    r = usm__saved_record_at(bytes + HEAD_SIZE);
    return r.a == name_of(node, part) && r.b <= UINT32_MAX ? (uint32_t)r.b : 0;
}

bool usm__graph_keep_load(usm__graph_keep *k, uint32_t node, uint32_t part, void *data, size_t size)
{
    unsigned char *bytes;
    path_text      path;
    size_t         all   = 0;
    bool           is_ok = false;

    if (!path_of(k, node, part, path))
        return false;
    bytes = usm__os_read_file(path, BEFORE_BLOCKS + size, &all);
    if (bytes && all == BEFORE_BLOCKS + size && is_ours(k, bytes, HEAD_SIZE) &&
        usm__saved_record_at(bytes + HEAD_SIZE).size == size &&
        usm__saved_is_whole(bytes + HEAD_SIZE, bytes + BEFORE_BLOCKS)) {
        memcpy(data, bytes + BEFORE_BLOCKS, size);
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
        usm__saved_sweep(k->folder, is_of_graph, NULL);
    if ((remove || (k->is_new && !k->has_saved)) && path_of(k, USM__NOBODY, 0, path)) {
        (void)unlink(path); /* the last: until then the folder is this graph's */
        if (remove || k->there < strlen(k->folder)) /* an empty folder of the user stays */
            remove_folders(k);
    }
    usm__heap_free(k->folder);
    usm__heap_free(k);
}
