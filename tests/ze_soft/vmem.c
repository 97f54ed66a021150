/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Reserved addresses and the physical memory that is mapped there.
 *
 * A physical memory is a file; a reservation is address space; a mapping is a block in the map of
 * addresses (heap.c), so that pointers into it are found as any others.  Each reservation has a
 * second stretch of addresses, its alias, made with the first mapping: what is mapped side by side
 * is side by side there, too, and one copy may run over several mappings.
 *
 * As the specification has it, a read-only mapping need not stop the device: copies write through
 * it all the same.  The host is stopped.
 *
 * Exports the tables VirtualMem and PhysicalMem. */
#include "ipc.h"
#include "memory.h"
#include "tables.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#ifndef MAP_FIXED_NOREPLACE
#define MAP_FIXED_NOREPLACE 0x100000
#endif

#define FLAGS   0x3u
#define ON_HOST 0x2u /* ZE_PHYSICAL_MEM_FLAG_ALLOCATE_ON_HOST, which 1.4 does not have */

typedef struct physical {
    soft_handle      handle;
    struct physical *next;
    soft_context    *ctx;
    soft_device     *dev; /* NULL: of the host */
    size_t           size;
    int              fd;
    uint64_t         file_id;
    uint64_t         charged;
    uint32_t         mapped;
} physical;

typedef struct reservation {
    struct reservation          *next;
    char                        *base, *alias; /* alias: NULL before the first mapping */
    size_t                       size;
    ze_memory_access_attribute_t access; /* of what is not mapped: kept, and means nothing */
} reservation;

typedef struct mapping {
    soft_block                   b; /* first: the map of addresses has it */
    physical                    *from;
    ze_memory_access_attribute_t access;
    bool                         guarded;
    soft_guarded                 guard;
} mapping;

/* guarded by soft_memory_lock */
static physical    *physicals;
static reservation *reservations;

static reservation *reservation_of(const void *p)
{
    reservation *r = reservations;

    while (r != NULL && (uintptr_t)p - (uintptr_t)r->base >= r->size)
        r = r->next;
    return r;
}

bool soft_is_reserved(const void *p)
{
    return reservation_of(p) != NULL;
}

static physical *physical_of(ze_physical_mem_handle_t h)
{
    physical *p = physicals;

    while (p != NULL && (ze_physical_mem_handle_t)p != h)
        p = p->next;
    return p;
}

/* p[0..size) of one reservation; NULL when it is not. */
static reservation *reservation_with(const void *p, size_t size)
{
    reservation *r = reservation_of(p);

    if (r != NULL && size > r->size - ((uintptr_t)p - (uintptr_t)r->base))
        r = NULL;
    return r;
}

static ze_result_t check_range(ze_context_handle_t ctx, const void *p, size_t size)
{
    if (soft_context_of(ctx) == NULL)
        return ZE_RESULT_ERROR_INVALID_NULL_HANDLE;
    if (p == NULL)
        return ZE_RESULT_ERROR_INVALID_NULL_POINTER;
    if (size == 0 || size % SOFT_PAGE != 0)
        return ZE_RESULT_ERROR_UNSUPPORTED_SIZE;
    return (uintptr_t)p % SOFT_PAGE == 0 ? ZE_RESULT_SUCCESS
                                         : ZE_RESULT_ERROR_UNSUPPORTED_ALIGNMENT;
}

/* --- reservations --------------------------------------------------------------------- */

/* Size 0 is an error for the specification, but Intel's tests ask with it. */
static ze_result_t ZE_APICALL soft_zeVirtualMemQueryPageSize(ze_context_handle_t ctx,
                                                             ze_device_handle_t device, size_t size,
                                                             size_t *page)
{
    SOFT_CALL();
    if (soft_context_of(ctx) == NULL || soft_device_of(device) == NULL)
        return ZE_RESULT_ERROR_INVALID_NULL_HANDLE;
    if (page == NULL)
        return ZE_RESULT_ERROR_INVALID_NULL_POINTER;
    *page = size < SOFT_HUGE_PAGE ? SOFT_DEVICE_PAGE : SOFT_HUGE_PAGE;
    return ZE_RESULT_SUCCESS;
}

static void *space_at(const void *start, size_t size)
{
    size_t align = size < SOFT_HUGE_PAGE ? SOFT_DEVICE_PAGE : SOFT_HUGE_PAGE;
    void  *at    = (void *)(uintptr_t)start;

    if (start == NULL || (uintptr_t)start % SOFT_DEVICE_PAGE != 0)
        return soft_space_reserve(NULL, size, align);
    at = mmap(at, size, PROT_NONE,
              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);
    if (at == start)
        return at;
    if (at != MAP_FAILED) /* an old kernel takes the address for a hint */
        soft_space_release(at, size);
    return soft_space_reserve(NULL, size, align);
}

static ze_result_t ZE_APICALL soft_zeVirtualMemReserve(ze_context_handle_t ctx, const void *start,
                                                       size_t size, void **p)
{
    reservation *r;

    SOFT_CALL();
    if (soft_context_of(ctx) == NULL)
        return ZE_RESULT_ERROR_INVALID_NULL_HANDLE;
    if (p == NULL)
        return ZE_RESULT_ERROR_INVALID_NULL_POINTER;
    if (size == 0 || size % SOFT_PAGE != 0)
        return ZE_RESULT_ERROR_UNSUPPORTED_SIZE;
    r = calloc(1, sizeof(*r));
    if (r == NULL)
        return ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    r->size   = size;
    r->access = ZE_MEMORY_ACCESS_ATTRIBUTE_NONE;
    r->base   = space_at(start, size);
    if (r->base == NULL) {
        free(r);
        return ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    }
    pthread_mutex_lock(&soft_memory_lock);
    r->next      = reservations;
    reservations = r;
    pthread_mutex_unlock(&soft_memory_lock);
    soft_live(1);
    *p = r->base;
    return ZE_RESULT_SUCCESS;
}

/* Nothing is there any more; the addresses stay taken. */
static void make_void(char *at, size_t size)
{
    mmap(at, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
}

static void mapping_free(mapping *m)
{
    if (m->guarded)
        soft_guard_remove(&m->guard);
    make_void(m->b.a.base, m->b.a.size);
    make_void(m->b.a.alias, m->b.a.size);
    m->from->mapped--;
    soft_block_remove(&m->b);
    if (m->b.export_fd >= 0 && soft_file_id(m->b.export_fd) == m->b.file_id)
        close(m->b.export_fd);
    free(m);
}

/* The first mapping that ends behind p; NULL when that is at `end` or later. */
static mapping *mapping_from(const void *p, const char *end)
{
    soft_block *b = soft_block_find(p);

    if (b == NULL)
        b = soft_block_at(soft_block_index(p));
    if (b == NULL || (uintptr_t)b->a.base >= (uintptr_t)end)
        return NULL;
    return (mapping *)(void *)b; /* in a reservation there are only mappings */
}

/* Every mapping that p[0..size) touches lies in it. */
static bool covers_whole(const char *p, size_t size)
{
    const char *end   = p + size;
    mapping    *first = mapping_from(p, end);
    soft_block *last  = soft_block_find(end - 1);

    if (first != NULL && (uintptr_t)first->b.a.base < (uintptr_t)p)
        return false;
    return last == NULL || (uintptr_t)last->a.base + last->a.size <= (uintptr_t)end;
}

static void unmap_all(const char *p, size_t size)
{
    mapping *m;

    while ((m = mapping_from(p, p + size)) != NULL)
        mapping_free(m);
}

static ze_result_t unreserve(const void *p, size_t size)
{
    reservation **link = &reservations;
    reservation  *r;

    while (*link != NULL && (*link)->base != p)
        link = &(*link)->next;
    r = *link;
    if (r == NULL || r->size != size)
        return ZE_RESULT_ERROR_INVALID_ARGUMENT;
    unmap_all(r->base, r->size);
    *link = r->next;
    soft_space_release(r->base, r->size);
    if (r->alias != NULL)
        soft_space_release(r->alias, r->size);
    free(r);
    soft_live(-1);
    return ZE_RESULT_SUCCESS;
}

static ze_result_t ZE_APICALL soft_zeVirtualMemFree(ze_context_handle_t ctx, const void *p,
                                                    size_t size)
{
    ze_result_t err = check_range(ctx, p, size);

    soft_enter_free(__func__);
    if (err != ZE_RESULT_SUCCESS)
        return err;
    pthread_mutex_lock(&soft_memory_lock);
    err = unreserve(p, size);
    pthread_mutex_unlock(&soft_memory_lock);
    return err;
}

/* --- physical memory ------------------------------------------------------------------ */

static ze_result_t file_of(const ze_physical_mem_desc_t *desc, int import_fd, int *fd)
{
    off_t end;

    if (import_fd < 0)
        return soft_file_new("ze_soft", desc->size, fd);
    end = lseek(import_fd, 0, SEEK_END);
    if (end < 0 || soft_file_id(import_fd) == 0)
        return ZE_RESULT_ERROR_INVALID_ARGUMENT;
    if (desc->size > (uint64_t)end)
        return ZE_RESULT_ERROR_UNSUPPORTED_SIZE;
    *fd = fcntl(import_fd, F_DUPFD_CLOEXEC, 0);
    return *fd >= 0 ? ZE_RESULT_SUCCESS : ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY;
}

static ze_result_t physical_new(physical *p, const ze_physical_mem_desc_t *desc)
{
    int         import_fd;
    bool        exported;
    ze_result_t err = soft_chain_external(desc->pNext, &import_fd, &exported);

    if (err != ZE_RESULT_SUCCESS)
        return err;
    p->charged = p->dev != NULL && import_fd < 0 ? desc->size : 0;
    if (p->charged != 0)
        err = soft_charge(p->dev, p->charged);
    if (err != ZE_RESULT_SUCCESS)
        return err;
    err = file_of(desc, import_fd, &p->fd);
    if (err != ZE_RESULT_SUCCESS) {
        if (p->charged != 0)
            soft_uncharge(p->dev, p->charged);
        return err;
    }
    p->size    = desc->size;
    p->file_id = soft_file_id(p->fd);
    atomic_store(&p->handle.type, SOFT_PHYSICAL);
    return ZE_RESULT_SUCCESS;
}

static ze_result_t physical_check(const soft_device *dev, const ze_physical_mem_desc_t *desc)
{
    size_t page = dev != NULL ? SOFT_DEVICE_PAGE : SOFT_PAGE;

    if (desc->size == 0 || desc->size % page != 0)
        return ZE_RESULT_ERROR_UNSUPPORTED_SIZE;
    if (dev != NULL && soft_is_lost(dev))
        return ZE_RESULT_ERROR_DEVICE_LOST;
    return ZE_RESULT_SUCCESS;
}

static ze_result_t ZE_APICALL soft_zePhysicalMemCreate(ze_context_handle_t       ctx,
                                                       ze_device_handle_t        device,
                                                       ze_physical_mem_desc_t   *desc,
                                                       ze_physical_mem_handle_t *made)
{
    soft_device *dev = soft_device_of(device);
    physical    *p;
    ze_result_t  err;

    SOFT_CALL();
    if (soft_context_of(ctx) == NULL)
        return ZE_RESULT_ERROR_INVALID_NULL_HANDLE;
    if (desc == NULL || made == NULL)
        return ZE_RESULT_ERROR_INVALID_NULL_POINTER;
    if (desc->flags > FLAGS)
        return ZE_RESULT_ERROR_INVALID_ENUMERATION;
    if ((desc->flags & ON_HOST) != 0)
        dev = NULL;
    else if (dev == NULL)
        return ZE_RESULT_ERROR_INVALID_NULL_HANDLE;
    err = physical_check(dev, desc);
    if (err != ZE_RESULT_SUCCESS)
        return err;
    p = calloc(1, sizeof(*p));
    if (p == NULL)
        return ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    p->ctx = soft_context_of(ctx);
    p->dev = dev;
    err    = physical_new(p, desc);
    if (err != ZE_RESULT_SUCCESS) {
        free(p);
        return err;
    }
    pthread_mutex_lock(&soft_memory_lock);
    p->next   = physicals;
    physicals = p;
    pthread_mutex_unlock(&soft_memory_lock);
    soft_live(1);
    *made = (ze_physical_mem_handle_t)p;
    return ZE_RESULT_SUCCESS;
}

static ze_result_t physical_free(ze_physical_mem_handle_t h)
{
    physical **link = &physicals;
    physical  *p    = physical_of(h);

    if (p == NULL)
        return ZE_RESULT_ERROR_INVALID_ARGUMENT;
    if (p->mapped != 0)
        return ZE_RESULT_ERROR_HANDLE_OBJECT_IN_USE;
    while (*link != p)
        link = &(*link)->next;
    *link = p->next;
    if (p->charged != 0)
        soft_uncharge(p->dev, p->charged);
    atomic_store(&p->handle.type, 0);
    close(p->fd);
    free(p);
    soft_live(-1);
    return ZE_RESULT_SUCCESS;
}

static ze_result_t ZE_APICALL soft_zePhysicalMemDestroy(ze_context_handle_t      ctx,
                                                        ze_physical_mem_handle_t h)
{
    ze_result_t err;

    soft_enter_free(__func__);
    if (soft_context_of(ctx) == NULL || h == NULL)
        return ZE_RESULT_ERROR_INVALID_NULL_HANDLE;
    pthread_mutex_lock(&soft_memory_lock);
    err = physical_free(h);
    pthread_mutex_unlock(&soft_memory_lock);
    return err;
}

/* --- mapping ---------------------------------------------------------------------------- */

static int host_rights(ze_memory_access_attribute_t access)
{
    if (access == ZE_MEMORY_ACCESS_ATTRIBUTE_READWRITE)
        return PROT_READ | PROT_WRITE;
    return access == ZE_MEMORY_ACCESS_ATTRIBUTE_READONLY ? PROT_READ : PROT_NONE;
}

static void set_access(mapping *m, ze_memory_access_attribute_t access)
{
    m->access   = access;
    m->b.closed = access == ZE_MEMORY_ACCESS_ATTRIBUTE_NONE;
    if (m->from->dev == NULL)
        mprotect(m->b.a.base, m->b.a.size, host_rights(access));
}

static bool place(mapping *m, reservation *r, const soft_extent *part)
{
    char *base = m->b.a.base;

    if (r->alias == NULL)
        r->alias = soft_space_reserve(NULL, r->size, SOFT_PAGE);
    if (r->alias == NULL)
        return false;
    m->b.a.alias = r->alias + (base - r->base);
    if (mmap(m->b.a.alias, part->size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, part->fd,
             (off_t)part->offset) == MAP_FAILED)
        return false;
    if (mmap(base, part->size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, part->fd,
             (off_t)part->offset) == MAP_FAILED) {
        make_void(m->b.a.alias, part->size);
        return false;
    }
    return true;
}

static ze_result_t mapping_new(reservation *r, char *base, physical *from, const soft_extent *part,
                               mapping **made)
{
    mapping *m = calloc(1, sizeof(*m));

    if (m == NULL)
        return ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    m->from        = from;
    m->b.a         = (soft_alloc){.base = base,
                                  .size = part->size,
                                  .ctx  = from->ctx,
                                  .dev  = from->dev,
                                  .type = from->dev ? ZE_MEMORY_TYPE_DEVICE : ZE_MEMORY_TYPE_HOST};
    m->b.origin    = SOFT_MAPPED;
    m->b.fd        = from->fd;
    m->b.file_id   = from->file_id;
    m->b.offset    = part->offset;
    m->b.slot      = SOFT_NO_SLOT;
    m->b.export_fd = -1;
    if (!place(m, r, part))
        goto err_mapping;
    if (!soft_block_insert(&m->b))
        goto err_place;
    m->guarded = from->dev != NULL && soft_guarding();
    if (m->guarded)
        soft_guard_add(&m->guard, base, part->size);
    from->mapped++;
    *made = m;
    return ZE_RESULT_SUCCESS;

err_place:
    make_void(base, part->size);
    make_void(m->b.a.alias, part->size);
err_mapping:
    free(m);
    return ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY;
}

static ze_result_t map(const void *p, const soft_extent *range, ze_physical_mem_handle_t h,
                       ze_memory_access_attribute_t access)
{
    reservation *r    = reservation_with(p, range->size);
    physical    *from = physical_of(h);
    char        *base = (char *)(uintptr_t)p;
    size_t       page = from != NULL && from->dev != NULL ? SOFT_DEVICE_PAGE : SOFT_PAGE;
    mapping     *m;
    ze_result_t  err;

    if (r == NULL || from == NULL)
        return ZE_RESULT_ERROR_INVALID_ARGUMENT;
    if (range->size % page != 0)
        return ZE_RESULT_ERROR_UNSUPPORTED_SIZE;
    if ((uintptr_t)p % page != 0 || range->offset % page != 0)
        return ZE_RESULT_ERROR_UNSUPPORTED_ALIGNMENT;
    if (range->offset > from->size || range->size > from->size - range->offset)
        return ZE_RESULT_ERROR_INVALID_ARGUMENT;
    if (mapping_from(p, base + range->size) != NULL)
        return ZE_RESULT_ERROR_INVALID_ARGUMENT;
    err = mapping_new(r, base, from,
                      &(soft_extent){.fd = from->fd, .offset = range->offset, .size = range->size},
                      &m);
    if (err == ZE_RESULT_SUCCESS)
        set_access(m, access);
    return err;
}

static ze_result_t ZE_APICALL soft_zeVirtualMemMap(ze_context_handle_t ctx, const void *p,
                                                   size_t size, ze_physical_mem_handle_t h,
                                                   size_t                       offset,
                                                   ze_memory_access_attribute_t access)
{
    ze_result_t err;

    SOFT_CALL();
    if (h == NULL)
        return ZE_RESULT_ERROR_INVALID_NULL_HANDLE;
    err = check_range(ctx, p, size);
    if (err != ZE_RESULT_SUCCESS)
        return err;
    if ((uint32_t)access > (uint32_t)ZE_MEMORY_ACCESS_ATTRIBUTE_READONLY)
        return ZE_RESULT_ERROR_INVALID_ENUMERATION;
    pthread_mutex_lock(&soft_memory_lock);
    err = map(p, &(soft_extent){.offset = offset, .size = size}, h, access);
    pthread_mutex_unlock(&soft_memory_lock);
    return err;
}

/* Where nothing is mapped there is nothing to do: Intel's tests unmap twice. */
static ze_result_t ZE_APICALL soft_zeVirtualMemUnmap(ze_context_handle_t ctx, const void *p,
                                                     size_t size)
{
    ze_result_t err = check_range(ctx, p, size);

    soft_enter_free(__func__);
    if (err != ZE_RESULT_SUCCESS)
        return err;
    pthread_mutex_lock(&soft_memory_lock);
    if (reservation_with(p, size) != NULL && covers_whole(p, size))
        unmap_all(p, size);
    else
        err = ZE_RESULT_ERROR_INVALID_ARGUMENT;
    pthread_mutex_unlock(&soft_memory_lock);
    return err;
}

/* --- rights -------------------------------------------------------------------------------- */

/* Where nothing is mapped the reservation remembers the rights and gives them back, as Intel's
 * driver does; a mapping brings its own. */
static ze_result_t set_all(const char *p, size_t size, ze_memory_access_attribute_t access)
{
    const char  *end = p + size;
    reservation *r   = reservation_with(p, size);
    mapping     *m;

    if (r == NULL || !covers_whole(p, size))
        return ZE_RESULT_ERROR_INVALID_ARGUMENT;
    if (mapping_from(p, end) == NULL)
        r->access = access;
    while (p < end && (m = mapping_from(p, end)) != NULL) {
        set_access(m, access);
        p = (char *)m->b.a.base + m->b.a.size;
    }
    return ZE_RESULT_SUCCESS;
}

static ze_result_t ZE_APICALL soft_zeVirtualMemSetAccessAttribute(
    ze_context_handle_t ctx, const void *p, size_t size, ze_memory_access_attribute_t access)
{
    ze_result_t err;

    SOFT_CALL();
    err = check_range(ctx, p, size);
    if (err != ZE_RESULT_SUCCESS)
        return err;
    if ((uint32_t)access > (uint32_t)ZE_MEMORY_ACCESS_ATTRIBUTE_READONLY)
        return ZE_RESULT_ERROR_INVALID_ENUMERATION;
    pthread_mutex_lock(&soft_memory_lock);
    err = set_all(p, size, access);
    pthread_mutex_unlock(&soft_memory_lock);
    return err;
}

/* The rights at p, and where they may change: the end of the mapping or of the gap. */
static ze_memory_access_attribute_t access_at(const reservation *r, const char *p, const char **end)
{
    const char *limit = r->base + r->size;
    mapping    *m     = mapping_from(p, limit);

    if (m == NULL || (uintptr_t)m->b.a.base > (uintptr_t)p) {
        *end = m == NULL ? limit : m->b.a.base;
        return r->access;
    }
    *end = (char *)m->b.a.base + m->b.a.size;
    return m->access;
}

static ze_result_t get_access(const char *p, size_t size, ze_memory_access_attribute_t *access,
                              size_t *same)
{
    reservation *r = reservation_with(p, size);
    const char  *limit, *end, *next;

    if (r == NULL)
        return ZE_RESULT_ERROR_INVALID_ARGUMENT;
    limit   = r->base + r->size;
    *access = access_at(r, p, &end);
    while (end < limit && access_at(r, end, &next) == *access)
        end = next;
    *same = (size_t)(end - p);
    return ZE_RESULT_SUCCESS;
}

static ze_result_t ZE_APICALL
soft_zeVirtualMemGetAccessAttribute(ze_context_handle_t ctx, const void *p, size_t size,
                                    ze_memory_access_attribute_t *access, size_t *same)
{
    ze_result_t err;

    SOFT_CALL();
    err = check_range(ctx, p, size);
    if (err != ZE_RESULT_SUCCESS)
        return err;
    if (access == NULL || same == NULL)
        return ZE_RESULT_ERROR_INVALID_NULL_POINTER;
    pthread_mutex_lock(&soft_memory_lock);
    err = get_access(p, size, access, same);
    pthread_mutex_unlock(&soft_memory_lock);
    return err;
}

SOFT_TABLE(zeGetVirtualMemProcAddrTable, ze_virtual_mem_dditable_t)
{
    SOFT_TABLE_CHECK();
    SOFT_FIELD(1, 0, pfnReserve, soft_zeVirtualMemReserve);
    SOFT_FIELD(1, 0, pfnFree, soft_zeVirtualMemFree);
    SOFT_FIELD(1, 0, pfnQueryPageSize, soft_zeVirtualMemQueryPageSize);
    SOFT_FIELD(1, 0, pfnMap, soft_zeVirtualMemMap);
    SOFT_FIELD(1, 0, pfnUnmap, soft_zeVirtualMemUnmap);
    SOFT_FIELD(1, 0, pfnSetAccessAttribute, soft_zeVirtualMemSetAccessAttribute);
    SOFT_FIELD(1, 0, pfnGetAccessAttribute, soft_zeVirtualMemGetAccessAttribute);
    return ZE_RESULT_SUCCESS;
}

SOFT_TABLE(zeGetPhysicalMemProcAddrTable, ze_physical_mem_dditable_t)
{
    SOFT_TABLE_CHECK();
    SOFT_FIELD(1, 0, pfnCreate, soft_zePhysicalMemCreate);
    SOFT_FIELD(1, 0, pfnDestroy, soft_zePhysicalMemDestroy);
    return ZE_RESULT_SUCCESS;
}
