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
    USM_TRANSPORT_CAP_PROGRESS = 1u << 2, /* progress, wait_fd: transfers end only in there */
    USM_TRANSPORT_CAP_DOMAINS  = 1u << 3, /* domains, domain_of                             */
    USM_TRANSPORT_CAP_MESSAGES = 1u << 4  /* send, receive                                  */
} usm_transport_cap;

/** A file of the user that a store lies in: block n at offset + n * block_size of it. */
typedef struct usm_transport_home {
    const char *path;
    uint64_t    offset; /**< bytes; any                                                */
    uint64_t    size;   /**< bytes, of the part that is used; the last block may be cut
                             short: a fetch gives zeros behind, a store leaves them out */
    bool writable;      /**< stores are allowed                                        */
    bool create;        /**< make the file, or make it longer, so that it has the size */
} usm_transport_home;

typedef struct usm_transport_params {
    size_t              struct_size;
    const usm_host_api *api;
    const char         *config;     /**< behind "name:" in USM_SPILL: "/var/tmp,quota=10G"; or "" */
    size_t              block_size; /**< bytes; a power of two, 4 KiB at least                   */
    const usm_transport_home *home; /**< NULL: scratch space that nobody else sees      */
} usm_transport_params;

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

    /* USM_TRANSPORT_CAP_PROGRESS: it has no thread of its own. --------------------------------- */
    /** Lets transfers go on, and waits at most timeout_ms (0: not at all) for one to end. */
    usm_status (*progress)(void *store, uint32_t timeout_ms);
    /** Readable when progress() has something to do; -1: there is none. */
    int (*wait_fd)(void *store);

    /* USM_TRANSPORT_CAP_DOMAINS: blocks lie in places that fail apart. ------------------------- */
    uint32_t (*domains)(void *store);
    /** Asks for a place by the high 16 bits of the block's number: block >> 48 is the domain. */
    usm_status (*domain_name)(void *store, uint32_t domain, char *name, size_t cap);

    /* USM_TRANSPORT_CAP_MESSAGES: tagged messages between members. ----------------------------- */
    usm_status (*members)(void *store, uint32_t *self, uint32_t *count);
    usm_status (*send)(void *store, uint32_t to, uint32_t tag, const void *data, size_t size);
    /** Calls fn for each message of the tag as it comes, from one thread. */
    usm_status (*receive)(void *store, uint32_t tag,
                          void (*fn)(void *arg, uint32_t from, const void *data, size_t size),
                          void *arg);
} usm_transport_ops;

/** The only export of a module, `usm_transport_entry`. */
typedef const usm_transport_ops *usm_transport_entry_fn(const usm_host_api *api);

USM_END_DECLS
#endif
