/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/** @file
 * Memory and events shared by processes of one machine.
 *
 * The owner allocates from a pool that exports (usm_pool_desc.export_mode) and
 * makes a handle of a pointer.  The handle is plain bytes of a fixed size,
 * which the program transfers in any way (a pipe, MPI, a usm_ipc_channel).
 * Another process of the same user opens it and gets a pointer to the same
 * memory:
 *
 *     owner                                    importer
 *     usm_ipc_get(p, ctx, &handle)   ---->     usm_ipc_open(&handle, ctx, dev, &p)
 *     ...                                      usm_ipc_close(p, ctx)
 *     usm_ipc_put(&handle, ctx)                (put or free: it cannot be opened
 *                                              any more)
 *
 * A handle identifies block, owner and access rights, and contains a number
 * that the owner keeps in a page that only the owner can write.  Every open
 * compares the two, so a handle is rejected, each case with its own status, if
 * it was put, if its block was freed, if its owner ended or was restarted.
 * Memory that is open stays usable: freeing a block that another process has
 * open is deferred until the last close, or until that process has ended.
 *
 * A handle opens the whole area that its block is in, up to 64 MiB of its pool:
 * use a separate pool for memory that others may not see.  The kernel keeps
 * other users out; libusm does not defend against a hostile process of the same
 * user.
 *
 * Host pools (memory files) and Level Zero's pools (driver handles) can export.
 * OpenCL has no such feature: USM_E_NOT_EXPORTABLE.  The kernel reports the end
 * of a process immediately; libusm polls nothing and leaves nothing in
 * /dev/shm.  File descriptors are passed through a socket of the owner
 * (USM_IPC=channel), or are copied by pidfd_getfd() where the system allows it
 * (USM_IPC=pidfd).
 *
 * All functions are thread-safe, except those of a channel, as said there. */
#ifndef USM_IPC_H
#define USM_IPC_H

#include <usm/types.h>

USM_BEGIN_DECLS

#define USM_IPC_HANDLE_SIZE 192
/** Plain bytes for another process; may be copied.  Their content is private. */
typedef struct usm_ipc_handle {
    uint8_t bytes[USM_IPC_HANDLE_SIZE];
} usm_ipc_handle;

/* ---- memory ----------------------------------------------------------------------- */

/** Makes a handle of the live block that p points into.  p may be an interior
 * pointer: the opened pointer points to the same byte.  Every call makes a new
 * handle, which is put separately.  `ctx` NULL: p's context.
 *   USM_E_NOT_EXPORTABLE   p's pool does not export, or its backend cannot; the
 *                          error message has the remedy
 *   USM_E_INVALID_POINTER  p is not in a live block
 *   USM_E_IMPORTED         p was opened from another process itself */
USM_API USM_NODISCARD usm_status usm_ipc_get(const void *p, usm_context *ctx,
                                             usm_ipc_handle *handle);
/** Called by the owner: the handle cannot be opened any more; pointers that are
 * open stay valid.  Freeing the block has the same effect.
 *   USM_E_STALE   the handle was put, or its block freed
 *   USM_E_HANDLE  the handle is another process's */
USM_API usm_status usm_ipc_put(const usm_ipc_handle *handle, usm_context *ctx);

/** Opens a handle and returns the pointer in this process.  `ctx` NULL: the
 * default context.  `dev` NULL: the context's first device.  The context's
 * backend must be the owner's.  Opening the same block again returns the same
 * pointer and counts; opening it in the owner's own process returns the block
 * itself.
 *   USM_E_HANDLE         not a handle, or changed, cut short, or of another
 *                        version
 *   USM_E_STALE          the handle was put, or its block freed
 *   USM_E_OWNER_GONE     the owner has ended (also if another process has its
 *                        number now)
 *   USM_E_PERMISSION     the owner belongs to another user
 *   USM_E_WRONG_CONTEXT  the memory belongs to another backend than ctx
 *   USM_E_SYSTEM         the owner could not be reached; the error message has the
 *                        reason */
USM_API USM_NODISCARD usm_status usm_ipc_open(const usm_ipc_handle *handle, usm_context *ctx,
                                              usm_device *dev, void **p);
/** Undoes one usm_ipc_open() of p.  After the last one the memory must not be
 * used any more, and no queued command may use it; libusm may keep the mapping
 * for the next open. */
USM_API usm_status usm_ipc_close(void *p, usm_context *ctx);

typedef struct usm_ipc_info {
    size_t   struct_size;
    int      owner;    /**< process number                                                   */
    bool     is_alive; /**< whether the owner still runs; its memory stays valid in any case */
    bool     is_ours;  /**< opened in the owner's own process                                */
    bool     is_writable;
    size_t   size;  /**< bytes from p to the end of the owner's block */
    uint32_t opens; /**< how many times it is open in this process    */
} usm_ipc_info;
#define USM_IPC_INFO_INIT                                                                          \
    {                                                                                              \
        sizeof(usm_ipc_info), 0, false, false, false, 0, 0                                         \
    }
/** Returns information about an opened pointer.
 *   USM_E_INVALID_POINTER  p was not opened, or was closed */
USM_API USM_NODISCARD usm_status usm_ipc_query(const void *p, usm_ipc_info *info);

/** What the process shares at present. */
typedef struct usm_ipc_stats {
    size_t   struct_size;
    uint64_t handles;     /**< handles that were made and not put                       */
    uint64_t opened;      /**< pointers of other processes open here                    */
    uint64_t cached;      /**< areas mapped here in which nothing is open               */
    uint64_t importers;   /**< processes connected to this one                          */
    uint64_t deferred;    /**< blocks freed here that are open elsewhere                */
    uint64_t opens, hits; /**< opens so far, and how many of them found the area mapped */
} usm_ipc_stats;
#define USM_IPC_STATS_INIT                                                                         \
    {                                                                                              \
        sizeof(usm_ipc_stats), 0, 0, 0, 0, 0, 0, 0                                                 \
    }
USM_API USM_NODISCARD usm_status usm_ipc_get_stats(usm_ipc_stats *stats);
/** Unmaps areas in which nothing is open. */
USM_API void usm_ipc_trim(void);

typedef enum usm_ipc_role {
    USM_IPC_OWNER    = 1, /**< it owned memory or events that are open here */
    USM_IPC_IMPORTER = 2, /**< it had memory or events of this process open */
    USM_IPC_MEMBER   = 3  /**< it was a member of a channel                 */
} usm_ipc_role;
/** Called when a process has ended that shared something with this one: once for
 * each role, within 100 ms, on a thread of the library.  It may call any
 * function of libusm. */
typedef void (*usm_ipc_loss_fn)(int pid, usm_ipc_role role, void *user);
/** Sets that function, one for the process; NULL: none. */
USM_API void usm_ipc_on_loss(usm_ipc_loss_fn fn, void *user);

/* ---- events ------------------------------------------------------------------------ */

/** An event that other processes can wait for.  It can be recorded many times;
 * each record starts a new period in which the event is not complete. */
typedef struct usm_ipc_event usm_ipc_event;

/** Creates an event.  `ctx` NULL: the default context; the event works with
 * queues of any context.  The caller owns *ev. */
USM_API USM_NODISCARD usm_status usm_ipc_event_create(usm_context *ctx, usm_ipc_event **ev);
/** Destroys an event, or does nothing if it is NULL.  Other processes that
 * opened it keep it.  A wait for a record that will never come ends with
 * USM_E_OWNER_GONE when the recording process ends. */
USM_API void usm_ipc_event_destroy(usm_ipc_event *ev);
/** Makes a handle for usm_ipc_event_open(), valid as long as ev. */
USM_API USM_NODISCARD usm_status usm_ipc_event_get(usm_ipc_event *ev, usm_ipc_handle *handle);
/** Opens an event of another process.  Statuses as usm_ipc_open().  The caller
 * owns *ev and destroys it like a created one. */
USM_API USM_NODISCARD usm_status usm_ipc_event_open(const usm_ipc_handle *handle, usm_context *ctx,
                                                    usm_ipc_event **ev);

/** Records: the event is complete when the commands submitted to q so far are
 * (in an out-of-order queue: `deps`, or all commands so far if there are none).
 * Any process that has the event may record.  Records may complete in any
 * order; the event completes with the last of them.  If a command failed, this
 * and later waits report USM_E_DEPENDENCY.
 *   USM_E_BUSY  24 processes already record in the event */
USM_API USM_NODISCARD usm_status usm_ipc_event_record(usm_ipc_event *ev, usm_queue *q, size_t ndeps,
                                                      usm_event *const *deps);
/** A record by the host, which is complete at once. */
USM_API usm_status usm_ipc_event_signal(usm_ipc_event *ev);
/** Makes later commands of q wait for all records made before this call by any
 * process; returns at once.  *out completes with those records, or with the
 * failure that usm_ipc_event_sync() would return: a command that must not run
 * after a failure has to depend on it.  `out` may be NULL. */
USM_API USM_NODISCARD usm_status usm_ipc_event_wait(usm_ipc_event *ev, usm_queue *q,
                                                    usm_event **out);
/** Blocks until all records made before this call are complete.  `timeout_ms`
 * UINT32_MAX: no limit.
 *   USM_E_NOT_READY   the time is over
 *   USM_E_OWNER_GONE  a recording process ended before its record was complete
 *   USM_E_DEPENDENCY  a recorded command failed */
USM_API usm_status usm_ipc_event_sync(usm_ipc_event *ev, uint32_t timeout_ms);
/** Returns USM_OK, USM_E_NOT_READY, or a failure as usm_ipc_event_sync(). */
USM_API USM_NODISCARD usm_status usm_ipc_event_query(usm_ipc_event *ev);
/** Returns how many records were made so far, and how many of them are complete:
 * a counter to wait for. */
USM_API USM_NODISCARD usm_status usm_ipc_event_count(usm_ipc_event *ev, uint64_t *made,
                                                     uint64_t *complete);
/** Blocks until at least `complete` records are complete, including records that
 * are yet to be made.  Statuses as usm_ipc_event_sync().
 *   USM_E_OWNER_GONE  also when the creator and all recording processes have
 *                     ended, or all other processes that have the event.
 *                     Therefore the process that others wait for should create it */
USM_API usm_status usm_ipc_event_sync_count(usm_ipc_event *ev, uint64_t complete,
                                            uint32_t timeout_ms);
/** The same for later commands of q, as usm_ipc_event_wait(): the records may
 * still have to be made, by any process.  The library keeps a thread for it
 * until then. */
USM_API USM_NODISCARD usm_status usm_ipc_event_wait_count(usm_ipc_event *ev, uint64_t complete,
                                                          usm_queue *q, usm_event **out);

/* ---- channels ----------------------------------------------------------------------- */

/** A group of processes of this machine that meet under a name to exchange
 * handles and to wait for one another.  One thread at a time may use a channel. */
typedef struct usm_ipc_channel usm_ipc_channel;

/** A barrier between machines, such as MPI_Barrier, which the program provides.
 * One member on each machine calls it when all members of its machine have
 * arrived, before they are released.  If it fails, every member gets that
 * status. */
typedef usm_status (*usm_ipc_across_fn)(void *user);

typedef struct usm_ipc_channel_desc {
    size_t            struct_size;
    const char       *name; /**< of the group, at most 63 bytes; unique on the machine among this
                                 user's groups */
    uint32_t          rank; /**< of this process, 0 .. size - 1 */
    uint32_t          size; /**< members, at most 256           */
    uint32_t          timeout_ms; /**< to wait for the other members; UINT32_MAX: no limit */
    usm_ipc_across_fn across;     /**< NULL: one machine; called by the lowest living rank */
    void             *user;
} usm_ipc_channel_desc;
#define USM_IPC_CHANNEL_DESC_INIT                                                                  \
    {                                                                                              \
        sizeof(usm_ipc_channel_desc), NULL, 0, 1, 30000, NULL, NULL                                \
    }

/** Opens a channel: waits until all members have come.  The caller owns *ch.
 *   USM_E_PEER  not all members came in time, or one ended; the error message
 *               names the ranks
 *   USM_E_BUSY  the rank is taken, or a group with this name and another size is
 *               meeting */
USM_API USM_NODISCARD usm_status usm_ipc_channel_open(const usm_ipc_channel_desc *desc,
                                                      usm_ipc_channel           **ch);
/** Closes a channel, or does nothing if it is NULL.  The other members see it as
 * they see the end of the process, but without a call of usm_ipc_loss_fn. */
USM_API void usm_ipc_channel_close(usm_ipc_channel *ch);
/** Every member contributes `size` bytes (the same for all, at most 4096) and
 * receives those of all members in the order of ranks; for members that have
 * ended, zeros.  It is also a barrier: see usm_ipc_channel_barrier(). */
USM_API usm_status usm_ipc_channel_gather(usm_ipc_channel *ch, const void *mine, size_t size,
                                          void *all);
/** Waits until every living member has arrived (then, with `across`, until the
 * other machines have).
 *   USM_E_PEER  members have ended since the last call; the error message names
 *               them.  All living members get it in the same call, and the next
 *               call works without the members that ended */
USM_API usm_status usm_ipc_channel_barrier(usm_ipc_channel *ch);
/** Returns whether that member has neither ended nor closed its channel, as far
 * as is known now: this may be known before a barrier reports it. */
USM_API bool usm_ipc_channel_is_alive(usm_ipc_channel *ch, uint32_t rank);

USM_END_DECLS
#endif
