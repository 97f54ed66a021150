/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Memory that its backend does not share: OpenCL's, and the host's device memory in guard mode. */
#include "plain.h"

#include <usm/usm.h>

static void it_says_so_and_works_otherwise(void)
{
    usm_pool_desc  desc = USM_POOL_DESC_INIT;
    usm_pool      *pool = NULL;
    usm_context   *ctx  = usm_default_context();
    usm_ipc_handle handle;
    unsigned char  text[100] = {7}, back[100] = {0};
    void          *p;

    CHECK(ctx != NULL);
    desc.export_mode = USM_POOL_EXPORT_RW;
    CHECK_INT(usm_pool_create(ctx, NULL, USM_DEVICE, &desc, &pool), USM_OK);
    p = usm_pool_malloc(pool, sizeof text);
    CHECK(p != NULL);
    CHECK_INT(usm_copy(p, text, sizeof text), USM_OK);
    CHECK_INT(usm_ipc_get(p, NULL, &handle), USM_E_NOT_EXPORTABLE);
    CHECK(strstr(usm_last_error(), "lacks the aspect") != NULL ||
          strstr(usm_last_error(), "USM_HOST_GUARD_DEVICE") != NULL);
    CHECK_INT(usm_copy(back, p, sizeof back), USM_OK);
    CHECK(memcmp(text, back, sizeof back) == 0);
    usm_free(p);
    usm_pool_destroy(pool);
}

static const plain_case cases[] = {CASE(it_says_so_and_works_otherwise), {NULL, NULL}};

int main(int argc, char **argv)
{
    return plain_main(argc, argv, cases);
}
