# Writes the C file OUT with the text file IN as a 0-terminated array NAME and its size NAME_size,
# so that the program finds its data wherever it is copied to.  Run by the rules in CMakeLists.txt.
#
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
cmake_minimum_required(VERSION 3.25)

file(READ "${IN}" hex HEX)
file(SIZE "${IN}" size)
string(REGEX REPLACE "(................................................................)"
    "\\1\n" hex "${hex}") # 32 bytes a line
string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${hex}")
cmake_path(GET IN FILENAME file_name)
file(WRITE "${OUT}" "/* ${file_name}, made by embed.cmake. */
#include \"table.h\"

const char ${NAME}[] = {
${bytes}
0};
const size_t ${NAME}_size = ${size};
")
