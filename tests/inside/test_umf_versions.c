/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* usm_umf_pool_ops() beside an UMF that is linked into the program, of a version before 1.0 and of a
 * later one.  This program has the four names of UMF that the library uses. */
#include "plain.h"
#include "umf_abi.h"

#include <stdlib.h>
#include <usm/umf.h>

#define EXPORT __attribute__((visibility("default")))

static int version = 1 << 16;

EXPORT int          umfGetCurrentVersion(void);
EXPORT umf_result_t umfMemoryProviderAlloc(umf_memory_provider_handle_t provider, size_t size,
                                           size_t align, void **p);
EXPORT umf_result_t umfMemoryProviderFree(umf_memory_provider_handle_t provider, void *p,
                                          size_t size);

EXPORT int umfGetCurrentVersion(void)
{
    return version;
}

EXPORT umf_result_t umfMemoryProviderAlloc(umf_memory_provider_handle_t provider, size_t size,
                                           size_t align, void **p)
{
    (void)provider;
    return posix_memalign(p, align < 64 ? 64 : align, size) == 0
               ? UMF_RESULT_SUCCESS
               : UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY;
}

EXPORT umf_result_t umfMemoryProviderFree(umf_memory_provider_handle_t provider, void *p,
                                          size_t size)
{
    (void)provider;
    (void)size;
    free(p);
    return UMF_RESULT_SUCCESS;
}

static void an_umf_before_1_0_is_refused(void)
{
    void *pool = NULL;

    version = 0 << 16 | 11;
    CHECK_INT(usm_umf_pool_ops()->initialize(NULL, NULL, &pool),
              UMF_RESULT_ERROR_DEPENDENCY_UNAVAILABLE);
    CHECK(pool == NULL);
}

static void an_umf_before_1_0_is_refused_in_a_process(void)
{
    CHECK_INT(plain_child(an_umf_before_1_0_is_refused, NULL), 0);
}

static void an_umf_inside_the_program_is_found(void)
{
    const umf_memory_pool_ops_t *ops  = usm_umf_pool_ops();
    void                        *pool = NULL, *p;

    CHECK_INT(ops->initialize(NULL, NULL, &pool), UMF_RESULT_SUCCESS);
    p = ops->malloc(pool, 1000);
    CHECK(p != NULL);
    CHECK_INT(ops->free(pool, p), UMF_RESULT_SUCCESS);
    CHECK_INT(ops->finalize(pool), UMF_RESULT_SUCCESS);
}

static const plain_case cases[] = {
    CASE(an_umf_before_1_0_is_refused_in_a_process), /* the version is asked once */
    CASE(an_umf_inside_the_program_is_found),
    {NULL, NULL},
};

int main(int argc, char **argv)
{
    return plain_main(argc, argv, cases);
}
