/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* What the files of the memory side share: pages of anonymous files (guard.c), blocks and the map
 * of addresses (heap.c).  Not for the execution: it has soft.h.
 *
 * All memory is anonymous files (memfd), so that it can be mapped twice and opened by other
 * processes. A large block has a file of its own; small ones are slots of a chunk, whose file they
 * share.
 *
 * One lock, soft_memory_lock, guards the map, the heap and the reservations; that of guard.c is a
 * leaf below it. */
#ifndef ZE_SOFT_MEMORY_H
#define ZE_SOFT_MEMORY_H

#include "soft.h"

#define SOFT_PAGE        ((size_t)4096)
#define SOFT_DEVICE_PAGE ((size_t)65536)   /* of device memory                                 */
#define SOFT_HUGE_PAGE   ((size_t)2 << 20) /* of reservations that large                       */
#define SOFT_SMALL       ((size_t)65536)   /* blocks below it are slots                         */
#define SOFT_NO_SLOT     UINT32_MAX

static inline size_t soft_round_up(size_t n, size_t unit)
{
    return (n + unit - 1) / unit * unit;
}

/* --- pages (guard.c) ------------------------------------------------------------- */

/* Addresses of the program that are open only while a kernel runs. */
typedef struct soft_guarded {
    void                *addr;
    size_t               size;
    struct soft_guarded *prev, *next;
} soft_guarded;

bool soft_guarding(void); /* ZE_SOFT_GUARD */
/* addr[0..size) is mapped, with any rights; from now on they are the guard's affair. */
void soft_guard_add(soft_guarded *range, void *addr, size_t size);
void soft_guard_remove(soft_guarded *range); /* before it is unmapped */

/* Pages of a file, mapped here: once where the program sees them and, when that is closed to it,
 * once more where the driver does. */
typedef struct soft_pages {
    char        *user;
    char        *alias; /* == user when not guarded */
    size_t       size;
    bool         guarded;
    soft_guarded guard;
} soft_pages;

typedef struct soft_extent {
    int      fd;
    uint64_t offset; /* page aligned */
    size_t   size;   /* whole pages  */
} soft_extent;

ze_result_t soft_pages_map(soft_pages *pages, const soft_extent *extent, size_t align, bool guard);
void        soft_pages_unmap(soft_pages *pages);
/* Address space without memory; NULL when there is none.  `hint` may be NULL. */
void *soft_space_reserve(const void *hint, size_t size, size_t align);
void  soft_space_release(void *addr, size_t size);

/* An anonymous file; `kind` goes into its name. */
ze_result_t soft_file_new(const char *kind, size_t size, int *fd);
uint64_t    soft_file_id(int fd); /* its inode; 0: not a file of this kind  */

/* --- shared memory that moves (moving.c) --------------------------------------------- */

bool soft_migrates(void); /* ZE_SOFT_MIGRATE */

/* An allocation: where the program sees it, and both storages one behind the other. */
typedef struct soft_moving {
    char               *user, *alias;
    size_t              size; /* of one storage; 0: the block does not move */
    int                 fd;
    bool                is_on_device, is_resident;
    struct soft_moving *prev, *next;
} soft_moving;

/* `part` is the first storage, `user` where it is mapped. */
ze_result_t soft_moving_add(soft_moving *m, const soft_extent *part, char *user);
void        soft_moving_remove(soft_moving *m); /* before it is unmapped */
void        soft_moving_keep(soft_moving *m, bool is_resident);

/* --- blocks (heap.c) --------------------------------------------------------------- */

typedef enum soft_origin {
    SOFT_OWN,    /* zeMemAlloc*, also of an imported descriptor */
    SOFT_OPENED, /* zeMemOpenIpcHandle                          */
    SOFT_MAPPED  /* zeVirtualMemMap                             */
} soft_origin;

typedef struct soft_chunk soft_chunk;

/* What an address of ours lies in. */
typedef struct soft_block {
    soft_alloc  a;
    soft_origin origin;
    int         fd; /* the file; borrowed from the chunk of a slot or the physical memory mapped */
    uint64_t    file_id;
    uint64_t    offset; /* in the file                                                        */
    soft_chunk *chunk;  /* of a slot, else NULL                                               */
    uint32_t    slot;
    uint32_t    generation; /* of the slot                                                    */
    soft_pages  pages;      /* large and opened ones                                          */
    soft_moving moving;     /* size 0: it does not                                            */
    uint64_t    charged;    /* to the device                                                  */
    int         export_fd;  /* lent to the program; -1: not yet                               */
    uint32_t    sharers;    /* ZE_SOFT_OVERLAP: how many more were given this address         */
    bool        closed;     /* mapped without any right                                          */
    bool        deferred;   /* to be freed once it is not used                                   */
    bool        advised;    /* zeCommandListAppendMemAdvise was called for any of it             */
    bool        resident[SOFT_ROOTS];
    uint32_t    atomics[SOFT_ROOTS];
} soft_block;

typedef struct soft_request {
    soft_context    *ctx;
    soft_device     *dev; /* NULL: none                         */
    ze_memory_type_t type;
    size_t           size, align;
    bool             exported;  /* wants a file of its own            */
    int              import_fd; /* -1: none                           */
} soft_request;

extern pthread_mutex_t soft_memory_lock;

/* The lock is held by the caller of the following. */
ze_result_t soft_block_new(const soft_request *request, soft_block **block);
void        soft_block_free(soft_block *block); /* also takes it out of the map */
soft_block *soft_block_find(const void *p);     /* interior pointers count      */
bool        soft_block_insert(soft_block *block);
void        soft_block_remove(soft_block *block);
/* The n-th block in order of addresses, and where the first one at or after p is. */
soft_block *soft_block_at(size_t n);
size_t      soft_block_index(const void *p);
/* The descriptor that the program may have: one for each block, closed with it; -1: none left. */
int soft_block_export(soft_block *block);
/* The live block that lent fd; NULL: none. */
soft_block *soft_block_lent(int fd);
/* The generation of a slot, read from the file of its chunk. */
bool soft_slot_generation(int fd, uint64_t offset, uint32_t slot, uint32_t *generation);

/* Memory of the device; the context counts as DEVICE_LOST or exhausted. */
ze_result_t soft_charge(soft_device *dev, uint64_t bytes);
void        soft_uncharge(soft_device *dev, uint64_t bytes);

/* --- structures chained to descriptors ------------------------------------------------ */

typedef struct soft_chained {
    ze_structure_type_t stype;
    const void         *pNext;
} soft_chained;

/* The first one of that type in the chain that starts with `next`; NULL: none. */
const void *soft_chain_find(const void *next, ze_structure_type_t type);
/* A chain of a descriptor for zeMemAlloc* or zePhysicalMemCreate. */
ze_result_t soft_chain_external(const void *next, int *import_fd, bool *exported);

#define SOFT_EXTERNAL_TYPES                                                                        \
    ((uint32_t)ZE_EXTERNAL_MEMORY_TYPE_FLAG_OPAQUE_FD |                                            \
     (uint32_t)ZE_EXTERNAL_MEMORY_TYPE_FLAG_DMA_BUF)

#endif
