/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The part of all.cpp in which threads share what the headers implement: for ThreadSanitizer. */
#include "rambrain.cpp"

int main(int argc, char **)
{
    if (argc < 2) {
        std::puts("rambrain");
        return 0;
    }
    return cases_of_rambrain();
}
