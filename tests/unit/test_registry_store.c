/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Which transports and codecs there are, and what a table is refused for. */
#include "plain.h"

#include "device/registry.h"

#include <usm/usm.h>

/* ---- a transport that does nothing ------------------------------------------------- */

static usm_status no_open(const usm_transport_params *params, void **store)
{
    (void)params;
    (void)store;
    return USM_E_IO;
}

static void no_store(void *store)
{
    (void)store;
}

static usm_status no_capacity(void *store, usm_transport_capacity *capacity)
{
    (void)store;
    (void)capacity;
    return USM_E_IO;
}

static usm_status no_reserve(void *store, uint64_t first, uint64_t n)
{
    (void)store;
    (void)first;
    (void)n;
    return USM_E_IO;
}

static void no_forget(void *store, uint64_t first, uint64_t n)
{
    (void)store;
    (void)first;
    (void)n;
}

static void no_submit(void *store, usm_transfer *list)
{
    (void)store;
    (void)list;
}

static usm_status no_sync(void *store)
{
    (void)store;
    return USM_E_IO;
}

static void no_describe(void *store, char *text, size_t cap)
{
    (void)store;
    (void)text;
    (void)cap;
}

static usm_status no_progress(void *store, uint32_t timeout_ms)
{
    (void)store;
    (void)timeout_ms;
    return USM_E_IO;
}

static int no_wait_fd(void *store)
{
    (void)store;
    return -1;
}

static usm_transport_ops table;
static int               entered;

static usm_transport_ops whole_table(void)
{
    return (usm_transport_ops){
        .abi         = USM_MODULE_ABI,
        .struct_size = sizeof(usm_transport_ops),
        .name        = "brook",
        .caps        = USM_TRANSPORT_CAP_PROGRESS | USM_TRANSPORT_CAP_HOMES,
        .open        = no_open,
        .close       = no_store,
        .capacity    = no_capacity,
        .reserve     = no_reserve,
        .forget      = no_forget,
        .submit      = no_submit,
        .sync        = no_sync,
        .describe    = no_describe,
        .progress    = no_progress,
        .wait_fd     = no_wait_fd,
    };
}

static const usm_transport_ops *brook_entry(const usm_host_api *api)
{
    entered++;
    CHECK(api == &usm__registry_api && api->fault != NULL && api->os->pread != NULL);
    return &table;
}

static const usm_transport_ops *no_entry(const usm_host_api *api)
{
    (void)api->report(USM_E_NOT_SUPPORTED, "the brook is dry");
    return NULL;
}

static void refused(usm_status status, const char *why)
{
    usm__registry_add_transport("brook", brook_entry);
    CHECK(usm__registry_transport("brook") == NULL);
    CHECK_INT(usm_last_status(), status);
    CHECK_IN(why, usm_last_error());
    table = whole_table();
    CHECK(usm__registry_transport("brook") == &table); /* it may be better the next time */
}

static void tables_are_checked(void)
{
    table     = whole_table();
    table.abi = USM_MODULE_ABI + 1;
    refused(USM_E_ABI, "transport brook was built for module ABI");
    table.struct_size--;
    refused(USM_E_ABI, "with a table of");
    table.name = "";
    refused(USM_E_INVALID, "has no name");
    table.name = "river";
    refused(USM_E_INVALID, "transport brook calls itself river");
    table.submit = NULL;
    refused(USM_E_INVALID, "transport brook lacks submit, which all need");
    table.wait_fd = NULL;
    refused(USM_E_INVALID, "promises the group progress but lacks wait_fd");
    table.caps = USM_TRANSPORT_CAP_HOMES;
    refused(USM_E_INVALID, "has progress but does not promise the group progress");
    table.caps |= USM_TRANSPORT_CAP_OBJECTS;
    refused(USM_E_INVALID, "promises the group objects but lacks objects_open");
    table.caps |= USM_TRANSPORT_CAP_SPREADS;
    refused(USM_E_INVALID, "promises to spread blocks without the group places");
    table.caps |= 1u << 30;
    refused(USM_E_INVALID, "promises groups that there are not: 0x40000000");
}

static void a_table_is_asked_for_once(void)
{
    table   = whole_table();
    entered = 0;
    usm__registry_add_transport("brook", brook_entry);
    for (int i = 0; i < 3; i++)
        CHECK(usm__registry_transport("brook") == &table);
    CHECK_INT(entered, 1);
    usm__registry_add_transport("brook", no_entry);
    CHECK(usm__registry_transport("brook") == NULL);
    CHECK_STR(usm_last_error(), "the brook is dry");
}

static void what_there_is_not_is_told(void)
{
    static const char *const odd[] = {"", "../file", "File",
                                      "a-name-that-is-much-too-long-for-one"};

    CHECK(usm__registry_transport("river") == NULL);
    CHECK_INT(usm_last_status(), USM_E_NO_BACKEND);
    CHECK_IN("there is no transport \"river\"; there are: file", usm_last_error());
    CHECK_IN("no libusm_transport_river.so in", usm_last_error());
    for (size_t i = 0; i < sizeof(odd) / sizeof(odd[0]); i++) {
        CHECK(usm__registry_transport(odd[i]) == NULL);
        CHECK_INT(usm_last_status(), USM_E_NO_BACKEND);
        CHECK(usm__registry_codec(odd[i]) == NULL);
        CHECK_INT(usm_last_status(), USM_E_NO_BACKEND);
    }
    CHECK(usm__registry_codec("river") == NULL);
    CHECK_IN("there is no codec \"river\"; there are: lz4", usm_last_error());
    usm__registry_add_transport("well", NULL);
    usm__registry_transport_needs("well", "a pump");
    CHECK(usm__registry_transport("well") == NULL);
    CHECK_INT(usm_last_status(), USM_E_NO_BACKEND);
    CHECK_IN("it needs a pump", usm_last_error());
}

static void modules_are_listed(void)
{
    usm__registry_store list[8];
    size_t              n = usm__registry_transports(list, 8);

    CHECK(n >= 1 && n <= 8);
    CHECK_STR(list[0].name, "file");
    if (usm__registry_transport("file")) {
        CHECK_INT(usm__registry_transports(list, 8), n);
        CHECK_IN("libusm_transport_file.so", list[0].path);
        CHECK_STR(usm__registry_transport("file")->name, "file");
    } else {
        CHECK_INT(usm_last_status(), USM_E_NO_BACKEND);
        CHECK_STR(list[0].path, "");
    }
    n = usm__registry_codecs(list, 8);
    CHECK(n >= 2);
    CHECK_STR(list[0].name, "lz4");
    CHECK_STR(list[1].name, "aes_gcm");
    CHECK_INT(usm__registry_codecs(NULL, 0), n);
}

static const plain_case cases[] = {
    CASE(modules_are_listed),
    CASE(tables_are_checked),
    CASE(a_table_is_asked_for_once),
    CASE(what_there_is_not_is_told),
    {NULL, NULL},
};

int main(int argc, char **argv)
{
    CHECK_INT(usm_init(), USM_OK);
    return plain_main(argc, argv, cases);
}
