/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Memory between processes when the n-th call fails, for n = 1, 2, ... until all goes well: each
 * answer is a status that fits, the next try works, and nothing is left behind. */
#include "base/fault.h"
#include "base/inline/atomic.h"
#include "two.h"

#include <usm/usm.h>

#define SIZE ((size_t)64 << 10)

static usm_pool *make_pool(void)
{
    usm_pool_desc desc = USM_POOL_DESC_INIT;
    usm_pool     *pool = NULL;

    desc.export_mode = USM_POOL_EXPORT_RW;
    CHECK_INT(usm_pool_create(usm_default_context(), NULL, USM_HOST, &desc, &pool), USM_OK);
    return pool;
}

/* ---- peers ----------------------------------------------------------------------------------- */

static void owner(void)
{
    usm_pool      *pool = make_pool();
    usm_ipc_handle handle;
    char          *p = usm_pool_malloc(pool, SIZE);

    memset(p, 'x', SIZE);
    CHECK_INT(usm_ipc_get(p, NULL, &handle), USM_OK);
    two_send(TWO_FD, &handle, sizeof handle);
    (void)two_hear(TWO_FD);
}

static const two_role roles[] = {ROLE(owner), {NULL, NULL}};

/* ---- cases
 * --------------------------------------------------------------------------------------- */

/* One call after the other fails: the answer is a failure that names no other, or all is well; the
 * next try without a fault works. */
static void each_call_of_an_importer_fails_once(void)
{
    two_peer       peer = two_start("owner", NULL);
    usm_ipc_handle handle;
    uint64_t       fired = 1;
    char          *p     = NULL;
    int            fds;

    two_receive(peer.fd, &handle, sizeof handle);
    CHECK_INT(usm_ipc_open(&handle, NULL, NULL, (void **)&p), USM_OK);
    CHECK_INT(usm_ipc_close(p, NULL), USM_OK);
    usm_ipc_trim();
    fds = two_settled_descriptors();
    for (uint64_t n = 1; fired > 0; n++) {
        usm_status st;

        CHECK(usm__fault_arm("*", n, false, USM_OK));
        st = usm_ipc_open(&handle, NULL, NULL, (void **)&p);
        if (st == USM_OK)
            CHECK_INT(usm_ipc_close(p, NULL), USM_OK);
        usm__fault_disarm_all();
        fired = usm__fault_fired();
        if (st == USM_E_STALE || st == USM_E_HANDLE || st == USM_E_PERMISSION)
            printf("# call %d: %s\n", (int)n, usm_last_error());
        CHECK(st != USM_E_STALE && st != USM_E_HANDLE && st != USM_E_PERMISSION);
        usm_ipc_trim();
        CHECK(n < 500);
    }
    CHECK_INT(usm_ipc_open(&handle, NULL, NULL, (void **)&p), USM_OK);
    CHECK_INT(usm_ipc_close(p, NULL), USM_OK);
    usm_ipc_trim();
    CHECK_INT(two_settled_descriptors(), fds);
    two_kill(&peer);
}

static void each_call_of_an_owner_fails_once(void)
{
    usm_ipc_handle handle;
    uint64_t       fired = 1;
    void          *q     = NULL;
    int            fds;

    usm_pool_destroy(make_pool());
    fds = two_settled_descriptors();
    for (uint64_t n = 1; fired > 0; n++) {
        usm_pool  *pool = make_pool();
        char      *p    = usm_pool_malloc(pool, SIZE);
        usm_status st;

        CHECK(p != NULL);
        CHECK(usm__fault_arm("*", n, false, USM_OK));
        st = usm_ipc_get(p, NULL, &handle);
        usm__fault_disarm_all();
        fired = usm__fault_fired();
        CHECK(st == USM_OK || st == USM_E_NO_MEMORY || st == USM_E_SYSTEM || st == USM_E_DEVICE);
        if (st == USM_OK) {
            CHECK_INT(usm_ipc_open(&handle, NULL, NULL, &q), USM_OK);
            CHECK(q == p);
            CHECK_INT(usm_ipc_close(q, NULL), USM_OK);
            CHECK_INT(usm_ipc_put(&handle, NULL), USM_OK);
        }
        CHECK_INT(usm_free_ctx(p, NULL), USM_OK);
        usm_pool_destroy(pool);
        CHECK(n < 500);
    }
    CHECK(two_settled_descriptors() <= fds + 5); /* the service's own, and one page of numbers */
}

static const plain_case cases[] = {
    CASE(each_call_of_an_importer_fails_once),
    CASE(each_call_of_an_owner_fails_once),
    {NULL, NULL},
};

int main(int argc, char **argv)
{
    return two_main(argc, argv, cases, roles);
}
