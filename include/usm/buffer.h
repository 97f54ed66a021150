/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/** @file
 * Buffers and accessors: data that says what is done to it, and so may outgrow
 * the memory it is worked on in.
 *
 * A buffer is a range of bytes that has no fixed place.  Who wants to touch it
 * declares which part, and how; libusm brings those bytes where they are needed,
 * and orders commands by what they declare: SYCL's buffers and accessors in C.
 * What does not fit in memory (USM_MEMORY_LIMIT) moves to the tiers of USM_SPILL.
 *
 *     usm_access a;
 *     if (usm_access_begin(buf, 0, n, USM_READ_WRITE, &a) == USM_OK) {
 *         work_on(a.ptr, a.size);
 *         usm_access_end(&a);
 *     }
 *
 * The host's accesses:
 *  - a.ptr points to `size` contiguous bytes, is valid until the end of the
 *    access, and is the same in every access to the same bytes, unless
 *    usm_buffer_create() says otherwise;
 *  - they wait for commands that they conflict with (one of both writes, and the
 *    ranges overlap), and such commands, submitted later, start after their end;
 *  - among each other they do not wait: threads that share bytes synchronise as
 *    they do over plain memory;
 *  - what is accessed stays in memory: hold little, and not for long.
 *
 * Commands (USM_ARG_ACCESSOR of usm_queue_submit(), usm_buffer_fill(), _copy()) are
 * ordered by ranges: read after write, write after read, write after write;
 * disjoint ranges of one buffer run in parallel.
 *
 * Sizes and offsets are bytes.  Buffers are thread-safe; a usm_access belongs to
 * one thread at a time.  On failure outputs are untouched. */
#ifndef USM_BUFFER_H
#define USM_BUFFER_H

#include <usm/pool.h>
#include <usm/types.h>

USM_BEGIN_DECLS

typedef struct usm_buffer usm_buffer;

/** WRITE keeps what it does not write; NO_INIT, or-ed to WRITE or READ_WRITE, does not: nothing is
 * brought in, and bytes of the range that are not written become indeterminate. */
typedef enum usm_access_mode {
    USM_READ          = 1,
    USM_WRITE         = 2,
    USM_READ_WRITE    = 3,
    USM_NO_INIT       = 4,
    USM_NO_WAIT       = 8, /**< host accesses: USM_E_AGAIN instead of waiting for commands, memory
                             or storage                                                     */
    USM_WRITE_NO_INIT = USM_WRITE | USM_NO_INIT,
    USM_READ_WRITE_NO_INIT = USM_READ_WRITE | USM_NO_INIT
} usm_access_mode;

/* ---- buffers ----------------------------------------------------------------- */

typedef enum usm_buffer_flags {
    /** host_data is only read; writes go elsewhere and are not written back (const T * of SYCL). */
    USM_BUFFER_CONST_DATA = 1 << 0,
    /** host_data is copied by usm_buffer_create(), and forgotten. */
    USM_BUFFER_COPY_DATA = 1 << 1
} usm_buffer_flags;

/** Where the bytes of a buffer come from and go to, for formats of one's own.  Called by threads
 * of the library, for different parts at a time; blocks may be asked for in any order.  Each
 * returns USM_OK, or USM_E_IO or USM_E_CORRUPT with a sentence through usm_home_fail(). */
typedef struct usm_home_ops {
    size_t struct_size;
    /** [offset, offset + size) of the buffer into data. */
    usm_status (*read)(void *home, uint64_t offset, void *data, size_t size);
    /** NULL: the buffer is read only. */
    usm_status (*write)(void *home, uint64_t offset, const void *data, size_t size);
    /** What was written is durable. May be NULL. */
    usm_status (*flush)(void *home);
    /** The buffer has gone. May be NULL. */
    void (*close)(void *home);
} usm_home_ops;
/** Writes the story of a failing home function and returns `status`. */
USM_API usm_status usm_home_fail(usm_status status, const char *format, ...) USM_PRINTF(2, 3);

typedef struct usm_buffer_desc {
    size_t      struct_size;
    size_t      size;         /**< bytes > 0                                                 */
    void       *host_data;    /**< NULL: memory of the buffer's own, whose content is indeterminate
                                    at first; else memory of `size` bytes that outlives the buffer,
                                    is used in place, never spilled, and holds the final content
                                    once the buffer is destroyed                              */
    uint32_t    flags;        /**< usm_buffer_flags                                      */
    const char *name;         /**< for stories and statistics; copied; or NULL          */
    const usm_home_ops *home; /**< NULL: none                                           */
    void               *home_data;
} usm_buffer_desc;
#define USM_BUFFER_DESC_INIT                                                                       \
    {                                                                                              \
        sizeof(usm_buffer_desc), 0, NULL, 0, NULL, NULL, NULL                                      \
    }

/** Caller owns *buf.  `ctx` NULL: the default context.  Takes no memory for the content.
 *   USM_E_INVALID  size 0, flags without host_data, host_data with a home */
USM_API USM_NODISCARD usm_status usm_buffer_create(usm_context *ctx, const usm_buffer_desc *desc,
                                                   usm_buffer **buf);
/** The usual case: `size` bytes of the buffer's own. NULL and a story on failure. */
USM_API usm_buffer *usm_buffer_new(usm_context *ctx, size_t size);

/** A buffer that lives in a file: [offset, offset + size) of it; size 0: up to its end.  Its clean
 * parts are read from there and dropped, its dirty ones reach the file by usm_buffer_commit()
 * alone. `mode`: USM_READ; USM_READ_WRITE: the file is there; USM_READ_WRITE | USM_NO_INIT: it is
 * made, or made long enough, if need be.  A journal that a commit left beside the file is replayed
 * first. USM_E_IO      the system refused, in its words USM_E_SIZE    the file ends before offset +
 * size USM_E_BUSY    another buffer or process has the file open for writing USM_E_FORMAT  the
 * journal beside it is damaged beyond what a crash explains */
USM_API USM_NODISCARD usm_status usm_buffer_open(usm_context *ctx, const char *path,
                                                 uint64_t offset, size_t size, usm_access_mode mode,
                                                 usm_buffer **buf);

/** [offset, offset + size) of a buffer as one of its own, over the same bytes; not of a sub-buffer.
 * The parent lives until its last sub-buffer has gone. */
USM_API USM_NODISCARD usm_status usm_buffer_create_sub(usm_buffer *parent, size_t offset,
                                                       size_t size, usm_buffer **sub);

/** NULL is fine.  No access is open.  Over host_data it waits for the commands and writes back;
 * else it does not wait, and what was not committed is dropped.  A failure to write back reaches
 * the context's error callback. */
USM_API void usm_buffer_destroy(usm_buffer *buf);

USM_API size_t       usm_buffer_size(const usm_buffer *buf);
USM_API usm_context *usm_buffer_get_context(const usm_buffer *buf);

/** Where the final content is copied at the end of the buffer (`dest`, `size` of the buffer); NULL:
 * nowhere.  Instead of host_data, if there is one. */
USM_API USM_NODISCARD usm_status usm_buffer_set_final_data(usm_buffer *buf, void *dest);
USM_API USM_NODISCARD usm_status usm_buffer_set_write_back(usm_buffer *buf, bool enabled);

/** Makes everything written so far durable in the buffer's file, or all of its old content stays:
 * after a crash the file holds either the state before or after, in each block.  Waits for
 * commands that write the buffer; no host access that writes may be open.
 *   USM_E_NOT_SUPPORTED  the buffer has no home;   USM_E_READ_ONLY;   USM_E_BUSY  an access is open
 *   USM_E_IO             nothing is lost: the dirty parts are kept, the commit may be repeated */
USM_API USM_NODISCARD usm_status usm_buffer_commit(usm_buffer *buf);

/* ---- the host's accesses ------------------------------------------------------- */

/** An access that is open.  ptr and size are for the caller; the rest is libusm's. */
typedef struct usm_access {
    void           *ptr;
    size_t          size;
    usm_buffer     *buffer;
    size_t          offset;
    usm_access_mode mode;
    uint32_t        state;
    void           *opaque;
} usm_access;

/** Blocks until the bytes are there.
 *   USM_E_INVALID     the range leaves the buffer, a mode that is none (NO_INIT with READ)
 *   USM_E_READ_ONLY   a write to a buffer that lives in a file opened for reading
 *   USM_E_AGAIN       memory is held by other accesses: the story names who; with USM_NO_WAIT also
 *                     when it would wait
 *   USM_E_BUDGET      the range alone is larger than the memory limit
 *   USM_E_SPILL_FULL  what would have to leave memory finds no room
 *   USM_E_IO, USM_E_CORRUPT  the bytes cannot be had from where they lie; other parts can
 *   USM_E_DEPENDENCY  a command that wrote them failed */
USM_API USM_NODISCARD usm_status usm_access_begin(usm_buffer *buf, size_t offset, size_t size,
                                                  usm_access_mode mode, usm_access *acc);
/** Once per access; ptr is not valid any more. */
USM_API void usm_access_end(usm_access *acc);

typedef struct usm_buffer_range {
    usm_buffer     *buffer;
    size_t          offset, size;
    usm_access_mode mode; /**< of usm_announce(): 0 counts as USM_READ                      */
} usm_buffer_range;

/** n accesses at once, all or none: threads that each need several cannot block each other with
 * half of theirs.  accs has n elements; each is ended by itself. */
USM_API USM_NODISCARD usm_status usm_access_many(size_t n, const usm_buffer_range *list,
                                                 usm_access *accs);

/** Does not wait: acc is open at once, and its bytes may be touched when *ev has completed (a
 * failure of the event is that of the access, which is ended all the same). */
USM_API USM_NODISCARD usm_status usm_access_begin_async(usm_buffer *buf, size_t offset, size_t size,
                                                        usm_access_mode mode, usm_access *acc,
                                                        usm_event **ev);

/* ---- commands -------------------------------------------------------------------- */

/** An argument of a kernel (USM_ARG_BUFFER): the kernel gets a pointer to the first byte of the
 * range, `size` bytes are contiguous there. */
typedef struct usm_accessor {
    usm_buffer     *buffer;
    size_t          offset, size;
    usm_access_mode mode;
} usm_accessor;

/** As usm_fill(), usm_memcpy(), over parts of buffers. size a multiple of pattern_size. */
USM_API USM_NODISCARD usm_status usm_buffer_fill(usm_queue *q, const usm_accessor *dst,
                                                 const void *pattern, size_t pattern_size,
                                                 size_t ndeps, usm_event *const *deps,
                                                 usm_event **ev);
/** dst->size bytes; src->size is the same. */
USM_API USM_NODISCARD usm_status usm_buffer_copy(usm_queue *q, const usm_accessor *dst,
                                                 const usm_accessor *src, size_t ndeps,
                                                 usm_event *const *deps, usm_event **ev);

/** A host task over parts of buffers: fn(user, ptrs) runs on a thread of the library once the bytes
 * are in host memory and the commands before it have ended; ptrs[i] is the first byte of
 * accessors[i], until fn returns.  As usm_host_task(), on a queue of any device.  What a failing
 * task should have written counts as not written. */
typedef usm_status (*usm_buffer_task_fn)(void *user, void *const *ptrs);
USM_API USM_NODISCARD usm_status usm_buffer_task(usm_queue *q, usm_buffer_task_fn fn, void *user,
                                                 size_t naccessors, const usm_accessor *accessors,
                                                 size_t ndeps, usm_event *const *deps,
                                                 usm_event **ev);

/* ---- what is known of the future ---------------------------------------------------- */

typedef enum usm_buffer_advice {
    USM_BUFFER_NORMAL     = 0,
    USM_BUFFER_WILL_NEED  = 1, /**< bring it in, as far as there is room                   */
    USM_BUFFER_WONT_NEED  = 2, /**< first to leave                                         */
    USM_BUFFER_SEQUENTIAL = 3, /**< will be passed over in order                           */
    USM_BUFFER_RANDOM     = 4, /**< no order: do not guess                                 */
    USM_BUFFER_PIN        = 5, /**< bring in, and keep in memory until UNPIN; counted       */
    USM_BUFFER_UNPIN      = 6,
    USM_BUFFER_DISCARD    = 7 /**< the content is dead: nothing of it is kept anywhere     */
} usm_buffer_advice;

/** Never waits for storage, but PIN does.  DISCARD: no access or command of the range is open or
 * under way (USM_E_BUSY). */
USM_API USM_NODISCARD usm_status usm_buffer_advise(usm_buffer *buf, size_t offset, size_t size,
                                                   usm_buffer_advice advice);
/** The accesses that will come, in this order: they are brought in ahead, as memory allows.  An
 * access that was announced and does not come costs its reading.  Replaces an earlier list of the
 * calling thread; n 0 withdraws it. */
USM_API USM_NODISCARD usm_status usm_announce(size_t n, const usm_buffer_range *list);

/* ---- what happens -------------------------------------------------------------------- */

/** Of one tier.  Bytes unless named otherwise. */
typedef struct usm_tier_stats {
    char     name[48];          /**< "host", "file:/var/tmp"                              */
    uint64_t used, capacity;    /**< capacity UINT64_MAX: not known                        */
    uint64_t read, written;     /**< bytes moved in and out                               */
    uint64_t reads, writes;     /**< transfers                                            */
    uint64_t read_ns, write_ns; /**< while at least one was under way: bandwidth           */
    uint64_t read_p50_ns, read_p99_ns, write_p50_ns, write_p99_ns;
    uint64_t errors, corrupt;         /**< transfers that failed; whose checksum did             */
    uint64_t encoded_in, encoded_out; /**< through codecs: bytes before and after               */
} usm_tier_stats;

#define USM_TIERS 8

typedef struct usm_spill_stats {
    size_t         struct_size;
    uint64_t       limit;    /**< of host memory for buffers; 0: none                     */
    uint64_t       resident; /**< bytes in memory                                         */
    uint64_t       resident_peak;
    uint64_t       pinned; /**< of these, by accesses, commands and PIN                 */
    uint64_t       dirty;  /**< of these, written and not yet stored elsewhere          */
    uint64_t       block_size;
    uint64_t       blocks;  /**< of all buffers                                          */
    uint64_t       misses;  /**< blocks that an access waited for; hits are not counted   */
    uint64_t       wait_ns; /**< that accesses waited, all threads                        */
    uint64_t       prefetched, prefetch_hits, prefetch_wasted; /**< blocks                      */
    uint64_t       evicted_clean, evicted_dirty, zero_blocks;  /**< blocks                      */
    uint64_t       device_evictions; /**< extents that left device memory                       */
    size_t         ntiers;
    usm_tier_stats tiers[USM_TIERS];
    /* Of blocks on tiers (USM_SPILL_REPLICAS); all 0 where each has one and no tier is "mpi".  */
    uint64_t copies;          /**< that each is to have                                   */
    uint64_t copies_missing;  /**< blocks that have fewer now                             */
    uint64_t copies_repaired; /**< copies made anew after a loss, or moved                 */
    uint64_t blocks_lost;     /**< whose last copy went with its place                    */
} usm_spill_stats;

/** `ctx` NULL: the default context.  stats->struct_size is set by the caller. */
USM_API USM_NODISCARD usm_status usm_spill_get_stats(usm_context *ctx, usm_spill_stats *stats);
/** The same as text, with who pins what; as usm_pool_describe(). */
USM_API usm_status usm_spill_describe(usm_context *ctx, usm_text_format format, char *text,
                                      size_t cap, size_t *size);

USM_END_DECLS
#endif
