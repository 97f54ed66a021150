/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/** @file
 * Buffers and accessors: data whose use is declared, so that it may be larger
 * than the memory in which it is processed.
 *
 * A buffer is a range of bytes without a fixed address.  A program declares
 * which bytes it will access, and how.  libusm brings those bytes to where
 * they are needed and orders commands by these declarations: SYCL's buffers and
 * accessors in C.  Bytes that do not fit in memory (USM_MEMORY_LIMIT) are
 * evicted to the tiers of USM_SPILL.
 *
 *     usm_access a;
 *     if (usm_access_begin(buf, 0, n, USM_READ_WRITE, &a) == USM_OK) {
 *         work_on(a.ptr, a.size);
 *         usm_access_end(&a);
 *     }
 *
 * Accesses by the host:
 *  - a.ptr points to `size` contiguous bytes and is valid until the end of the
 *    access.  It is the same in every access to the same bytes, unless
 *    usm_buffer_create() says otherwise.
 *  - An access waits for commands that it conflicts with (the ranges overlap, and
 *    one of the two writes); conflicting commands that are submitted later start
 *    after its end.
 *  - Accesses do not wait for each other: threads that share bytes synchronise as
 *    they do for plain memory.
 *  - Accessed bytes stay in memory until the end of the access: access small
 *    ranges, and not for long.
 *
 * Commands (USM_ARG_ACCESSOR of usm_queue_submit(), usm_buffer_fill(),
 * usm_buffer_copy()) are ordered by ranges: read after write, write after read,
 * write after write.  Commands on disjoint ranges of one buffer run in
 * parallel.
 *
 * Sizes and offsets are bytes.  Buffers are thread-safe; one thread at a time
 * may use a usm_access.  On failure outputs are untouched. */
#ifndef USM_BUFFER_H
#define USM_BUFFER_H

#include <usm/pool.h>
#include <usm/types.h>

USM_BEGIN_DECLS

typedef struct usm_buffer usm_buffer;

/** How bytes are accessed.  USM_WRITE keeps the bytes that the program does not
 * write.  USM_NO_INIT, or-ed to USM_WRITE or USM_READ_WRITE, does not (write
 * without fetch): the old content is not loaded, and bytes of the range that
 * are not written become indeterminate. */
typedef enum usm_access_mode {
    USM_READ               = 1,
    USM_WRITE              = 2,
    USM_READ_WRITE         = 3,
    USM_NO_INIT            = 4,
    USM_NO_WAIT            = 8, /**< accesses by the host: return USM_E_AGAIN instead of waiting
                                     for commands, memory or storage */
    USM_WRITE_NO_INIT      = USM_WRITE | USM_NO_INIT,
    USM_READ_WRITE_NO_INIT = USM_READ_WRITE | USM_NO_INIT
} usm_access_mode;

/* ---- buffers ----------------------------------------------------------------- */

typedef enum usm_buffer_flags {
    /** host_data is only read; writes go to other memory and are not written
     * back (const T * in SYCL). */
    USM_BUFFER_CONST_DATA = 1 << 0,
    /** usm_buffer_create() copies host_data, and does not use it afterwards. */
    USM_BUFFER_COPY_DATA = 1 << 1
} usm_buffer_flags;

/** A backing store implemented by the program: functions that read and write the
 * content of a buffer, for formats of the program's own.  Threads of the
 * library call them, several at a time for different parts; they may ask for
 * blocks in any order.  Each returns USM_OK, or calls usm_home_fail() with
 * USM_E_IO or USM_E_CORRUPT and an error message, and returns its result. */
typedef struct usm_home_ops {
    size_t struct_size;
    /** Reads [offset, offset + size) of the buffer into data. */
    usm_status (*read)(void *home, uint64_t offset, void *data, size_t size);
    /** Writes the same range.  NULL: the buffer is read only. */
    usm_status (*write)(void *home, uint64_t offset, const void *data, size_t size);
    /** Makes everything that was written durable.  May be NULL. */
    usm_status (*flush)(void *home);
    /** Called when the buffer has been destroyed.  May be NULL. */
    void (*close)(void *home);
} usm_home_ops;
/** Stores the error message of a failing backing-store function and returns
 * `status`. */
USM_API usm_status usm_home_fail(usm_status status, const char *format, ...) USM_PRINTF(2, 3);

typedef struct usm_buffer_desc {
    size_t              struct_size;
    size_t              size;      /**< bytes, > 0 */
    void               *host_data; /**< NULL: the buffer has memory of its own, whose content is
                                        indeterminate at first.  Otherwise `size` bytes that
                                        outlive the buffer; they are used in place, never
                                        spilled, and hold the final content once the buffer is
                                        destroyed */
    uint32_t            flags;     /**< usm_buffer_flags                                       */
    const char         *name;      /**< for error messages and statistics; copied; may be NULL */
    const usm_home_ops *home;      /**< the backing store; NULL: none                          */
    void               *home_data;
} usm_buffer_desc;
#define USM_BUFFER_DESC_INIT                                                                       \
    {                                                                                              \
        sizeof(usm_buffer_desc), 0, NULL, 0, NULL, NULL, NULL                                      \
    }

/** Creates a buffer.  The caller owns *buf.  `ctx` NULL: the default context.
 * Allocates no memory for the content.
 *   USM_E_INVALID  size 0, flags without host_data, host_data with a backing store */
USM_API USM_NODISCARD usm_status usm_buffer_create(usm_context *ctx, const usm_buffer_desc *desc,
                                                   usm_buffer **buf);
/** The common case: a buffer of `size` bytes with memory of its own.  NULL on
 * failure, with an error message. */
USM_API usm_buffer *usm_buffer_new(usm_context *ctx, size_t size);

/** Creates a buffer whose backing store is a file: [offset, offset + size) of
 * it; size 0: up to its end.  Clean parts of the buffer are read from the file,
 * and dropped when they are evicted; dirty parts are written to the file only
 * by usm_buffer_commit().  A journal that an interrupted commit left beside the
 * file is replayed first.  `mode`:
 *
 *   USM_READ                      the file exists
 *   USM_READ_WRITE                the file exists
 *   USM_READ_WRITE | USM_NO_INIT  the file is created, or extended, if necessary
 *
 *   USM_E_IO      the system refused; the error message has its reason
 *   USM_E_SIZE    the file ends before offset + size
 *   USM_E_BUSY    another buffer or process has the file open for writing
 *   USM_E_FORMAT  the journal beside the file is damaged in a way that a crash
 *                 does not explain */
USM_API USM_NODISCARD usm_status usm_buffer_open(usm_context *ctx, const char *path,
                                                 uint64_t offset, size_t size, usm_access_mode mode,
                                                 usm_buffer **buf);

/** Creates a buffer over [offset, offset + size) of another one: it shares the
 * bytes.  The parent may not be a sub-buffer itself; it lives until its last
 * sub-buffer has been destroyed. */
USM_API USM_NODISCARD usm_status usm_buffer_create_sub(usm_buffer *parent, size_t offset,
                                                       size_t size, usm_buffer **sub);

/** Destroys a buffer, or does nothing if it is NULL.  No access may be open.
 * With host_data the function waits for the commands and writes the content
 * back.  Otherwise it does not wait, and content that was not committed is
 * dropped.  A failure to write back is reported to the context's error
 * callback. */
USM_API void usm_buffer_destroy(usm_buffer *buf);

/** Return the size in bytes, and the context. */
USM_API size_t       usm_buffer_size(const usm_buffer *buf);
USM_API usm_context *usm_buffer_get_context(const usm_buffer *buf);

/** usm_buffer_set_final_data() chooses the memory to which the final content is
 * copied when the buffer is destroyed: `dest` has the buffer's size; NULL:
 * none.  It replaces host_data.  usm_buffer_set_write_back() switches that copy
 * on or off. */
USM_API USM_NODISCARD usm_status usm_buffer_set_final_data(usm_buffer *buf, void *dest);
USM_API USM_NODISCARD usm_status usm_buffer_set_write_back(usm_buffer *buf, bool enabled);

/** Makes everything written so far durable in the buffer's file.  After a crash
 * the file holds, in each block, either the state before the commit or that
 * after it.  The function waits for commands that write the buffer.  No host
 * access that writes may be open.
 *   USM_E_NOT_SUPPORTED  the buffer has no backing store
 *   USM_E_READ_ONLY      the backing store is read only
 *   USM_E_BUSY           an access that writes is open
 *   USM_E_IO             nothing is lost: the dirty parts are kept, and the commit
 *                        may be repeated */
USM_API USM_NODISCARD usm_status usm_buffer_commit(usm_buffer *buf);

/* ---- the host's accesses ------------------------------------------------------- */

/** An open access.  The caller reads ptr and size; the other members are
 * private. */
typedef struct usm_access {
    void           *ptr;
    size_t          size;
    usm_buffer     *buffer;
    size_t          offset;
    usm_access_mode mode;
    uint32_t        state;
    void           *opaque;
} usm_access;

/** Opens an access: blocks until the bytes are in host memory.
 *   USM_E_INVALID     the range exceeds the buffer, or the mode is not valid
 *                     (USM_NO_INIT with USM_READ)
 *   USM_E_READ_ONLY   a write to a buffer whose file was opened for reading
 *   USM_E_AGAIN       other accesses hold the memory; the error message names
 *                     them; with USM_NO_WAIT also if it would have to wait
 *   USM_E_BUDGET      the range alone is larger than the memory limit
 *   USM_E_SPILL_FULL  no tier has room for the blocks that must be evicted
 *   USM_E_IO, USM_E_CORRUPT  the bytes cannot be read from where they are stored;
 *                     other parts of the buffer can
 *   USM_E_DEPENDENCY  a command that wrote the bytes failed */
USM_API USM_NODISCARD usm_status usm_access_begin(usm_buffer *buf, size_t offset, size_t size,
                                                  usm_access_mode mode, usm_access *acc);
/** Ends an access, once; ptr is invalid from now on. */
USM_API void usm_access_end(usm_access *acc);

typedef struct usm_buffer_range {
    usm_buffer     *buffer;
    size_t          offset, size;
    usm_access_mode mode; /**< in usm_announce() 0 means USM_READ */
} usm_buffer_range;

/** Opens n accesses at once, all or none, so that threads that need several
 * ranges each cannot block each other while each holds a part of them.  `accs`
 * has n elements; each access is ended separately.  Statuses as
 * usm_access_begin(). */
USM_API USM_NODISCARD usm_status usm_access_many(size_t n, const usm_buffer_range *list,
                                                 usm_access *accs);

/** Does not wait: `acc` is open at once, but its bytes may only be accessed when
 * *ev has completed.  A failure of the event is a failure of the access, which
 * must be ended all the same. */
USM_API USM_NODISCARD usm_status usm_access_begin_async(usm_buffer *buf, size_t offset, size_t size,
                                                        usm_access_mode mode, usm_access *acc,
                                                        usm_event **ev);

/* ---- commands -------------------------------------------------------------------- */

/** An argument of a kernel (USM_ARG_BUFFER).  The kernel receives a pointer to
 * the first byte of the range; the `size` bytes are contiguous there. */
typedef struct usm_accessor {
    usm_buffer     *buffer;
    size_t          offset, size;
    usm_access_mode mode;
} usm_accessor;

/** As usm_fill() and usm_memcpy(), for parts of buffers.  dst->size must be a
 * multiple of pattern_size. */
USM_API USM_NODISCARD usm_status usm_buffer_fill(usm_queue *q, const usm_accessor *dst,
                                                 const void *pattern, size_t pattern_size,
                                                 size_t ndeps, usm_event *const *deps,
                                                 usm_event **ev);
/** Copies dst->size bytes; src->size must be the same. */
USM_API USM_NODISCARD usm_status usm_buffer_copy(usm_queue *q, const usm_accessor *dst,
                                                 const usm_accessor *src, size_t ndeps,
                                                 usm_event *const *deps, usm_event **ev);

/** A host task on parts of buffers.  fn(user, ptrs) runs on a thread of the
 * library when the bytes are in host memory and all earlier conflicting
 * commands have ended; ptrs[i] points to the first byte of accessors[i], until
 * fn returns.  Otherwise as usm_host_task(), on a queue of any device.  Ranges
 * that a failing task was to write count as not written. */
typedef usm_status (*usm_buffer_task_fn)(void *user, void *const *ptrs);
USM_API USM_NODISCARD usm_status usm_buffer_task(usm_queue *q, usm_buffer_task_fn fn, void *user,
                                                 size_t naccessors, const usm_accessor *accessors,
                                                 size_t ndeps, usm_event *const *deps,
                                                 usm_event **ev);

/* ---- hints about future accesses ----------------------------------------------- */

typedef enum usm_buffer_advice {
    USM_BUFFER_NORMAL     = 0,
    USM_BUFFER_WILL_NEED  = 1, /**< load it, as far as there is room                    */
    USM_BUFFER_WONT_NEED  = 2, /**< evict it first                                      */
    USM_BUFFER_SEQUENTIAL = 3, /**< will be accessed in rising order                    */
    USM_BUFFER_RANDOM     = 4, /**< no order: no readahead                              */
    USM_BUFFER_PIN        = 5, /**< load it, and keep it in memory until UNPIN; counted */
    USM_BUFFER_UNPIN      = 6,
    USM_BUFFER_DISCARD    = 7 /**< the content is no longer needed: it is not kept anywhere */
} usm_buffer_advice;

/** Gives a hint for a range.  Waits for storage only for PIN.
 *   USM_E_BUSY  DISCARD, and an access or command on the range is open or in
 *               progress */
USM_API USM_NODISCARD usm_status usm_buffer_advise(usm_buffer *buf, size_t offset, size_t size,
                                                   usm_buffer_advice advice);
/** Announces future accesses in their order.  The library prefetches them, as
 * far as memory allows.  An announced access that never comes costs its reads.
 * The list replaces an earlier one of the calling thread; n 0 withdraws it. */
USM_API USM_NODISCARD usm_status usm_announce(size_t n, const usm_buffer_range *list);

/* ---- statistics --------------------------------------------------------------- */

/** Statistics of one tier.  Sizes are bytes. */
typedef struct usm_tier_stats {
    char     name[48];          /**< "host", "file:/var/tmp"      */
    uint64_t used, capacity;    /**< capacity UINT64_MAX: unknown */
    uint64_t read, written;     /**< bytes read and written       */
    uint64_t reads, writes;     /**< transfers                    */
    uint64_t read_ns, write_ns; /**< time with at least one transfer in progress: gives the
                                     bandwidth */
    uint64_t read_p50_ns, read_p99_ns, write_p50_ns, write_p99_ns;
    uint64_t errors, corrupt;         /**< failed transfers; transfers with a wrong checksum */
    uint64_t encoded_in, encoded_out; /**< bytes before and after the codecs                 */
} usm_tier_stats;

#define USM_TIERS 8

typedef struct usm_spill_stats {
    size_t         struct_size;
    uint64_t       limit;    /**< of host memory for buffers; 0: none */
    uint64_t       resident; /**< bytes in memory                     */
    uint64_t       resident_peak;
    uint64_t       pinned; /**< part of `resident`: by accesses, commands and PIN         */
    uint64_t       dirty;  /**< part of `resident`: written, and not yet stored elsewhere */
    uint64_t       block_size;
    uint64_t       blocks;  /**< of all buffers                                         */
    uint64_t       misses;  /**< blocks that an access waited for; hits are not counted */
    uint64_t       wait_ns; /**< waiting time of accesses, over all threads             */
    uint64_t       prefetched, prefetch_hits, prefetch_wasted; /**< blocks */
    uint64_t       evicted_clean, evicted_dirty, zero_blocks;  /**< blocks */
    uint64_t       device_evictions; /**< extents evicted from device memory */
    size_t         ntiers;
    usm_tier_stats tiers[USM_TIERS];
    /* Replicas of blocks on tiers (USM_SPILL_REPLICAS); all 0 if each block has
     * one copy and no tier is "mpi". */
    uint64_t copies;          /**< copies that each block should have                      */
    uint64_t copies_missing;  /**< blocks that have fewer at present                       */
    uint64_t copies_repaired; /**< copies that were re-replicated after a loss, or moved   */
    uint64_t blocks_lost;     /**< blocks whose last copy was lost with its replica target */
} usm_spill_stats;

/** Returns statistics of all buffers of a context.  `ctx` NULL: the default
 * context.  The caller sets stats->struct_size. */
USM_API USM_NODISCARD usm_status usm_spill_get_stats(usm_context *ctx, usm_spill_stats *stats);
/** Writes the same as text, with the owners of pins; cap and size are as in
 * usm_pool_describe(). */
USM_API usm_status usm_spill_describe(usm_context *ctx, usm_text_format format, char *text,
                                      size_t cap, size_t *size);

USM_END_DECLS
#endif
