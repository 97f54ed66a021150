/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/** @file
 * Buffers that the ranks of a job share: readable by all, writable by one at a time in each block.
 *
 *     usm_shared_buffer_desc d = USM_SHARED_BUFFER_DESC_INIT;
 *     d.size = rows * cols * sizeof(float);
 *     usm_shared_buffer_create(NULL, &d, &m);                  // every rank
 *     usm_shared_access_begin(m, offset, size, USM_READ, &a);  // any rank
 *     ... a.ptr ...
 *     usm_shared_access_end(&a);
 *     usm_shared_buffer_destroy(m);                            // every rank
 *
 * Each block has one owner, the last rank that wrote it; write access moves it, and takes the
 * copies of readers away first.  Read copies stay until somebody writes.  Bytes go from rank to
 * rank; only addresses pass through the block's directory, a rank fixed by its number.  An access
 * sees every write that ended before it began; among ranks at the same time one writes, or several
 * read.  Threads of one rank do not wait for each other, as over plain memory.  Two ranks that each
 * hold blocks and ask for each other's may wait for each other: ask for all that you need in one
 * access, or in one order, and for no block that you have an access open to.
 *
 * What a rank keeps of a shared buffer, owned or copied, is content of a usm_buffer of its own: it
 * counts against its memory limit and goes down its tiers; blocks that have just come lie in the
 * heap until the access that wanted them begins.
 *
 * A rank that dies, or leaves the job, takes with it the blocks it owned, copies of them included:
 * accesses to those give USM_E_PEER on all others.  The rest goes on.  Where it was the directory,
 * the next living rank is, once all that live have told it what they have.  A block that was on its
 * way to the dead rank stays with its owner unless it was sent; one that was on its way between
 * others, through its directory's end, may be lost as well: USM_E_PEER.  Nobody waits for ever.
 *
 * Shared buffers are thread-safe.  Sizes and offsets are bytes. */
#ifndef USM_SHARED_BUFFER_H
#define USM_SHARED_BUFFER_H

#include <usm/buffer.h>

USM_BEGIN_DECLS

typedef struct usm_shared_buffer usm_shared_buffer;

typedef struct usm_shared_buffer_desc {
    size_t      struct_size;
    size_t      size;       /**< bytes > 0, the same on every rank                              */
    size_t      block_size; /**< what moves at once, a power of two, 4 KiB to 1 GiB; 0: 64 KiB    */
    const char *name;       /**< for stories; or NULL                                          */
} usm_shared_buffer_desc;
#define USM_SHARED_BUFFER_DESC_INIT                                                                \
    {                                                                                              \
        sizeof(usm_shared_buffer_desc), 0, 0, NULL                                                 \
    }

/** Collective over the ranks that attached (usm_mpi_attach()), in the same order for several.
 * Block b belongs to rank b * ranks / blocks at first, and is zero.  `ctx`: where this rank keeps
 * its part; NULL: the default one.
 *   USM_E_MPI      the process is not attached;   USM_E_INVALID  ranks disagree about the size
 *   USM_E_PEER     a rank did not come, or has ended */
USM_API USM_NODISCARD usm_status usm_shared_buffer_create(usm_context                  *ctx,
                                                          const usm_shared_buffer_desc *desc,
                                                          usm_shared_buffer           **buf);
/** Collective as well; waits for the others' accesses, and for nobody who is dead. */
USM_API void usm_shared_buffer_destroy(usm_shared_buffer *buf);

typedef struct usm_shared_access {
    void              *ptr;
    size_t             size;
    usm_shared_buffer *buffer;
    size_t             offset;
    usm_access_mode    mode;
    usm_access         local; /**< libusm's */
} usm_shared_access;

/** Blocks until this rank may do what `mode` says (usm_access_mode without USM_NO_WAIT): the blocks
 * of the range are taken one after the other, by rising number; the next ones are asked for ahead,
 * so one access to many moves more than many accesses to one.
 * An access that fails leaves what it was to write with NO_INIT indeterminate.
 *   as usm_access_begin(); USM_E_PEER  who owned a block has ended;   USM_E_MPI  this rank left the
 *   job;   USM_E_AGAIN, USM_E_IO, ...  also when the owner cannot get at the bytes */
USM_API USM_NODISCARD usm_status usm_shared_access_begin(usm_shared_buffer *buf, size_t offset,
                                                         size_t size, usm_access_mode mode,
                                                         usm_shared_access *acc);
USM_API void                     usm_shared_access_end(usm_shared_access *acc);

/** Bytes unless named otherwise, of this rank. */
typedef struct usm_shared_buffer_stats {
    size_t   struct_size;
    uint64_t blocks, owned, copies; /**< blocks; of these owned here, copied here                */
    uint64_t received, sent;        /**< between ranks                                          */
    uint64_t hits, misses;          /**< accesses to blocks                                     */
    uint64_t invalidated;           /**< copies taken away from here                             */
} usm_shared_buffer_stats;
USM_API USM_NODISCARD usm_status usm_shared_buffer_get_stats(usm_shared_buffer       *buf,
                                                             usm_shared_buffer_stats *stats);

USM_END_DECLS
#endif
