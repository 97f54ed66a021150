/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/** @file
 * Buffers that the ranks of a job share: any rank may read any block, one rank
 * at a time may write a block.
 *
 *     usm_shared_buffer_desc d = USM_SHARED_BUFFER_DESC_INIT;
 *     d.size = rows * cols * sizeof(float);
 *     usm_shared_buffer_create(NULL, &d, &m);                  // every rank
 *     usm_shared_access_begin(m, offset, size, USM_READ, &a);  // any rank
 *     ... a.ptr ...
 *     usm_shared_access_end(&a);
 *     usm_shared_buffer_destroy(m);                            // every rank
 *
 * Coherence.  Each block has one owner, the last rank that wrote it.  Write
 * access transfers the ownership and invalidates the copies of readers; read
 * copies stay until a rank writes.  The bytes go directly from rank to rank.
 * The block's directory, which is on the rank that its number determines,
 * handles requests only.  An access sees every write that ended before it
 * began.  Of accesses to a block by several ranks at the same time, either one
 * writes or several read.
 *
 * Threads of one rank do not wait for each other, as for plain memory.  Two
 * ranks can deadlock if each has blocks open and asks for the other's: ask for
 * all needed blocks in one access, or in one order, and never for a block to
 * which you have an access open.
 *
 * Memory.  The blocks that a rank owns or has copied are content of a private
 * usm_buffer: they count against its memory limit and are evicted to its tiers.
 * Blocks that have just arrived are on the heap until the access that asked for
 * them begins.
 *
 * Failures.  If a rank dies or leaves the job, the blocks it owned are lost,
 * copies of them included: accesses to them return USM_E_PEER on all other
 * ranks.  All other blocks stay valid.  If it held a directory, the next living
 * rank takes over once all living ranks have reported to it which blocks they
 * have.  A block that was being transferred to the dead rank stays with its
 * owner unless it had been sent; one that was being transferred between other
 * ranks may be lost (USM_E_PEER) if its directory was on the dead rank.  No
 * rank waits forever.
 *
 * Shared buffers are thread-safe.  Sizes and offsets are bytes. */
#ifndef USM_SHARED_BUFFER_H
#define USM_SHARED_BUFFER_H

#include <usm/buffer.h>

USM_BEGIN_DECLS

typedef struct usm_shared_buffer usm_shared_buffer;

typedef struct usm_shared_buffer_desc {
    size_t      struct_size;
    size_t      size;       /**< bytes > 0; the same on every rank */
    size_t      block_size; /**< unit of coherence and transfer: a power of two, 4 KiB to 1 GiB;
                                 0: 64 KiB */
    const char *name;       /**< for error messages; or NULL */
} usm_shared_buffer_desc;
#define USM_SHARED_BUFFER_DESC_INIT                                                                \
    {                                                                                              \
        sizeof(usm_shared_buffer_desc), 0, 0, NULL                                                 \
    }

/** Creates a shared buffer.  Collective over the ranks that attached
 * (usm_mpi_attach()); several are created in the same order on all ranks.
 * Block b initially belongs to rank b * ranks / blocks and is zero.  `ctx`: the
 * context in which this rank keeps its part; NULL: the default context.  The
 * caller owns *buf.
 *   USM_E_MPI      the process is not attached
 *   USM_E_INVALID  the ranks gave different sizes
 *   USM_E_PEER     a rank did not come, or has ended */
USM_API USM_NODISCARD usm_status usm_shared_buffer_create(usm_context                  *ctx,
                                                          const usm_shared_buffer_desc *desc,
                                                          usm_shared_buffer           **buf);
/** Destroys a shared buffer.  Collective; waits for the accesses of other ranks,
 * but not for a rank that has died. */
USM_API void usm_shared_buffer_destroy(usm_shared_buffer *buf);

typedef struct usm_shared_access {
    void              *ptr;
    size_t             size;
    usm_shared_buffer *buffer;
    size_t             offset;
    usm_access_mode    mode;
    usm_access         local; /**< private */
} usm_shared_access;

/** Opens an access: blocks until this rank has the access that `mode` asks for
 * (usm_access_mode without USM_NO_WAIT).  The blocks of the range are acquired
 * one after the other, by rising number, and the following ones are requested
 * ahead: one access to many blocks is faster than many accesses to one.
 * Statuses as usm_access_begin().  After a failure of an access with
 * USM_NO_INIT the bytes it was to write are indeterminate.
 *   USM_E_PEER   the owner of a block has ended
 *   USM_E_MPI    this rank has left the job
 *   USM_E_AGAIN, USM_E_IO and others  also if the owner cannot read the bytes */
USM_API USM_NODISCARD usm_status usm_shared_access_begin(usm_shared_buffer *buf, size_t offset,
                                                         size_t size, usm_access_mode mode,
                                                         usm_shared_access *acc);
/** Ends an access, once; acc->ptr is invalid from now on. */
USM_API void usm_shared_access_end(usm_shared_access *acc);

/** Statistics of this rank.  Sizes are bytes. */
typedef struct usm_shared_buffer_stats {
    size_t   struct_size;
    uint64_t blocks, owned, copies; /**< blocks; how many this rank owns, and has copied */
    uint64_t received, sent;        /**< between ranks                                   */
    uint64_t hits, misses;          /**< accesses to blocks                              */
    uint64_t invalidated;           /**< copies of this rank that were invalidated       */
} usm_shared_buffer_stats;
USM_API USM_NODISCARD usm_status usm_shared_buffer_get_stats(usm_shared_buffer       *buf,
                                                             usm_shared_buffer_stats *stats);

USM_END_DECLS
#endif
