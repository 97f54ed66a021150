/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Which MPI module is taken: by the libraries that are loaded, here empty ones of those names. */
#include "plain.h"

#include "base/settings.h"
#include "cluster/internal.h"

#include <usm/init.h>
#include <usm/mpi.h>

#include <dlfcn.h>

static void load(const char *name)
{
    char path[512];

    (void)snprintf(path, sizeof path, "%s/%s", USM_TEST_FAKE_MPI, name);
    CHECK(dlopen(path, RTLD_NOW | RTLD_GLOBAL) != NULL);
}

static void check_choice(size_t comm_size, const char *module)
{
    char name[32] = "";

    CHECK_INT(usm__job_choose(comm_size, name, sizeof name), USM_OK);
    CHECK_STR(name, module);
}

static void check_refused(const char *why)
{
    char name[32] = "";

    CHECK_INT(usm__job_choose(8, name, sizeof name), USM_E_MPI);
    CHECK_STR(name, "");
    CHECK_IN(why, usm_last_error());
}

static void with_none(void)
{
    int comm = 0;

    check_refused("the process has loaded no MPI that libusm knows");
    CHECK_INT(usm_mpi_attach(&comm, sizeof comm), USM_E_MPI);
    CHECK_IN("USM_MPI names a module by hand", usm_last_error());
    CHECK_INT(usm_config_set("mpi", "mpich"), USM_OK);
    check_choice(0, "mpi_mpich");
    CHECK_INT(usm_config_set("mpi", "lam"), USM_E_SETTING);
}

static void with_open_mpi(void)
{
    load("libmpi.so.40");
    check_choice(8, "mpi_openmpi");
}

static void with_debians_mpich(void)
{
    load("libmpich.so.12");
    check_choice(4, "mpi_mpich");
}

static void with_mpich(void)
{
    load("libmpi.so.12");
    check_choice(4, "mpi_mpich12");
}

static void with_the_standard_abi(void)
{
    load("libmpi_abi.so.1");
    check_choice(8, "mpi_abi");
}

static void with_both_faces_of_one_mpich(void)
{
    load("libmpi_abi.so.1");
    load("libmpi.so.12");
    check_choice(4, "mpi_mpich12");
    check_choice(8, "mpi_abi");
}

static void with_two(void)
{
    load("libmpi.so.40");
    load("libmpich.so.12");
    check_refused("libmpi.so.40 and libmpich.so.12 are loaded in one process");
    CHECK_IN("USM_MPI=openmpi or =mpich", usm_last_error());
}

static void with_two_mpichs(void)
{
    char name[32];

    load("libmpi.so.12");
    load("libmpich.so.12");
    CHECK_INT(usm__job_choose(4, name, sizeof name), USM_E_MPI);
    CHECK_IN("are loaded in one process", usm_last_error());
}

static void with_open_mpi_by_another_name(void)
{
    load("libvendor_openmpi.so");
    check_choice(8, "mpi_openmpi");
}

static void with_mpich_by_another_name(void)
{
    load("libvendor_mpich.so");
    check_choice(4, "mpi_mpich12");
    check_choice(8, "mpi_abi");
}

static void with_something_else(void)
{
    load("libvendor_other.so");
    check_refused("no MPI that libusm knows");
}

/* Each in a process of its own. */
#define IN_CHILD(name, fn)                                                                         \
    static void name(void)                                                                         \
    {                                                                                              \
        CHECK_INT(plain_child(fn, NULL), 0);                                                       \
    }
IN_CHILD(without_mpi_it_is_refused, with_none)
IN_CHILD(libmpi_40_is_open_mpi, with_open_mpi)
IN_CHILD(libmpich_12_is_debians, with_debians_mpich)
IN_CHILD(libmpi_12_is_mpich_or_intels, with_mpich)
IN_CHILD(libmpi_abi_is_the_standards, with_the_standard_abi)
IN_CHILD(one_mpich_by_two_names_is_told_by_the_communicator, with_both_faces_of_one_mpich)
IN_CHILD(two_mpis_are_refused, with_two)
IN_CHILD(two_mpichs_are_refused, with_two_mpichs)
IN_CHILD(open_mpi_says_so_itself, with_open_mpi_by_another_name)
IN_CHILD(mpich_says_so_itself, with_mpich_by_another_name)
IN_CHILD(an_unknown_mpi_is_refused, with_something_else)

static const plain_case cases[] = {
    CASE(without_mpi_it_is_refused),   CASE(libmpi_40_is_open_mpi),
    CASE(libmpich_12_is_debians),      CASE(libmpi_12_is_mpich_or_intels),
    CASE(libmpi_abi_is_the_standards), CASE(one_mpich_by_two_names_is_told_by_the_communicator),
    CASE(two_mpis_are_refused),        CASE(two_mpichs_are_refused),
    CASE(open_mpi_says_so_itself),     CASE(mpich_says_so_itself),
    CASE(an_unknown_mpi_is_refused),   {NULL, NULL},
};

int main(int argc, char **argv)
{
    return plain_main(argc, argv, cases);
}
