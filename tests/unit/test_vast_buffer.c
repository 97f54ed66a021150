/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* A buffer that is far larger than all memory costs what is used of it: making it, using a few
 * places, advice for all of it and its end touch few pages, however many blocks it has. */
#include "plain.h"

#include <usm/usm.h>

#include <sys/prctl.h>
#include <sys/resource.h>

#define TIB  ((size_t)1 << 40)
#define MIB  ((size_t)1 << 20)
#define SIZE (64 * TIB)

static long faults(void)
{
    struct rusage r;

    CHECK_INT(getrusage(RUSAGE_SELF, &r), 0);
    return r.ru_minflt;
}

static void access_byte(usm_buffer *b, size_t at, usm_access_mode mode, char value)
{
    usm_access a;

    CHECK_INT(usm_access_begin(b, at, 1, mode, &a), USM_OK);
    if (mode == USM_READ)
        CHECK_INT(*(char *)a.ptr, value);
    else
        *(char *)a.ptr = value;
    usm_access_end(&a);
}

/* What is made once, in the first use. */
static void warm_up(void)
{
    usm_buffer *b = usm_buffer_new(NULL, 64 * MIB);

    CHECK(b != NULL);
    access_byte(b, 3 * MIB, USM_READ_WRITE, 1);
    usm_buffer_destroy(b);
}

static void a_buffer_costs_what_is_used_of_it(void)
{
    static const size_t places[] = {0, 5 * TIB + 12345, 33 * TIB, SIZE - 1};
    const size_t        n        = sizeof places / sizeof *places;
    long                before;
    usm_buffer         *b;

    CHECK_INT(prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0), 0); /* or few faults touch much */
    warm_up();
    before = faults();
    b      = usm_buffer_new(NULL, SIZE);
    CHECK(b != NULL);
    for (size_t i = 0; i < n; i++)
        access_byte(b, places[i], USM_READ_WRITE, (char)(i + 1));
    CHECK_INT(usm_buffer_advise(b, 0, SIZE, USM_BUFFER_WONT_NEED), USM_OK);
    for (size_t i = 0; i < n; i++)
        access_byte(b, places[i], USM_READ, (char)(i + 1));
    CHECK_INT(usm_buffer_advise(b, TIB, 40 * TIB, USM_BUFFER_DISCARD), USM_OK);
    for (size_t i = 0; i < n; i++)
        access_byte(b, places[i], USM_READ, i == 0 || i == n - 1 ? (char)(i + 1) : 0);
    access_byte(b, 20 * TIB, USM_READ, 0); /* was never touched */
    usm_buffer_destroy(b);
    printf("# %ld pages touched\n", faults() - before);
    CHECK(faults() - before < 12000); /* the tables of 16 million blocks have 100000 and more */
}

static const plain_case cases[] = {
    CASE(a_buffer_costs_what_is_used_of_it),
    {NULL, NULL},
};

int main(int argc, char **argv)
{
    return plain_main(argc, argv, cases);
}
