/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The OpenCL backend: the order of commands, gates, failures that travel, who is told, threads,
 * times. */
#include "opencl_fixture.h"

#include "order_cases.h"

static const plain_case cases[] = {ORDER_CASES, {NULL, NULL}};

int main(int argc, char **argv)
{
    return opencl_main(argc, argv, cases);
}
