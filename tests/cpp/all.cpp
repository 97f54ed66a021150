/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* All tests of the C++ face as one program: `all NAME` runs the cases of NAME.cpp, `all` lists the
 * names.  One source, because a compiler spends most of its time on the standard library's headers
 * and run.sh calls it for two standards of two compilers. */
#include "async.cpp"
#include "buffers.cpp"
#include "ipc.cpp"
#include "memory.cpp"
#include "objects.cpp"
#include "rambrain.cpp"

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        int (*cases)();
    } all[] = {{"async", cases_of_async},
               {"buffers", cases_of_buffers},
               {"ipc", cases_of_ipc},
               {"memory", cases_of_memory},
               {"objects", cases_of_objects},
               {"rambrain", cases_of_rambrain}};

    for (const auto &one : all)
        if (argc < 2)
            std::puts(one.name);
        else if (std::string(argv[1]) == one.name)
            return one.cases();
    return argc < 2 ? 0 : 2;
}
