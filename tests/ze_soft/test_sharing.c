/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* What the software Level Zero driver promises of memory that others see: handles for other
 * processes, descriptors, and physical memory mapped to reserved addresses; through the real
 * loader. Run by ctest with ZE_ENABLE_ALT_DRIVERS naming the driver, with and without the
 * validation layer. */
#include "test_memory.h"

/* --- other processes
 * --------------------------------------------------------------------------------------- */

static ze_ipc_mem_handle_t handle_of(const void *p)
{
    ze_ipc_mem_handle_t h;

    OK(zeMemGetIpcHandle(ctx, p, &h));
    return h;
}

static void put_in_environment(const char *variable, const ze_ipc_mem_handle_t *h)
{
    char text[2 * sizeof(*h) + 1];

    for (size_t i = 0; i < sizeof(*h); i++)
        (void)snprintf(text + 2 * i, 3, "%02x", (unsigned)(unsigned char)h->data[i]);
    CHECK(setenv(variable, text, 1) == 0);
}

static ze_ipc_mem_handle_t from_environment(const char *variable)
{
    const char         *text = getenv(variable);
    ze_ipc_mem_handle_t h;

    CHECK(text != NULL && strlen(text) == 2 * sizeof(h));
    for (size_t i = 0; i < sizeof(h); i++) {
        char digits[3] = {text[2 * i], text[2 * i + 1], '\0'};

        h.data[i] = (char)strtoul(digits, NULL, 16);
    }
    return h;
}

static void child_open(void)
{
    ze_ipc_mem_handle_t h    = from_environment("TEST_HANDLE");
    size_t              size = (size_t)strtoul(getenv("TEST_SIZE"), NULL, 10);
    void               *p    = NULL;
    size_t              known;

    OK(zeMemOpenIpcHandle(ctx, devices[1], h, 0, &p));
    OK(zeMemGetAddressRange(ctx, p, NULL, &known));
    CHECK_INT(known, size);
    CHECK(is_filled(p, 0x5a, size));
    fill(p, 0xa5, size);
    OK(zeMemCloseIpcHandle(ctx, p));
}

static void another_process_opens_memory(void)
{
    static const size_t sizes[] = {1, 100, KIB(60), KIB(64), MIB(3)};

    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
        for (int k = 0; k < 2; k++) { /* host, device */
            char                text[32];
            void               *p = NULL;
            ze_ipc_mem_handle_t h;

            OK(kinds[k](sizes[i], 0, &p));
            fill(p, 0x5a, sizes[i]);
            h = handle_of(p);
            put_in_environment("TEST_HANDLE", &h);
            (void)snprintf(text, sizeof(text), "%zu", sizes[i]);
            CHECK_INT(spawn("open", "TEST_SIZE", text), 0);
            CHECK(is_filled(p, 0xa5, sizes[i]));
            OK(zeMemFree(ctx, p));
        }
}

static void child_refused(void)
{
    ze_ipc_mem_handle_t h = from_environment("TEST_HANDLE");
    void               *p = NULL;

    FAILS(INVALID_ARGUMENT, zeMemOpenIpcHandle(ctx, devices[0], h, 0, &p));
    CHECK(p == NULL);
}

/* What is stale here is stale in any process. */
static void expect_refused(const ze_ipc_mem_handle_t *h)
{
    void *p = NULL;

    FAILS(INVALID_ARGUMENT, zeMemOpenIpcHandle(ctx, devices[0], *h, 0, &p));
    CHECK(p == NULL);
    put_in_environment("TEST_HANDLE", h);
    CHECK_INT(spawn("refused", "TEST_SIZE", "0"), 0);
}

static void stale_handles_are_refused(void)
{
    static const size_t sizes[] = {100, MIB(1)};

    for (int i = 0; i < 2; i++) {
        void               *p = device_memory(sizes[i]);
        ze_ipc_mem_handle_t h = handle_of(p);
        void               *again;

        OK(zeMemFree(ctx, p));
        expect_refused(&h);
        again = device_memory(sizes[i]); /* perhaps at the same place */
        (void)handle_of(again);
        expect_refused(&h);
        OK(zeMemFree(ctx, again));
    }
}

static void forged_handles_are_refused(void)
{
    void               *p     = device_memory(MIB(1));
    ze_ipc_mem_handle_t h     = handle_of(p);
    ze_ipc_mem_handle_t other = {{0}};

    expect_refused(&other);
    memset(&other, 0xff, sizeof(other));
    expect_refused(&other);
    for (size_t i = sizeof(int); i < sizeof(h); i += 5) {
        other = h;
        other.data[i] ^= 0x10;
        expect_refused(&other);
    }
    other = h;
    memset(&other.data[32], 0, sizeof(other) - 32); /* cut short */
    expect_refused(&other);
    OK(zeMemFree(ctx, p));
}

/* Writes its handle to where the parent reads it, and is gone. */
static void child_dies(void)
{
    void               *p = device_memory(MIB(1));
    ze_ipc_mem_handle_t h = handle_of(p);

    CHECK(write(STDOUT_FILENO, &h, sizeof(h)) == (ssize_t)sizeof(h));
    _exit(0);
}

static void the_handle_of_a_dead_process_is_refused(void)
{
    int                 ends[2], out = dup(STDOUT_FILENO);
    ze_ipc_mem_handle_t h;

    (void)fflush(stdout);
    CHECK(pipe(ends) == 0 && dup2(ends[1], STDOUT_FILENO) == STDOUT_FILENO);
    CHECK_INT(spawn("dies", "TEST_SIZE", "0"), 0);
    CHECK(dup2(out, STDOUT_FILENO) == STDOUT_FILENO);
    CHECK(read(ends[0], &h, sizeof(h)) == (ssize_t)sizeof(h));
    (void)close(ends[0]);
    (void)close(ends[1]);
    (void)close(out);
    expect_refused(&h);
}

static void each_opening_is_a_pointer_of_its_own(void)
{
    static const size_t sizes[] = {100, MIB(1)};

    for (int i = 0; i < 2; i++) {
        char               *p = device_memory(sizes[i]);
        ze_ipc_mem_handle_t h = handle_of(p);
        void               *a = NULL, *b = NULL, *next;

        OK(zeMemOpenIpcHandle(ctx, devices[0], h, 0, &a));
        OK(zeMemOpenIpcHandle(ctx, devices[0], h, 0, &b));
        CHECK(a != b && a != p && b != p);
        fill(p, 7, sizes[i]);
        CHECK(is_filled(a, 7, sizes[i]));
        FAILS(INVALID_ARGUMENT, zeMemFree(ctx, a));
        FAILS(INVALID_ARGUMENT, zeMemCloseIpcHandle(ctx, p));
        OK(zeMemFree(ctx, p)); /* what is open lives on */
        next = device_memory(sizes[i]);
        fill(next, 8, sizes[i]);
        CHECK(is_filled(b, 7, sizes[i]));
        OK(zeMemFree(ctx, next));
        OK(zeMemCloseIpcHandle(ctx, a));
        OK(zeMemCloseIpcHandle(ctx, b));
        FAILS(INVALID_ARGUMENT, zeMemCloseIpcHandle(ctx, b));
    }
}

/* Programs for Intel's driver send the descriptor that a handle starts with through a socket, and
 * put the number that came out in its place. */
static void a_descriptor_sent_along_opens_a_handle(void)
{
    static const size_t sizes[] = {100, MIB(1)};

    for (int i = 0; i < 2; i++) {
        void               *p = device_memory(sizes[i]), *q = NULL;
        ze_ipc_mem_handle_t h = handle_of(p);
        int                 fd, sent;

        memcpy(&fd, h.data, sizeof(fd));
        sent = dup(fd);
        CHECK(sent >= 0);
        memcpy(h.data, &sent, sizeof(sent));
        fill(p, 7, sizes[i]);
        OK(zeMemOpenIpcHandle(ctx, devices[0], h, 0, &q));
        CHECK(is_filled(q, 7, sizes[i]));
        OK(zeMemCloseIpcHandle(ctx, q));
        OK(zeMemFree(ctx, p));
        CHECK(fcntl(fd, F_GETFD) < 0); /* the driver's own is closed with its block */
        CHECK(close(sent) == 0);
        expect_refused(&h);
    }
}

static void handles_are_of_whole_blocks(void)
{
    char               *p = device_memory(1000);
    ze_ipc_mem_handle_t h;
    int                 x = 0;

    FAILS(INVALID_ARGUMENT, zeMemGetIpcHandle(ctx, p + 8, &h));
    FAILS(INVALID_ARGUMENT, zeMemGetIpcHandle(ctx, &x, &h));
    FAILS(INVALID_NULL_POINTER, zeMemGetIpcHandle(ctx, NULL, &h));
    OK(zeMemFree(ctx, p));
    OK(alloc_shared(1000, 0, (void **)&p));
    FAILS(INVALID_ARGUMENT, zeMemGetIpcHandle(ctx, p, &h));
    OK(zeMemFree(ctx, p));
}

/* --- descriptors
 * -------------------------------------------------------------------------------------------- */

static int exported(const void *p)
{
    ze_external_memory_export_fd_t    to = {.stype = ZE_STRUCTURE_TYPE_EXTERNAL_MEMORY_EXPORT_FD,
                                            .flags = ZE_EXTERNAL_MEMORY_TYPE_FLAG_DMA_BUF,
                                            .fd    = -1};
    ze_memory_allocation_properties_t a  = {.stype = ZE_STRUCTURE_TYPE_MEMORY_ALLOCATION_PROPERTIES,
                                            .pNext = &to};

    OK(zeMemGetAllocProperties(ctx, p, &a, NULL));
    return to.fd;
}

static void *exportable(size_t size)
{
    ze_external_memory_export_desc_t ext  = {.stype = ZE_STRUCTURE_TYPE_EXTERNAL_MEMORY_EXPORT_DESC,
                                             .flags = ZE_EXTERNAL_MEMORY_TYPE_FLAG_DMA_BUF};
    ze_device_mem_alloc_desc_t       desc = {.stype = ZE_STRUCTURE_TYPE_DEVICE_MEM_ALLOC_DESC,
                                             .pNext = &ext};
    void                            *p    = NULL;

    OK(zeMemAllocDevice(ctx, &desc, size, 1, devices[0], &p));
    return p;
}

static ze_result_t import(int fd, uint32_t flags, size_t size, void **p)
{
    ze_external_memory_import_fd_t from = {
        .stype = ZE_STRUCTURE_TYPE_EXTERNAL_MEMORY_IMPORT_FD, .flags = flags, .fd = fd};
    ze_device_mem_alloc_desc_t desc = {.stype = ZE_STRUCTURE_TYPE_DEVICE_MEM_ALLOC_DESC,
                                       .pNext = &from};

    return zeMemAllocDevice(ctx, &desc, size, 1, devices[0], p);
}

static void memory_is_exported_as_a_descriptor(void)
{
    char          *p    = exportable(1024);
    int            fd   = exported(p);
    unsigned char *seen = mmap(NULL, 1024, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

    CHECK(seen != MAP_FAILED);
    fill(p, 0xab, 1024);
    CHECK(seen[0] == 0xab && seen[1023] == 0xab);
    CHECK_INT(exported(p), fd);
    CHECK(munmap(seen, 1024) == 0);
    OK(zeMemFree(ctx, p));
}

static void memory_is_imported_from_a_descriptor(void)
{
    const uint32_t dma_buf = ZE_EXTERNAL_MEMORY_TYPE_FLAG_DMA_BUF;
    char          *p       = exportable(1024);
    char          *small = device_memory(1000); /* not meant for it, but Intel's driver allows it */
    void          *q     = NULL;

    fill(p, 0xab, 1024);
    fill(small, 0xcd, 1000);
    OK(import(exported(p), dma_buf, 1024, &q));
    OK(zeMemFree(ctx, p));
    CHECK(is_filled(q, 0xab, 1024));
    OK(zeMemFree(ctx, q));
    OK(import(exported(small), dma_buf, 1000, &q));
    CHECK(is_filled(q, 0xcd, 1000));
    OK(zeMemFree(ctx, q));
    FAILS(UNSUPPORTED_SIZE, import(exported(small), dma_buf, MIB(1), &q));
    FAILS(UNSUPPORTED_ENUMERATION,
          import(exported(small), ZE_EXTERNAL_MEMORY_TYPE_FLAG_D3D12_HEAP, 1000, &q));
    FAILS(INVALID_ARGUMENT, import(-1, dma_buf, 1000, &q));
    FAILS(INVALID_ARGUMENT, import(9999, dma_buf, 1000, &q));
    OK(zeMemFree(ctx, small));
}

#if HAS_API_1_12

static void handles_and_descriptors_are_exchanged(void)
{
    char               *p  = device_memory(1000);
    int                 fd = exported(p);
    ze_ipc_mem_handle_t h  = handle_of(p), other;
    uint64_t            of = 0;
    void               *q  = NULL;

    OK(zeMemGetFileDescriptorFromIpcHandleExp(ctx, h, &of));
    CHECK_INT(of, fd);
    OK(zeMemGetIpcHandleFromFileDescriptorExp(ctx, of, &other));
    OK(zeMemOpenIpcHandle(ctx, devices[0], other, 0, &q));
    fill(p, 9, 1000);
    CHECK(is_filled(q, 9, 1000));
    OK(zeMemCloseIpcHandle(ctx, q));
    OK(zeMemPutIpcHandle(ctx, h));
    OK(zeMemPutIpcHandle(ctx, other));
    FAILS(INVALID_ARGUMENT, zeMemGetIpcHandleFromFileDescriptorExp(ctx, 9999, &other));
    OK(zeMemFree(ctx, p));
}

#endif

/* --- virtual memory
 * --------------------------------------------------------------------------------------------- */

static ze_physical_mem_handle_t physical(size_t size, uint32_t flags)
{
    ze_physical_mem_desc_t desc = {
        .stype = ZE_STRUCTURE_TYPE_PHYSICAL_MEM_DESC, .flags = flags, .size = size};
    ze_physical_mem_handle_t mem = NULL;

    OK(zePhysicalMemCreate(ctx, devices[0], &desc, &mem));
    return mem;
}

#define READWRITE ZE_MEMORY_ACCESS_ATTRIBUTE_READWRITE
#define READONLY  ZE_MEMORY_ACCESS_ATTRIBUTE_READONLY
#define NONE      ZE_MEMORY_ACCESS_ATTRIBUTE_NONE

static void addresses_are_reserved(void)
{
    size_t page = page_size(1);
    char  *a, *b;
    void  *c = NULL;

    CHECK(page_size(MIB(64)) >= page);
    a = reserved(4 * page);
    CHECK_INT((uintptr_t)a % page, 0);
    OK(zeVirtualMemFree(ctx, a, 4 * page));
    OK(zeVirtualMemReserve(ctx, a, 2 * page, &c)); /* where there is room the wish is granted */
    CHECK(c == a);
    b = a;
    OK(zeVirtualMemReserve(ctx, b, page, &c));
    CHECK(c != NULL && c != b);
    FAILS(UNSUPPORTED_SIZE, zeVirtualMemReserve(ctx, somewhere(page_size(1)), 0, &c));
    FAILS(UNSUPPORTED_SIZE, zeVirtualMemReserve(ctx, somewhere(page_size(1)), 100, &c));
    FAILS(INVALID_NULL_POINTER, zeVirtualMemReserve(ctx, somewhere(page_size(1)), page, NULL));
    FAILS(INVALID_ARGUMENT, zeVirtualMemFree(ctx, a + page, page));
    OK(zeVirtualMemFree(ctx, a, 2 * page));
    OK(zeVirtualMemFree(ctx, c, page));
    FAILS(INVALID_ARGUMENT, zeVirtualMemFree(ctx, a, 2 * page));
}

#if !PLAIN_SANITIZED /* a sanitizer has most of the addresses */

static void large_addresses_are_reserved(void)
{
    void *p = NULL;

    OK(zeVirtualMemReserve(ctx, somewhere((size_t)16 << 40), (size_t)16 << 40, &p));
    OK(zeVirtualMemFree(ctx, p, (size_t)16 << 40));
    FAILS(OUT_OF_HOST_MEMORY,
          zeVirtualMemReserve(ctx, somewhere(page_size(1)), (size_t)1 << 50, &p));
}

#endif

static void physical_memory_is_mapped(void)
{
    size_t                   page = page_size(1);
    char                    *at   = reserved(4 * page);
    ze_physical_mem_handle_t mem  = physical(2 * page, 0);
    ze_device_handle_t       dev  = NULL;

    OK(zeVirtualMemMap(ctx, at, page, mem, page, READWRITE));
    OK(zeVirtualMemMap(ctx, at + page, page, mem, 0, READWRITE));
    CHECK_INT(about(at + page + 1, &dev).type, ZE_MEMORY_TYPE_DEVICE);
    CHECK(dev == devices[0]);
    fill(at, 1, page);
    fill(at + page, 2, page);
    fill(at + page - 8, 3, 16); /* over both */
    CHECK(is_filled(at, 1, page - 8) && is_filled(at + page - 8, 3, 16));
    FAILS(HANDLE_OBJECT_IN_USE, zePhysicalMemDestroy(ctx, mem));
    OK(zeVirtualMemUnmap(ctx, at, 2 * page));
    OK(zeVirtualMemUnmap(ctx, at, 2 * page)); /* nothing left to do */
    CHECK_INT(about(at, NULL).type, ZE_MEMORY_TYPE_UNKNOWN);
    OK(zeVirtualMemMap(ctx, at + 2 * page, 2 * page, mem, 0, READWRITE));
    CHECK(is_filled(at + 2 * page + 8, 2, page - 8)); /* it kept what was written */
    CHECK(is_filled(at + 3 * page, 1, page - 8));
    OK(zeVirtualMemFree(ctx, at, 4 * page)); /* unmaps */
    OK(zePhysicalMemDestroy(ctx, mem));
}

static void bad_mappings_are_refused(void)
{
    size_t                   page = page_size(1);
    char                    *at   = reserved(4 * page);
    ze_physical_mem_handle_t mem  = physical(2 * page, 0);
    ze_physical_mem_desc_t   desc = {.stype = ZE_STRUCTURE_TYPE_PHYSICAL_MEM_DESC};
    ze_physical_mem_handle_t none = NULL;

    FAILS(UNSUPPORTED_SIZE, zePhysicalMemCreate(ctx, devices[0], &desc, &none));
    FAILS(UNSUPPORTED_SIZE, zeVirtualMemMap(ctx, at, 0, mem, 0, READWRITE));
    FAILS(UNSUPPORTED_SIZE, zeVirtualMemMap(ctx, at, 100, mem, 0, READWRITE));
    FAILS(UNSUPPORTED_ALIGNMENT, zeVirtualMemMap(ctx, at + 1, page, mem, 0, READWRITE));
    FAILS(UNSUPPORTED_ALIGNMENT, zeVirtualMemMap(ctx, at, page, mem, 1, READWRITE));
    if (loader_is_transparent())
        FAILS(INVALID_NULL_HANDLE, zeVirtualMemMap(ctx, at, page, NULL, 0, READWRITE));
    FAILS(INVALID_NULL_POINTER, zeVirtualMemMap(ctx, NULL, page, mem, 0, READWRITE));
    FAILS(INVALID_ENUMERATION,
          zeVirtualMemMap(ctx, at, page, mem, 0, (ze_memory_access_attribute_t)3));
    FAILS(INVALID_ARGUMENT, zeVirtualMemMap(ctx, at, 2 * page, mem, page, READWRITE));
    FAILS(INVALID_ARGUMENT, zeVirtualMemMap(ctx, at + 3 * page, 2 * page, mem, 0, READWRITE));
    OK(zeVirtualMemMap(ctx, at, 2 * page, mem, 0, READWRITE));
    FAILS(INVALID_ARGUMENT, zeVirtualMemMap(ctx, at + page, page, mem, 0, READWRITE));
    FAILS(INVALID_ARGUMENT, zeVirtualMemUnmap(ctx, at, page)); /* half of a mapping */
    OK(zeVirtualMemFree(ctx, at, 4 * page));
    FAILS(INVALID_ARGUMENT, zeVirtualMemUnmap(ctx, at, page));
    OK(zePhysicalMemDestroy(ctx, mem));
}

static void rights_are_kept(void)
{
    size_t                       page = page_size(1), same = 0;
    char                        *at  = reserved(4 * page);
    ze_physical_mem_handle_t     mem = physical(2 * page, 0);
    ze_memory_access_attribute_t got;

    OK(zeVirtualMemGetAccessAttribute(ctx, at, page, &got, &same));
    CHECK(got == NONE && same == 4 * page);
    OK(zeVirtualMemMap(ctx, at + page, page, mem, 0, READWRITE));
    OK(zeVirtualMemMap(ctx, at + 2 * page, page, mem, page, READWRITE));
    OK(zeVirtualMemGetAccessAttribute(ctx, at, page, &got, &same));
    CHECK(got == NONE && same == page);
    OK(zeVirtualMemGetAccessAttribute(ctx, at + page, page, &got, &same));
    CHECK(got == READWRITE && same == 2 * page);
    OK(zeVirtualMemSetAccessAttribute(ctx, at + 2 * page, page, READONLY));
    OK(zeVirtualMemGetAccessAttribute(ctx, at + page, page, &got, &same));
    CHECK(got == READWRITE && same == page);
    OK(zeVirtualMemUnmap(ctx, at + page, 2 * page));
    OK(zeVirtualMemGetAccessAttribute(ctx, at + page, page, &got, &same));
    CHECK(got == NONE && same == 3 * page);
    OK(zeVirtualMemFree(ctx, at, 4 * page));
    OK(zePhysicalMemDestroy(ctx, mem));
}

static void addresses_without_memory_have_rights_too(void)
{
    size_t                       page = page_size(1), same = 0;
    char                        *at  = reserved(2 * page);
    ze_physical_mem_handle_t     mem = physical(page, 0);
    ze_memory_access_attribute_t got;

    OK(zeVirtualMemSetAccessAttribute(ctx, at, 2 * page, READWRITE));
    OK(zeVirtualMemGetAccessAttribute(ctx, at, page, &got, &same));
    CHECK(got == READWRITE && same == 2 * page);
    OK(zeVirtualMemMap(ctx, at, page, mem, 0, READONLY)); /* which brings its own */
    OK(zeVirtualMemGetAccessAttribute(ctx, at, page, &got, &same));
    CHECK(got == READONLY && same == page);
    OK(zeVirtualMemSetAccessAttribute(ctx, at + page, page, NONE));
    OK(zeVirtualMemGetAccessAttribute(ctx, at + page, page, &got, &same));
    CHECK(got == NONE && same == page);
    OK(zeVirtualMemFree(ctx, at, 2 * page));
    FAILS(INVALID_ARGUMENT, zeVirtualMemSetAccessAttribute(ctx, at, page, READWRITE));
    OK(zePhysicalMemDestroy(ctx, mem));
}

#if HAS_API_1_12

static void physical_memory_of_the_host_is_open_to_it(void)
{
    size_t                   page = page_size(1);
    char                    *a = reserved(page), *b = reserved(page);
    ze_physical_mem_handle_t mem;

    mem = physical(page, ZE_PHYSICAL_MEM_FLAG_ALLOCATE_ON_HOST);
    OK(zeVirtualMemMap(ctx, a, page, mem, 0, READWRITE));
    OK(zeVirtualMemMap(ctx, b, page, mem, 0, READONLY));
    memset(a, 0x33, page);
    CHECK(b[0] == 0x33 && is_filled(b, 0x33, page));
    CHECK_INT(about(a, NULL).type, ZE_MEMORY_TYPE_HOST);
    OK(zeVirtualMemUnmap(ctx, a, page));
    OK(zeVirtualMemUnmap(ctx, b, page));
    OK(zePhysicalMemDestroy(ctx, mem));
    OK(zeVirtualMemFree(ctx, a, page));
    OK(zeVirtualMemFree(ctx, b, page));
}

#endif

static void mapped_memory_is_opened_elsewhere(void)
{
    size_t                   page = page_size(1);
    char                    *at   = reserved(2 * page);
    ze_physical_mem_handle_t mem  = physical(2 * page, 0);
    ze_ipc_mem_handle_t      h;
    char                     text[32];

    OK(zeVirtualMemMap(ctx, at, page, mem, page, READWRITE));
    fill(at, 0x5a, page);
    h = handle_of(at);
    put_in_environment("TEST_HANDLE", &h);
    (void)snprintf(text, sizeof(text), "%zu", page);
    CHECK_INT(spawn("open", "TEST_SIZE", text), 0);
    CHECK(is_filled(at, 0xa5, page));
    OK(zeVirtualMemFree(ctx, at, 2 * page));
    OK(zePhysicalMemDestroy(ctx, mem));
}

static void physical_memory_is_imported(void)
{
    size_t                         page = page_size(1);
    char                          *p    = exportable(1024);
    char                          *at   = reserved(page);
    ze_external_memory_import_fd_t from = {.stype = ZE_STRUCTURE_TYPE_EXTERNAL_MEMORY_IMPORT_FD,
                                           .flags = ZE_EXTERNAL_MEMORY_TYPE_FLAG_DMA_BUF,
                                           .fd    = exported(p)};
    ze_physical_mem_desc_t         desc = {
                .stype = ZE_STRUCTURE_TYPE_PHYSICAL_MEM_DESC, .pNext = &from, .size = page};
    ze_physical_mem_handle_t mem = NULL;

    fill(p, 0x77, 1024);
    OK(zePhysicalMemCreate(ctx, devices[0], &desc, &mem));
    OK(zeVirtualMemMap(ctx, at, page, mem, 0, READWRITE));
    CHECK(is_filled(at, 0x77, 1024));
    OK(zeVirtualMemFree(ctx, at, page));
    OK(zePhysicalMemDestroy(ctx, mem));
    OK(zeMemFree(ctx, p));
}

static const plain_case children[] = {
    {"open", child_open}, {"refused", child_refused}, {"dies", child_dies}, {NULL, NULL}};

static const plain_case cases[] = {CASE(another_process_opens_memory),
                                   CASE(stale_handles_are_refused),
                                   CASE(forged_handles_are_refused),
                                   CASE(the_handle_of_a_dead_process_is_refused),
                                   CASE(each_opening_is_a_pointer_of_its_own),
                                   CASE(a_descriptor_sent_along_opens_a_handle),
                                   CASE(handles_are_of_whole_blocks),
                                   CASE(memory_is_exported_as_a_descriptor),
                                   CASE(memory_is_imported_from_a_descriptor),
#if HAS_API_1_12
                                   CASE(handles_and_descriptors_are_exchanged),
#endif
                                   CASE(addresses_are_reserved),
#if !PLAIN_SANITIZED
                                   CASE(large_addresses_are_reserved),
#endif
                                   CASE(physical_memory_is_mapped),
                                   CASE(bad_mappings_are_refused),
                                   CASE(rights_are_kept),
                                   CASE(addresses_without_memory_have_rights_too),
#if HAS_API_1_12
                                   CASE(physical_memory_of_the_host_is_open_to_it),
#endif
                                   CASE(mapped_memory_is_opened_elsewhere),
                                   CASE(physical_memory_is_imported),
                                   {NULL, NULL}};

int main(int argc, char **argv)
{
    return run_cases(argc, argv, children, cases);
}
