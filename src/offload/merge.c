/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Merges private copies into one.
 *
 * A node is the merged copy of some consecutive leaves.  With leaves of a fixed size, two nodes are
 * joined if they are the halves of a node of the binary tree over leaf numbers: [k 2^n, (k+1) 2^n)
 * and its successor up to (k+2) 2^n or the last leaf, k even.  So the number of leaves alone
 * decides which copies are joined in which order, and floating-point results are equal to the bit
 * for any split.  Without leaves of a fixed size (leaf 0) the numbers are indices, and neighbours
 * are joined as they arrive.  In all cases the node of the higher numbers is joined into that of
 * the lower ones.
 *
 * There are few nodes: if a launch's chunks end in order, one for each 1 bit in the number of
 * leaves that have arrived.  The memory of joined nodes is reused. */
#include "offload/offload.h"

#include "base/os.h"

#include <float.h>
#include <math.h>
#include <string.h>

typedef struct node {
    uint64_t first, count; /* in leaves */
    void    *bytes;
} node;

struct usm__tree {
    usm_split_arg arg;
    uint64_t      leaves; /* 0: the argument's leaf is 0 */
    node         *nodes;  /* in the order of `first` */
    size_t        n, cap;
    void        **spare; /* memory of joined nodes */
    size_t        nspare, spare_cap;
};

/* ---- elements ------------------------------------------------------------------------------- */

#define JOIN(type, into, from, n, expr)                                                            \
    do {                                                                                           \
        type       *a_ = (into);                                                                   \
        const type *b_ = (from);                                                                   \
        for (size_t i_ = 0; i_ < (n); i_++) {                                                      \
            const type a = a_[i_], b = b_[i_];                                                     \
                                                                                                   \
            a_[i_] = (type)(expr);                                                                 \
        }                                                                                          \
    } while (0)

/* Sums of integers wrap. */
#define JOIN_ALL(merge, type, sum_type, into, from, n)                                             \
    do {                                                                                           \
        if ((merge) == USM_MERGE_SUM)                                                              \
            JOIN(type, into, from, n, (sum_type)a + (sum_type)b);                                  \
        else if ((merge) == USM_MERGE_MIN)                                                         \
            JOIN(type, into, from, n, b < a ? b : a);                                              \
        else                                                                                       \
            JOIN(type, into, from, n, b > a ? b : a);                                              \
    } while (0)

static void join_elements(const usm_split_arg *arg, void *into, const void *from)
{
    switch (arg->element) {
    case USM_ELEMENT_I32:
        JOIN_ALL(arg->merge, int32_t, uint32_t, into, from, arg->size / 4);
        break;
    case USM_ELEMENT_U32:
        JOIN_ALL(arg->merge, uint32_t, uint32_t, into, from, arg->size / 4);
        break;
    case USM_ELEMENT_I64:
        JOIN_ALL(arg->merge, int64_t, uint64_t, into, from, arg->size / 8);
        break;
    case USM_ELEMENT_U64:
        JOIN_ALL(arg->merge, uint64_t, uint64_t, into, from, arg->size / 8);
        break;
    case USM_ELEMENT_F32:
        JOIN_ALL(arg->merge, float, float, into, from, arg->size / 4);
        break;
    case USM_ELEMENT_F64:
        JOIN_ALL(arg->merge, double, double, into, from, arg->size / 8);
        break;
    case USM_ELEMENT_NONE:
        break;
    }
}

static bool has_found(const void *copy)
{
    int64_t found;

    memcpy(&found, copy, sizeof found);
    return found >= 0;
}

/* `into` has the lower indices. */
static void join(const usm_split_arg *arg, void *into, const void *from)
{
    if (arg->merge == USM_MERGE_FIRST) {
        if (!has_found(into) && has_found(from))
            memcpy(into, from, arg->size);
    } else if (arg->merge == USM_MERGE_USER) {
        arg->merge_fn(into, from, arg->size, arg->merge_user);
    } else if (arg->merge != USM_MERGE_NONE) {
        join_elements(arg, into, from);
    }
}

/* The element that changes nothing when it is merged. */
static void neutral(const usm_split_arg *arg, unsigned char one[8])
{
    bool is_min = arg->merge == USM_MERGE_MIN;

    memset(one, 0, 8);
    if (arg->merge == USM_MERGE_SUM)
        return;
    switch (arg->element) {
    case USM_ELEMENT_I32:
        memcpy(one, is_min ? &(int32_t){INT32_MAX} : &(int32_t){INT32_MIN}, 4);
        break;
    case USM_ELEMENT_U32:
        memcpy(one, is_min ? &(uint32_t){UINT32_MAX} : &(uint32_t){0}, 4);
        break;
    case USM_ELEMENT_I64:
        memcpy(one, is_min ? &(int64_t){INT64_MAX} : &(int64_t){INT64_MIN}, 8);
        break;
    case USM_ELEMENT_U64:
        memcpy(one, is_min ? &(uint64_t){UINT64_MAX} : &(uint64_t){0}, 8);
        break;
    case USM_ELEMENT_F32:
        memcpy(one, is_min ? &(float){INFINITY} : &(float){-INFINITY}, 4);
        break;
    case USM_ELEMENT_F64:
        memcpy(one, is_min ? &(double){INFINITY} : &(double){-INFINITY}, 8);
        break;
    case USM_ELEMENT_NONE:
        break;
    }
}

static bool is_narrow(usm_element e)
{
    return e == USM_ELEMENT_I32 || e == USM_ELEMENT_U32 || e == USM_ELEMENT_F32;
}

void usm__merge_begin(const usm_split_arg *arg, const void *bytes, void *copy)
{
    unsigned char one[8];
    size_t        width = is_narrow(arg->element) ? 4 : 8;

    if (arg->merge == USM_MERGE_SUM || arg->merge == USM_MERGE_MIN || arg->merge == USM_MERGE_MAX) {
        neutral(arg, one);
        for (size_t at = 0; at < arg->size; at += width)
            memcpy((char *)copy + at, one, width);
        return;
    }
    memcpy(copy, bytes, arg->size);
    if (arg->merge == USM_MERGE_FIRST)
        memcpy(copy, &(int64_t){-1}, sizeof(int64_t));
}

bool usm__merge_cuts(const usm_split_arg *arg, const usm__chunk *chunk, const void *copies,
                     uint64_t *from)
{
    uint64_t n = usm__copies_of(arg, chunk->count);

    for (uint64_t i = 0; i < n; i++) {
        if (!has_found((const char *)copies + i * arg->size))
            continue;
        *from = chunk->first + chunk->count;
        if (arg->leaf && chunk->first + (i + 1) * arg->leaf < *from)
            *from = chunk->first + (i + 1) * arg->leaf;
        return true;
    }
    return false;
}

/* ---- the tree ------------------------------------------------------------------------------ */

usm__tree *usm__tree_create(const usm_split_arg *arg, uint64_t total)
{
    usm__tree *t = usm__heap_alloc(sizeof *t);

    if (!t) {
        (void)usm__fail(USM_E_NO_MEMORY, "no host memory to merge private copies");
        return NULL;
    }
    t->arg    = *arg;
    t->leaves = arg->leaf ? usm__copies_of(arg, total) : 0;
    return t;
}

void usm__tree_destroy(usm__tree *t)
{
    if (!t)
        return;
    for (size_t i = 0; i < t->n; i++)
        usm__heap_free(t->nodes[i].bytes);
    for (size_t i = 0; i < t->nspare; i++)
        usm__heap_free(t->spare[i]);
    usm__heap_free(t->nodes);
    usm__heap_free(t->spare);
    usm__heap_free(t);
}

/* Makes room for one more node.  There are never more spare blocks than there were nodes. */
static bool make_room(usm__tree *t)
{
    size_t cap = t->cap;

    return usm__heap_room(&t->nodes, t->n, &cap, sizeof *t->nodes) &&
           usm__heap_room(&t->spare, t->n, &t->cap, sizeof *t->spare);
}

/* The position of the node that begins at `first`, or where it would be. */
static size_t position(const usm__tree *t, uint64_t first)
{
    size_t low = 0, high = t->n;

    while (low < high) {
        size_t mid = low + (high - low) / 2;

        if (t->nodes[mid].first < first)
            low = mid + 1;
        else
            high = mid;
    }
    return low;
}

/* Whether the two are the halves of a node. */
static bool fit(const usm__tree *t, const node *left, const node *right)
{
    uint64_t end = left->first + 2 * left->count;

    if (left->first + left->count != right->first)
        return false;
    if (t->leaves == 0)
        return true;
    if ((left->count & (left->count - 1)) != 0 || left->first % (2 * left->count) != 0)
        return false;
    return right->first + right->count == (end < t->leaves ? end : t->leaves);
}

static void join_nodes(usm__tree *t, size_t left)
{
    node *a = &t->nodes[left], *b = a + 1;

    join(&t->arg, a->bytes, b->bytes);
    a->count += b->count;
    if (t->nspare < t->cap)
        t->spare[t->nspare++] = b->bytes;
    else
        usm__heap_free(b->bytes);
    memmove(b, b + 1, (t->n - left - 2) * sizeof *b);
    t->n--;
}

static usm_status add_one(usm__tree *t, uint64_t first, uint64_t count, const void *copy)
{
    size_t at;
    void  *bytes;

    if (!make_room(t))
        return usm__fail(USM_E_NO_MEMORY, "no host memory to merge private copies");
    bytes = t->nspare ? t->spare[--t->nspare] : usm__heap_alloc(t->arg.size);
    if (!bytes)
        return usm__fail(USM_E_NO_MEMORY, "no host memory for a private copy of %zu bytes",
                         t->arg.size);
    memcpy(bytes, copy, t->arg.size);
    at = position(t, first);
    memmove(&t->nodes[at + 1], &t->nodes[at], (t->n - at) * sizeof *t->nodes);
    t->nodes[at] = (node){first, count, bytes};
    t->n++;
    for (;;) {
        if (at + 1 < t->n && fit(t, &t->nodes[at], &t->nodes[at + 1]))
            join_nodes(t, at);
        else if (at > 0 && fit(t, &t->nodes[at - 1], &t->nodes[at]))
            join_nodes(t, --at);
        else
            return USM_OK;
    }
}

usm_status usm__tree_add(usm__tree *t, uint64_t first, uint64_t count, const void *copies)
{
    uint64_t   leaves = usm__copies_of(&t->arg, count);
    usm_status st     = USM_OK;

    if (t->leaves == 0)
        return add_one(t, first, count, copies);
    for (uint64_t i = 0; st == USM_OK && i < leaves; i++)
        st = add_one(t, first / t->arg.leaf + i, 1, (const char *)copies + i * t->arg.size);
    return st;
}

void usm__tree_finish(usm__tree *t, void *into)
{
    if (t->arg.merge == USM_MERGE_FIRST)
        memcpy(into, &(int64_t){-1}, sizeof(int64_t));
    for (size_t i = 0; i < t->n; i++)
        join(&t->arg, into, t->nodes[i].bytes);
}
