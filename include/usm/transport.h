/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/** @file
 * The interface of transport modules: a table of functions over a store that
 * keeps blocks of bytes, such as files or the memory of other nodes.
 * EXPERIMENTAL.
 *
 * A transport stores, fetches and forgets numbered blocks, and knows nothing
 * else about them.  Checksums, generations, encryption, compression, replicas
 * in other fault domains and the choice of block numbers are implemented once,
 * in the spill engine above it (src/spill/tier.h).  A block that was never
 * stored, or was forgotten, has no content; the engine does not fetch it.
 *
 * A store is one opened instance.  Rules for every function:
 *  - Any thread may call, several of them on one store at the same time.
 *  - The result is 0 or USM_E_*.  On failure outputs are untouched and the error
 *    message was stored with api->report.  A store without room is
 *    USM_E_SPILL_FULL; a medium that fails, or a peer that is gone, is USM_E_IO.
 *  - No function polls, and none waits without a limit. */
#ifndef USM_TRANSPORT_H
#define USM_TRANSPORT_H

#include <usm/module.h>
#include <usm/types.h>

USM_BEGIN_DECLS

typedef enum usm_transport_cap {
    USM_TRANSPORT_CAP_HOMES    = 1u << 0, /* params->home: files of the user, in place       */
    USM_TRANSPORT_CAP_REGISTER = 1u << 1, /* register_memory, unregister_memory              */
    USM_TRANSPORT_CAP_PROGRESS = 1u << 2, /* progress, wait_fd: transfers may end only there */
    USM_TRANSPORT_CAP_PLACES   = 1u << 3, /* places, place: replica targets                  */
    USM_TRANSPORT_CAP_JOB      = 1u << 4, /* attach to job_describe                          */
    USM_TRANSPORT_CAP_OBJECTS  = 1u << 5, /* objects_open to object_write: values by name    */
    USM_TRANSPORT_CAP_SPREADS  = 1u << 6  /* with PLACES: may be opened without place_changed.
                                             Then it has one place, and spreads blocks itself */
} usm_transport_cap;

/** State of a replica target ("place"): a part of a store that fails
 * independently of the others, such as the memory of one lender. */
typedef enum usm_place_state {
    USM_PLACE_UP      = 1,
    USM_PLACE_SLOW    = 2, /**< silent for a while: others are asked first                  */
    USM_PLACE_LOST    = 3, /**< lost for good, with all it held; its number is never reused */
    USM_PLACE_LEAVING = 4  /**< its blocks can still be fetched; it accepts no new ones     */
} usm_place_state;

typedef struct usm_transport_place {
    usm_place_state state;
    char            domain[64]; /**< replica targets with the same name fail together */
    uint64_t        capacity;   /**< most bytes that it holds, for all users          */
    uint64_t        available;  /**< bytes, as far as is known                        */
} usm_transport_place;

/** A file of the user as backing store ("home"): block n is at offset + n *
 * block_size in the file. */
typedef struct usm_transport_home {
    const char *path;
    uint64_t    offset;   /**< bytes; any number */
    uint64_t    size;     /**< bytes of the part that is used; the last block may be cut short: a
                               fetch fills the rest with zeros, a store leaves it out */
    bool        writable; /**< stores are allowed                        */
    bool        create;   /**< create the file, or extend it to the size */
} usm_transport_home;

typedef struct usm_transport_params {
    size_t                    struct_size;
    const usm_host_api       *api;
    const char               *config;     /**< the text behind "name:" in USM_SPILL:
                                               "/var/tmp,quota=10G"; or "" */
    size_t                    block_size; /**< bytes; a power of two, 4 KiB at least     */
    const usm_transport_home *home;       /**< NULL: scratch space that nobody else sees */
    /** With PLACES: a replica target was added, or its state changed; may be
     * NULL. Called from a thread of the transport that holds none of its locks.
     * It may submit transfers, but neither reserve nor close. */
    void (*place_changed)(void *user, uint32_t place, usm_place_state state);
    void *user;
} usm_transport_params;

/** A member of the job, as the other members see it. */
typedef struct usm_job_member {
    uint32_t        index;
    usm_place_state state;
    bool            is_server; /**< a usm-memd: it lends memory, and does not run the program */
    char            domain[64];
    uint64_t        lends, available; /**< bytes */
    bool            is_mapped; /**< on this host: the memory it lends is mapped here, so nothing
                                    is sent */
} usm_job_member;

typedef struct usm_job_params {
    size_t      struct_size;
    const void *comm;      /**< the program's communicator (MPI_Comm *); NULL: all processes   */
    size_t      comm_size; /**< sizeof(MPI_Comm) when the program was compiled                 */
    bool        is_server; /**< this process is a usm-memd                                     */
    uint64_t    lend;      /**< bytes; 0: this process only borrows                            */
    const char *domain;    /**< fault domain of this process                                   */
    uint32_t    lease_ms;  /**< a member that is silent for that long is lost                  */
    uint32_t    orphan_ms; /**< memory of a borrower that is silent for that long is reclaimed */
    const void *key;       /**< of the job; or NULL                                            */
    size_t      key_size;
    /** For transports other than MPI: the text behind "NAME:" in usm_job_join().
     * Or NULL. */
    const char *config;
    /** Called for a message, and when a member's state has changed; always from
     * the same thread of the transport. */
    void (*message)(void *user, uint32_t from, uint32_t tag, const void *data, size_t size);
    void (*member_changed)(void *user, const usm_job_member *member);
    void *user;
} usm_job_params;

typedef enum usm_transfer_op { USM_TRANSFER_FETCH = 1, USM_TRANSFER_STORE = 2 } usm_transfer_op;

/** A transfer of a part of a block.  It belongs to the caller until `done` is
 * called.  The engine never has a fetch and a store of overlapping parts of one
 * block in progress at the same time; the transport need not order them. */
typedef struct usm_transfer {
    usm_transfer_op op;
    uint64_t        block;
    size_t          offset; /**< in the block, bytes; a multiple of 4 KiB           */
    size_t          size;   /**< bytes > 0; a multiple of 4 KiB                     */
    void           *data;   /**< aligned to 4 KiB: the present address of the bytes */
    /** With REGISTER: the offset of the same bytes in registered memory, which
     * stays valid when their pages are moved to another address.  SIZE_MAX:
     * they are not in registered memory. */
    size_t registered;
    /** The submitter does nothing else until the transfer has ended.  The
     * transport may therefore execute it within submit(), which saves thread
     * switches; then the submitter must not hold a lock. */
    bool is_awaited;
    /** Called once per transfer, from any thread that holds none of the
     * transport's locks; it may submit other transfers.  The transport has
     * repeated partial fetches and stores: status is for all bytes or none. */
    void (*done)(struct usm_transfer *t, usm_status status);
    struct usm_transfer *next;      /**< in the submitted list; then for the transport */
    uint64_t             opaque[6]; /**< for the transport                             */
} usm_transfer;

typedef struct usm_transport_capacity {
    uint64_t total;      /**< most bytes it may hold (quota, lent memory); UINT64_MAX: unknown */
    uint64_t used;       /**< bytes it holds                                                   */
    uint64_t available;  /**< bytes that could be reserved now, as far as is known             */
    uint32_t depth;      /**< the best number of transfers in flight                           */
    size_t   registered; /**< bytes of registered memory                                       */
    bool     is_volatile_memory; /**< memory of another node: more likely to be lost than a disk */
} usm_transport_capacity;

typedef struct usm_transport_ops {
    uint32_t    abi;         /**< USM_MODULE_ABI of the author's build        */
    uint32_t    struct_size; /**< sizeof(usm_transport_ops) of the same build */
    const char *name;        /**< [a-z0-9_], at most 31 bytes, static         */
    uint32_t    caps;        /**< usm_transport_cap                           */

    /** Opens a store.
     *   USM_E_INVALID  the config does not parse, or the folder is in RAM (tmpfs); the
     *                  error message has the remedy
     *   USM_E_IO       the system refused; the error message has its reason */
    usm_status (*open)(const usm_transport_params *params, void **store);
    /** Closes a store.  No transfer is in progress.  The content of scratch
     * space is lost. */
    void (*close)(void *store);
    usm_status (*capacity)(void *store, usm_transport_capacity *capacity);
    /** Reserves room for blocks [first, first + n), which is guaranteed until
     * they are forgotten.
     *   USM_E_SPILL_FULL  the quota or the medium is exhausted */
    usm_status (*reserve)(void *store, uint64_t first, uint64_t n);
    /** Drops the blocks' content and releases their room. */
    void (*forget)(void *store, uint64_t first, uint64_t n);
    /** Starts all transfers of the list, which is linked by `next`.  It does not
     * fail: failures are reported by `done`, possibly before it returns.  It
     * waits for the medium only for transfers with is_awaited. */
    void (*submit)(void *store, usm_transfer *list);
    /** Waits until all stores that `done` has reported would survive a loss of
     * power. */
    usm_status (*sync)(void *store);
    /** Writes one line for people: engine, folders, limits. */
    void (*describe)(void *store, char *text, size_t cap);

    /* USM_TRANSPORT_CAP_REGISTER.  One range per store, within which transfers
     * may be faster. */
    /** Registers memory.  *registered is the number of bytes, from base on, that
     * were registered; it may be 0: a limit of the user (RLIMIT_MEMLOCK) is not
     * a failure.  All these pages are loaded and stay in use until
     * unregister_memory(): their owner may move them, but must not return them
     * to the system. */
    usm_status (*register_memory)(void *store, void *base, size_t size, size_t *registered);
    void (*unregister_memory)(void *store);

    /* USM_TRANSPORT_CAP_PROGRESS: the transport need not have a thread of its
     * own. */
    /** Lets transfers progress, and waits at most timeout_ms (0: not at all)
     * until one has ended. */
    usm_status (*progress)(void *store, uint32_t timeout_ms);
    /** A descriptor that is readable when progress() has something to do; -1:
     * none. */
    int (*wait_fd)(void *store);
    /** NULL: never.  Returns whether the store has a thread by now; once true,
     * always true.  Then transfers also end without progress(), and any thread
     * may call progress(). */
    bool (*has_thread)(void *store);

    /* USM_TRANSPORT_CAP_PLACES: block >> 48 is the number of the block's
     * replica target. */
    /** Returns how many replica targets there have been so far; their numbers
     * begin at 0.  It may grow while the store is open. */
    uint32_t (*places)(void *store);
    usm_status (*place)(void *store, uint32_t place, usm_transport_place *info);

    /* USM_TRANSPORT_CAP_JOB: the processes of a job, which send each other
     * messages and may lend each other memory.  Stores of a job's members keep
     * their blocks in each other's memory. */
    /** Joins a job.  Collective over the communicator, or over the processes
     * that params->config names; once per process.
     *   USM_E_MPI          MPI is not initialised, or was finalised, or the
     *                      communicator belongs to another MPI
     *   USM_E_MPI_THREADS  the thread level does not allow what is asked (lending,
     *                      serving)
     *   USM_E_KEY          the members have different keys
     *   USM_E_PEER         a member did not come */
    usm_status (*attach)(const usm_job_params *params, void **job);
    /** Leaves the job.  Not collective: notifies the living members, and does
     * not wait for dead ones.  Transfers of stores that are still open fail
     * from then on.  is_final: the program ends; a process that lends first
     * serves the living members until they need nothing more. */
    void (*detach)(void *job, bool is_final);
    /** Sets *comm to a communicator of the program's own processes, without the
     * servers of the same launch.  Collective over all processes of the launch;
     * before attach(). */
    usm_status (*app_comm)(void *comm, size_t comm_size);
    /** For servers: returns when there is no member left to serve, or when *stop
     * is set. */
    usm_status (*serve)(void *job, const volatile int *stop);
    usm_status (*members)(void *job, uint32_t *self, uint32_t *count);
    usm_status (*member)(void *job, uint32_t index, usm_job_member *member);
    /** Sends a message of at most 64 KiB and 64 bytes to one member; the data is
     * copied.  Messages to one receiver arrive in order.  There is no
     * acknowledgement: a message to a lost member is lost, and member_changed
     * reports the loss. */
    usm_status (*send)(void *job, uint32_t to, uint32_t tag, const void *data, size_t size);
    /** Optional, a hint, from any thread.  Messages that arrive from now on may
     * be delivered up to ns nanoseconds late, so that nothing has to look for
     * messages more often; 0, the initial value: as soon as possible. */
    void (*set_patience)(void *job, uint64_t ns);
    /** Writes several lines for people: the MPI, its version, thread level and
     * network components, which failures of processes this launch survives, and
     * the launcher that would survive more. */
    void (*job_describe)(void *job, char *text, size_t cap);

    /* USM_TRANSPORT_CAP_OBJECTS: values of any size under names that the user
     * chooses, which other programs have written or will read.  One thread at a
     * time may use what objects_open() gave; each call waits. */
    /** Connects.  Of `params` api and config are used, the rest may be 0.
     *   USM_E_INVALID  the config does not parse
     *   USM_E_IO       no server of it can be used; the error message has its reason
     *   USM_E_KEY      the password is refused, or one is needed */
    usm_status (*objects_open)(const usm_transport_params *params, void **objects);
    void (*objects_close)(void *objects);
    /** USM_E_IO: there is no value of that name, or the server cannot be used. */
    usm_status (*object_size)(void *objects, const char *name, uint64_t *size);
    /** Reads a value wholly.  USM_E_IO: also if it has another size, or was changed
     * meanwhile; then the bytes at `data` are indeterminate. */
    usm_status (*object_read)(void *objects, const char *name, void *data, size_t size);
    /** Replaces the value of that name, or makes one: others see the old value or
     * all of the new one. */
    usm_status (*object_write)(void *objects, const char *name, const void *data, size_t size);
} usm_transport_ops;

/** The only symbol that a transport module exports: `usm_transport_entry`. */
typedef const usm_transport_ops *usm_transport_entry_fn(const usm_host_api *api);

USM_END_DECLS
#endif
