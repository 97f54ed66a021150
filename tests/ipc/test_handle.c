/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The bytes of a handle of memory: what goes in comes out, and nothing else does. */
#include "ipc/handle.h"

#include "plain.h"

static usm__ipc_memory sample(void)
{
    return (usm__ipc_memory){.backend    = "host",
                             .owner      = {.start = 77, .secret = 88, .pid = 99, .uid = 1000},
                             .area_id    = 1,
                             .area_nonce = 2,
                             .area_size  = 1 << 20,
                             .page_id    = 3,
                             .page_nonce = 4,
                             .number     = 5,
                             .generation = 6,
                             .block      = 4096,
                             .size       = 1000,
                             .offset     = 999,
                             .slot       = 7,
                             .kind       = USM_DEVICE,
                             .flags      = USM__IPC_WRITABLE};
}

static usm_status decode_of(const usm__ipc_memory *m)
{
    usm_ipc_handle  handle;
    usm__ipc_memory out;

    usm__ipc_handle_encode(m, &handle);
    return usm__ipc_handle_decode(&handle, &out);
}

static void what_goes_in_comes_out(void)
{
    usm__ipc_memory m = sample(), out;
    usm_ipc_handle  handle;

    usm__ipc_handle_encode(&m, &handle);
    CHECK_INT(usm__ipc_handle_decode(&handle, &out), USM_OK);
    CHECK(memcmp(&m, &out, sizeof m) == 0);
    CHECK(usm__ipc_handle_number(&handle) == m.number);
}

static void each_bit_counts(void)
{
    usm__ipc_memory m = sample(), out = {.slot = 12345};
    usm_ipc_handle  handle;

    usm__ipc_handle_encode(&m, &handle);
    for (size_t i = 0; i < sizeof handle.bytes * 8; i++) {
        handle.bytes[i / 8] ^= (uint8_t)(1u << i % 8);
        CHECK_INT(usm__ipc_handle_decode(&handle, &out), USM_E_HANDLE);
        handle.bytes[i / 8] ^= (uint8_t)(1u << i % 8);
    }
    CHECK_INT(out.slot, 12345); /* untouched */
    CHECK_INT(usm__ipc_handle_decode(&handle, &out), USM_OK);
}

static void what_is_cut_short_is_refused(void)
{
    usm__ipc_memory m = sample(), out;
    usm_ipc_handle  handle;

    for (size_t n = 0; n < sizeof handle.bytes; n++) {
        usm__ipc_handle_encode(&m, &handle);
        memset(handle.bytes + n, 0xee, sizeof handle.bytes - n);
        CHECK_INT(usm__ipc_handle_decode(&handle, &out), USM_E_HANDLE);
    }
}

static void another_version_is_named(void)
{
    usm__ipc_memory m = sample(), out;
    usm_ipc_handle  handle;

    usm__ipc_handle_encode(&m, &handle);
    handle.bytes[8]++;
    CHECK_INT(usm__ipc_handle_decode(&handle, &out), USM_E_HANDLE);
    CHECK_IN("version", usm_last_error());
}

/* With a checksum that is right. */
static void what_no_owner_writes_is_refused(void)
{
    usm__ipc_memory m = sample();

    m.offset = m.size;
    CHECK_INT(decode_of(&m), USM_E_HANDLE);
    m       = sample();
    m.block = UINT64_MAX - 10; /* block + size wraps */
    CHECK_INT(decode_of(&m), USM_E_HANDLE);
    m      = sample();
    m.size = m.area_size;
    CHECK_INT(decode_of(&m), USM_E_HANDLE);
    m      = sample();
    m.kind = 9;
    CHECK_INT(decode_of(&m), USM_E_HANDLE);
    m           = sample();
    m.owner.pid = 0;
    CHECK_INT(decode_of(&m), USM_E_HANDLE);
    m        = sample();
    m.number = 0;
    CHECK_INT(decode_of(&m), USM_E_HANDLE);
    m = sample();
    memset(m.backend, 'x', sizeof m.backend);
    CHECK_INT(decode_of(&m), USM_E_HANDLE);
}

static const plain_case cases[] = {
    CASE(what_goes_in_comes_out),          CASE(each_bit_counts),
    CASE(what_is_cut_short_is_refused),    CASE(another_version_is_named),
    CASE(what_no_owner_writes_is_refused), {NULL, NULL},
};

int main(int argc, char **argv)
{
    return plain_main(argc, argv, cases);
}
