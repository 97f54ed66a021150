# usm_embed(<target> <file> NAME <symbol>): puts a text file into <target> as
#
#     extern const char   <symbol>[];       // 0-terminated
#     extern const size_t <symbol>_size;    // without the 0
#
# so that the program finds it wherever it is copied to.  The rule runs this same file as a script.
#
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
if(NOT CMAKE_SCRIPT_MODE_FILE)
    include_guard(GLOBAL)

    function(usm_embed target file)
        cmake_parse_arguments(PARSE_ARGV 2 arg "" "NAME" "")
        cmake_path(ABSOLUTE_PATH file)
        set(source "${CMAKE_CURRENT_BINARY_DIR}/${arg_NAME}.c")
        add_custom_command(
            OUTPUT "${source}"
            COMMAND "${CMAKE_COMMAND}" "-DIN=${file}" "-DOUT=${source}" "-DNAME=${arg_NAME}"
                    -P "${CMAKE_CURRENT_FUNCTION_LIST_FILE}"
            DEPENDS "${file}" "${CMAKE_CURRENT_FUNCTION_LIST_FILE}"
            COMMENT "Embedding ${arg_NAME}"
            VERBATIM)
        target_sources(${target} PRIVATE "${source}")
    endfunction()
    return()
endif()

cmake_minimum_required(VERSION 3.25)
file(READ "${IN}" hex HEX)
file(SIZE "${IN}" size)
string(REGEX REPLACE "(................................................................)"
    "\\1\n" hex "${hex}") # 32 bytes a line
string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${hex}")
string(REGEX REPLACE "0x([89a-f])" "(char)0x\\1" bytes "${bytes}") # char has a sign
cmake_path(GET IN FILENAME file_name)
file(WRITE "${OUT}" "/* ${file_name}, made by UsmEmbed.cmake. */
#include <stddef.h>

extern const char   ${NAME}[];
extern const size_t ${NAME}_size;

const char ${NAME}[] = {
${bytes}
0};
const size_t ${NAME}_size = ${size};
")
