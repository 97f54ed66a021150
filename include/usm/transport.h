/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/** @file
 * What a transport is: a table of functions over a place that keeps blocks of
 * bytes: files, the memory of other nodes.  EXPERIMENTAL.
 *
 * A transport stores, fetches and forgets numbered blocks, and knows nothing
 * else of them: checksums, generations, encryption, compression, copies in
 * other fault domains and the choice of numbers lie above it, once
 * (src/spill/tier.h).  A block that was never stored, or was forgotten, has no
 * content; the engine does not fetch it.
 *
 * A store is one opened place.  Rules for every function:
 *  - any thread may call, also several on one store at a time;
 *  - 0 or USM_E_* comes back, outputs are untouched on failure, and the story is
 *    written with api->report.  A place without room is USM_E_SPILL_FULL, a
 *    medium that fails USM_E_IO, a peer that is gone USM_E_IO too;
 *  - nothing polls and nothing waits without an end. */
#ifndef USM_TRANSPORT_H
#define USM_TRANSPORT_H

#include <usm/module.h>
#include <usm/types.h>

USM_BEGIN_DECLS

typedef enum usm_transport_cap {
    USM_TRANSPORT_CAP_HOMES    = 1u << 0, /* params->home: files of the user, in place      */
    USM_TRANSPORT_CAP_REGISTER = 1u << 1, /* register_memory, unregister_memory             */
    USM_TRANSPORT_CAP_PROGRESS = 1u << 2, /* progress, wait_fd: transfers may end only there */
    USM_TRANSPORT_CAP_PLACES   = 1u << 3, /* places, place                                  */
    USM_TRANSPORT_CAP_JOB      = 1u << 4  /* attach to job_describe                         */
} usm_transport_cap;

/** A part of a store that fails apart from the others: one lender of memory. */
typedef enum usm_place_state {
    USM_PLACE_UP   = 1,
    USM_PLACE_SLOW = 2, /**< silent for a while: others are asked first                         */
    USM_PLACE_LOST = 3, /**< with what it held, for good; its number is not used again           */
    USM_PLACE_LEAVING = 4 /**< what it holds can still be fetched; it takes nothing new           */
} usm_place_state;

typedef struct usm_transport_place {
    usm_place_state state;
    char            domain[64]; /**< copies in places of the same name are lost together         */
    uint64_t        capacity;   /**< bytes it holds at most for everybody                        */
    uint64_t        available;  /**< bytes, as far as is known                                    */
} usm_transport_place;

/** A file of the user that a store lies in: block n at offset + n * block_size of it. */
typedef struct usm_transport_home {
    const char *path;
    uint64_t    offset;   /**< bytes; any                                                */
    uint64_t    size;     /**< bytes, of the part that is used; the last block may be cut
                             short: a fetch gives zeros behind, a store leaves them out */
    bool        writable; /**< stores are allowed                                        */
    bool        create;   /**< make the file, or make it longer, so that it has the size */
} usm_transport_home;

typedef struct usm_transport_params {
    size_t              struct_size;
    const usm_host_api *api;
    const char         *config;     /**< behind "name:" in USM_SPILL: "/var/tmp,quota=10G"; or "" */
    size_t              block_size; /**< bytes; a power of two, 4 KiB at least                   */
    const usm_transport_home *home; /**< NULL: scratch space that nobody else sees      */
    /** With PLACES: a place came, or its state changed; may be NULL.  From a thread of the
     * transport, none of its locks held; it may submit transfers, but neither reserve nor close. */
    void (*place_changed)(void *user, uint32_t place, usm_place_state state);
    void *user;
} usm_transport_params;

/** A process of the job as its others see it. */
typedef struct usm_job_member {
    uint32_t        index;
    usm_place_state state;
    bool            is_server; /**< a usm-memd: it lends, and runs none of the program           */
    char            domain[64];
    uint64_t        lends, available; /**< bytes                                                */
    bool            is_mapped; /**< on this host: what it lends is mapped here, and not sent    */
} usm_job_member;

typedef struct usm_job_params {
    size_t      struct_size;
    const void *comm;      /**< the program's communicator (MPI_Comm *); NULL: all that is there */
    size_t      comm_size; /**< sizeof(MPI_Comm) as the program was compiled                     */
    bool        is_server; /**< this process is a usm-memd                                      */
    uint64_t    lend;      /**< bytes; 0: it only borrows                                       */
    const char *domain;    /**< fault domain of this process                                    */
    uint32_t    lease_ms;  /**< a member that is silent for so long is lost                       */
    uint32_t    orphan_ms; /**< what a borrower silent for so long had is freed                   */
    const void *key;       /**< of the job, or NULL                                             */
    size_t      key_size;
    /** Names of servers in launches of their own to join, "NAME,NAME"; of a server itself what it
     * publishes and whom it serves, "NAME[,clients=N][,at_once=N]"; or NULL. */
    const char *join;
    /** Of transports other than MPI: behind "NAME:" of usm_job_join(); or NULL. */
    const char *config;
    /** A message came; a member's state changed.  From one thread of the transport. */
    void (*message)(void *user, uint32_t from, uint32_t tag, const void *data, size_t size);
    void (*member_changed)(void *user, const usm_job_member *member);
    void *user;
} usm_job_params;

typedef enum usm_transfer_op { USM_TRANSFER_FETCH = 1, USM_TRANSFER_STORE = 2 } usm_transfer_op;

/** A part of a block on its way.  The caller's memory until `done` was called.  Where fetch and
 * store of overlapping parts of one block are under way together, the caller gets what he asked
 * for: the engine never does that. */
typedef struct usm_transfer {
    usm_transfer_op op;
    uint64_t        block;
    size_t          offset; /**< in the block, bytes; a multiple of 4 KiB                 */
    size_t          size;   /**< bytes > 0; a multiple of 4 KiB                           */
    void           *data;   /**< aligned to 4 KiB: where the bytes lie at this moment     */
    /** With REGISTER: the same bytes as an offset in registered memory, which stays true after
     * their pages were moved to another address; SIZE_MAX: not in registered memory. */
    size_t registered;
    /** The submitter does nothing else until it has ended: the transport may carry it out within
     * submit(), which spares changes of threads. No lock may be held then. */
    bool is_awaited;
    /** Once per transfer, from any thread, none of the transport's locks held; it may submit
     * other transfers.  A short fetch or store was repeated before: status is all or nothing. */
    void (*done)(struct usm_transfer *t, usm_status status);
    struct usm_transfer *next;      /**< in the list that is submitted; then the transport's */
    uint64_t             opaque[6]; /**< the transport's                                  */
} usm_transfer;

typedef struct usm_transport_capacity {
    uint64_t total;      /**< bytes it may hold (quota, lent memory); UINT64_MAX: not known */
    uint64_t used;       /**< bytes it holds                                              */
    uint64_t available;  /**< bytes that could be reserved now, as far as is known        */
    uint32_t depth;      /**< transfers in flight that serve it best                      */
    size_t   registered; /**< bytes of registered memory                                  */
    bool     is_volatile_memory; /**< another node's memory: its loss is likelier than a disk's */
} usm_transport_capacity;

typedef struct usm_transport_ops {
    uint32_t    abi;         /**< USM_MODULE_ABI of the author's build                   */
    uint32_t    struct_size; /**< sizeof(usm_transport_ops) of the same build            */
    const char *name;        /**< [a-z0-9_], at most 31 bytes, static                    */
    uint32_t    caps;        /**< usm_transport_cap                                      */

    /** USM_E_INVALID: the config does not parse, the folder is RAM (tmpfs): the story has the
     * remedy;  USM_E_IO: the system refused, with its words. */
    usm_status (*open)(const usm_transport_params *params, void **store);
    /** No transfer is under way.  What scratch space held is gone. */
    void (*close)(void *store);
    usm_status (*capacity)(void *store, usm_transport_capacity *capacity);
    /** Room for blocks [first, first + n) is certain from now on, until they are forgotten.
     *   USM_E_SPILL_FULL  quota or medium */
    usm_status (*reserve)(void *store, uint64_t first, uint64_t n);
    /** Their content is dead and their room is given back. */
    void (*forget)(void *store, uint64_t first, uint64_t n);
    /** Starts all transfers of the list (linked by next).  Does not fail, and waits for the medium
     * only for what is_awaited: what goes wrong comes by `done`, possibly before it returns. */
    void (*submit)(void *store, usm_transfer *list);
    /** What `done` reported as stored survives the loss of power. Waits. */
    usm_status (*sync)(void *store);
    /** One line for people: engine, folders, limits. */
    void (*describe)(void *store, char *text, size_t cap);

    /* USM_TRANSPORT_CAP_REGISTER.  One range a store: transfers inside it may be faster. --------
     */
    /** *registered is how many bytes from base on were taken, possibly 0: a limit of the user's
     * (RLIMIT_MEMLOCK) is no failure.  All these pages are brought into memory and stay in use
     * until unregister_memory(): their owner may move them, but not give them back to the system.
     */
    usm_status (*register_memory)(void *store, void *base, size_t size, size_t *registered);
    void (*unregister_memory)(void *store);

    /* USM_TRANSPORT_CAP_PROGRESS: it need not have a thread of its own. ------------------------ */
    /** Lets transfers go on, and waits at most timeout_ms (0: not at all) for one to end. */
    usm_status (*progress)(void *store, uint32_t timeout_ms);
    /** Readable when progress() has something to do; -1: there is none. */
    int (*wait_fd)(void *store);
    /** NULL: never.  True, for as long as the store is open: it has a thread by now, with which
     * transfers end without progress() as well, and any thread may call that. */
    bool (*has_thread)(void *store);

    /* USM_TRANSPORT_CAP_PLACES: block >> 48 is the place of a block. ----------------------------
     */
    /** How many there have been so far; their numbers begin at 0.  May grow while it is open. */
    uint32_t (*places)(void *store);
    usm_status (*place)(void *store, uint32_t place, usm_transport_place *info);

    /* USM_TRANSPORT_CAP_JOB: the processes of a job, which send each other messages and may lend
     * each other memory.  Stores of a job's members lie in each other's memory. ------------------
     */
    /** Collective over the communicator, or over those that params->config means; once a process.
     * Returns what libusm may use MPI for.
     *   USM_E_MPI          no MPI runs, it was finalised, a communicator of another MPI
     *   USM_E_MPI_THREADS  the thread level does not allow what is asked (lending, serving)
     *   USM_E_KEY          the members do not have the same key
     *   USM_E_PEER         one did not come */
    usm_status (*attach)(const usm_job_params *params, void **job);
    /** Not collective: tells the living, waits for nobody dead.  No store is open. */
    void (*detach)(void *job);
    /** The communicator of the program's own processes, without servers of the same launch: into
     * *comm.  Collective over all processes of the launch; before attach(). */
    usm_status (*app_comm)(void *comm, size_t comm_size);
    /** Servers: returns when nobody is left to serve, or *stop was set. */
    usm_status (*serve)(void *job, const volatile int *stop);
    usm_status (*members)(void *job, uint32_t *self, uint32_t *count);
    usm_status (*member)(void *job, uint32_t index, usm_job_member *member);
    /** To one member, in order for one receiver, at most 64 KiB and 64 bytes; copied.  No
     * acknowledgement: what is sent to the lost is lost, and they are told by member_changed. */
    usm_status (*send)(void *job, uint32_t to, uint32_t tag, const void *data, size_t size);
    /** Optional.  What comes from now on may lie for ns nanoseconds until the receiver is told of
     * it, so that nobody need look for it more often; 0: as soon as can be, which is how it begins.
     * A hint, from any thread. */
    void (*set_patience)(void *job, uint64_t ns);
    /** Several lines for people: the MPI, its version, thread level, network components, which
     * deaths this launch survives and the command that would survive more. */
    void (*job_describe)(void *job, char *text, size_t cap);
} usm_transport_ops;

/** The only export of a module, `usm_transport_entry`. */
typedef const usm_transport_ops *usm_transport_entry_fn(const usm_host_api *api);

USM_END_DECLS
#endif
