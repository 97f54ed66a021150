/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/** @file
 * Memory and events between processes of one machine.
 *
 * The owner allocates from a pool that exports (usm_pool_desc.export_mode) and
 * makes a handle of a pointer; the handle is plain bytes of a fixed size that
 * travel as the program likes (a pipe, MPI, a usm_ipc_channel); another process
 * of the same user opens it and gets a pointer to the same memory:
 *
 *     owner                                    importer
 *     usm_ipc_get(p, ctx, &handle)   ---->     usm_ipc_open(&handle, ctx, dev, &p)
 *     ...                                      usm_ipc_close(p, ctx)
 *     usm_ipc_put(&handle, ctx)                (put, free: the handle opens no more)
 *
 * A handle names block, owner and rights, and a number that the owner keeps in
 * a page only it can write: every open compares it, so handles that were put,
 * whose block was freed, whose owner died or started again are refused, each
 * with its own status.  What is open stays usable: freeing a block that is open
 * elsewhere is put off until the last close, or the end of the importer.
 *
 * What a handle opens is the whole area that its block lies in, up to 64 MiB of
 * its pool: give a pool of its own to what others may not see.  The kernel
 * keeps other users out; a hostile process of the same user is out of scope.
 *
 * Memory: host pools (memory files) and Level Zero's (driver handles).  OpenCL
 * has no such thing: USM_E_NOT_EXPORTABLE.  Death of a process is learnt at
 * once, from the kernel; nothing is polled, nothing stays behind in /dev/shm.
 * Descriptors travel through a socket that the owner serves (USM_IPC=channel),
 * or are taken by pidfd_getfd() where the system lets (USM_IPC=pidfd).
 *
 * All functions are thread-safe, a channel's but for what is said there. */
#ifndef USM_IPC_H
#define USM_IPC_H

#include <usm/types.h>

USM_BEGIN_DECLS

#define USM_IPC_HANDLE_SIZE 192
/** Bytes for another process; copy them freely.  What they mean is libusm's. */
typedef struct usm_ipc_handle {
    uint8_t bytes[USM_IPC_HANDLE_SIZE];
} usm_ipc_handle;

/* ---- memory ----------------------------------------------------------------------- */

/** A handle of the live block that p points into (interior pointers count: the opened pointer
 * points to the same byte).  Every call makes a new one, with an end of its own.  `ctx` NULL: p's.
 *   USM_E_NOT_EXPORTABLE   p's pool does not export, or the backend cannot; says what to do
 *   USM_E_INVALID_POINTER  not in a live block;  USM_E_IMPORTED  p was opened itself */
USM_API USM_NODISCARD usm_status usm_ipc_get(const void *p, usm_context *ctx,
                                             usm_ipc_handle *handle);
/** The owner's: the handle opens no more; pointers that are open stay.  Freeing the block does it
 * too.   USM_E_STALE  it was put, or the block freed;  USM_E_HANDLE  it is another process's */
USM_API usm_status usm_ipc_put(const usm_ipc_handle *handle, usm_context *ctx);

/** The pointer in this process.  `ctx` NULL: the default context; `dev` NULL: its first device.
 * Its backend must be the owner's.  A second open of the same block gives the same pointer and
 * counts; opening in the owner's own process gives the block itself.
 *   USM_E_HANDLE        no handle, changed, cut short, or of another version
 *   USM_E_STALE         put, or the block freed
 *   USM_E_OWNER_GONE    the owner has ended (also when another process has its number now)
 *   USM_E_PERMISSION    the owner is another user's
 *   USM_E_WRONG_CONTEXT the memory is another backend's than ctx
 *   USM_E_SYSTEM        the owner could not be reached; says why */
USM_API USM_NODISCARD usm_status usm_ipc_open(const usm_ipc_handle *handle, usm_context *ctx,
                                              usm_device *dev, void **p);
/** Undoes one open; p as usm_ipc_open() gave it.  With the last one the memory is not to be used
 * any more; its mapping may be kept for the next open.  No queued work may use it. */
USM_API usm_status usm_ipc_close(void *p, usm_context *ctx);

typedef struct usm_ipc_info {
    size_t   struct_size;
    int      owner;    /**< process number                                            */
    bool     is_alive; /**< whether the owner still runs; its memory stays either way  */
    bool     is_ours;  /**< opened here in the owner's process                        */
    bool     is_writable;
    size_t   size;  /**< bytes from p to the end of the owner's block                   */
    uint32_t opens; /**< how often it is open here                                      */
} usm_ipc_info;
#define USM_IPC_INFO_INIT                                                                          \
    {                                                                                              \
        sizeof(usm_ipc_info), 0, false, false, false, 0, 0                                         \
    }
/** What an opened pointer is.   USM_E_INVALID_POINTER  p was not opened, or is closed */
USM_API USM_NODISCARD usm_status usm_ipc_query(const void *p, usm_ipc_info *info);

/** What the process shares now. */
typedef struct usm_ipc_stats {
    size_t   struct_size;
    uint64_t handles;     /**< got and not put                                          */
    uint64_t opened;      /**< pointers open here, of other processes                    */
    uint64_t cached;      /**< areas mapped here though nothing of them is open            */
    uint64_t importers;   /**< processes connected to this one                            */
    uint64_t deferred;    /**< blocks freed here that are open elsewhere                   */
    uint64_t opens, hits; /**< opens so far, and those that a mapped area served           */
} usm_ipc_stats;
#define USM_IPC_STATS_INIT                                                                         \
    {                                                                                              \
        sizeof(usm_ipc_stats), 0, 0, 0, 0, 0, 0, 0                                                 \
    }
USM_API USM_NODISCARD usm_status usm_ipc_get_stats(usm_ipc_stats *stats);
/** Gives mappings back that nothing is open in. */
USM_API void usm_ipc_trim(void);

typedef enum usm_ipc_role {
    USM_IPC_OWNER    = 1, /**< of memory or events that are open here                    */
    USM_IPC_IMPORTER = 2, /**< of memory or events of this process                       */
    USM_IPC_MEMBER   = 3  /**< of a channel                                              */
} usm_ipc_role;
/** A process ended that this one shared with: called once a role, within 100 ms, on a thread of
 * the library; it may call any function of libusm. */
typedef void (*usm_ipc_loss_fn)(int pid, usm_ipc_role role, void *user);
/** One function a process; NULL: none. */
USM_API void usm_ipc_on_loss(usm_ipc_loss_fn fn, void *user);

/* ---- events ------------------------------------------------------------------------ */

/** An event that other processes can wait for; many times: each record begins a new turn. */
typedef struct usm_ipc_event usm_ipc_event;

/** `ctx` NULL: the default context; the event goes with queues of any.  Caller owns *ev. */
USM_API USM_NODISCARD usm_status usm_ipc_event_create(usm_context *ctx, usm_ipc_event **ev);
/** NULL is fine.  Others that opened it keep it; what waits for a record that will not come ends
 * with USM_E_OWNER_GONE when the recorder's process ends. */
USM_API void usm_ipc_event_destroy(usm_ipc_event *ev);
/** A handle for usm_ipc_event_open(); valid as long as ev. */
USM_API USM_NODISCARD usm_status usm_ipc_event_get(usm_ipc_event *ev, usm_ipc_handle *handle);
/** Statuses as usm_ipc_open().  Destroyed like one that was created. */
USM_API USM_NODISCARD usm_status usm_ipc_event_open(const usm_ipc_handle *handle, usm_context *ctx,
                                                    usm_ipc_event **ev);

/** Complete when the commands of q so far (out of order: `deps`, or all so far) are.  Any process
 * that has it may record; records complete in any order, and the event with the last.  A failed
 * command completes it with its failure, which waits then tell as USM_E_DEPENDENCY, later ones too.
 *   USM_E_BUSY  24 processes record in it already */
USM_API USM_NODISCARD usm_status usm_ipc_event_record(usm_ipc_event *ev, usm_queue *q, size_t ndeps,
                                                      usm_event *const *deps);
/** A record by the host, complete at once. */
USM_API usm_status usm_ipc_event_signal(usm_ipc_event *ev);
/** Later commands of q wait for all records made before this call, wherever; returns at once.  *out
 * is complete with those records, or with what usm_ipc_event_sync() would say; what must not run
 * after a failure depends on it.  `out` may be NULL. */
USM_API USM_NODISCARD usm_status usm_ipc_event_wait(usm_ipc_event *ev, usm_queue *q,
                                                    usm_event **out);
/** The host waits for all records made before this call; `timeout_ms` UINT32_MAX: without end.
 *   USM_E_NOT_READY   not within that time;  USM_E_OWNER_GONE  a recorder has ended before
 *   USM_E_DEPENDENCY  a recorded command failed */
USM_API usm_status usm_ipc_event_sync(usm_ipc_event *ev, uint32_t timeout_ms);
/** USM_OK, USM_E_NOT_READY, or as usm_ipc_event_sync(). */
USM_API USM_NODISCARD usm_status usm_ipc_event_query(usm_ipc_event *ev);
/** How many records were made so far, and how many of them are complete: a counter to wait for. */
USM_API USM_NODISCARD usm_status usm_ipc_event_count(usm_ipc_event *ev, uint64_t *made,
                                                     uint64_t *complete);
/** The host waits until at least `complete` records are, made or not yet.
 *   USM_E_OWNER_GONE  also when its creator and all that recorded in it have ended, or all others
 *                     that have it: so who is to be waited for had better create it */
USM_API usm_status usm_ipc_event_sync_count(usm_ipc_event *ev, uint64_t complete,
                                            uint32_t timeout_ms);
/** The same for later commands of q, as usm_ipc_event_wait(): nobody needs to know that the records
 * are made.  The process keeps a thread for it until then. */
USM_API USM_NODISCARD usm_status usm_ipc_event_wait_count(usm_ipc_event *ev, uint64_t complete,
                                                          usm_queue *q, usm_event **out);

/* ---- channels ----------------------------------------------------------------------- */

/** A group of processes of this machine that meet under a name to exchange handles, and to wait for
 * one another.  One thread at a time may use a channel. */
typedef struct usm_ipc_channel usm_ipc_channel;

/** Called by one member a machine, between its own members' arrival and their release: waits for
 * the other machines by the caller's own means (MPI_Barrier).  A failure is everybody's answer. */
typedef usm_status (*usm_ipc_across_fn)(void *user);

typedef struct usm_ipc_channel_desc {
    size_t      struct_size;
    const char *name; /**< of the group, at most 63 bytes; of this user, unique on the machine */
    uint32_t    rank; /**< of this process, 0 .. size - 1                            */
    uint32_t    size; /**< members, at most 256                                      */
    uint32_t    timeout_ms;   /**< for the others to come; UINT32_MAX: without end      */
    usm_ipc_across_fn across; /**< NULL: one machine; called by the lowest living rank  */
    void             *user;
} usm_ipc_channel_desc;
#define USM_IPC_CHANNEL_DESC_INIT                                                                  \
    {                                                                                              \
        sizeof(usm_ipc_channel_desc), NULL, 0, 1, 30000, NULL, NULL                                \
    }

/** Waits until all members have come.  Caller owns *ch.
 *   USM_E_PEER  not all came in time, or one ended; names the ranks
 *   USM_E_BUSY  rank is taken, or a group of that name with another size is meeting */
USM_API USM_NODISCARD usm_status usm_ipc_channel_open(const usm_ipc_channel_desc *desc,
                                                      usm_ipc_channel           **ch);
/** NULL is fine.  The others learn of it as of an end of the process, without a loss. */
USM_API void usm_ipc_channel_close(usm_ipc_channel *ch);
/** Every member gives `size` bytes (the same for all, at most 4096) and gets those of all, in the
 * order of ranks; those of members that have ended are zero.  A barrier as well: see there. */
USM_API usm_status usm_ipc_channel_gather(usm_ipc_channel *ch, const void *mine, size_t size,
                                          void *all);
/** Waits until every living member is here (then, with `across`, until other machines are).  When
 * members have ended since the last call, every living member gets USM_E_PEER here, which names
 * them, all of them at the same call; the next call goes on without them. */
USM_API usm_status usm_ipc_channel_barrier(usm_ipc_channel *ch);
/** Whether that member has neither ended nor closed its channel, by now: an end may be known here
 * before a barrier tells of it. */
USM_API bool usm_ipc_channel_is_alive(usm_ipc_channel *ch, uint32_t rank);

USM_END_DECLS
#endif
