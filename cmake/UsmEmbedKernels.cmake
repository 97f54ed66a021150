# Run by the rules of usm_add_kernels() (UsmKernels.cmake, which tells the format): makes the bundle
# DIR/NAME.usmk of the text SOURCE and of SPIRV (empty: none), NAME_kernels.h and NAME_kernels.SUFFIX
# that hold it, and NAME.usmk.d, the files it was made of.
#
# The text has to compile where no file of ours is: what it includes in quotes is put in its place,
# and the macros that DEFINES (-DN=4;...) gives the compiler come first.
#
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
cmake_minimum_required(VERSION 3.25)

set_property(GLOBAL PROPERTY files "")

# The text of `file` with its quoted includes in place; #line keeps messages right.
function(with_includes file depth result)
    if(depth GREATER 50)
        message(FATAL_ERROR "${file} includes itself")
    endif()
    set_property(GLOBAL APPEND PROPERTY files "${file}")
    cmake_path(GET file PARENT_PATH dir)
    cmake_path(GET file FILENAME name)
    file(READ "${file}" rest)
    set(out "")
    set(line 1)
    while("${rest}" MATCHES "(^|\n)([ \t]*#[ \t]*include[ \t]*\"([^\"\n]+)\"[^\n]*)")
        set(directive "${CMAKE_MATCH_2}")
        set(included "${CMAKE_MATCH_3}")
        string(FIND "${rest}" "${directive}" at)
        string(SUBSTRING "${rest}" 0 ${at} before)
        string(LENGTH "${directive}" length)
        math(EXPR at "${at} + ${length}")
        string(SUBSTRING "${rest}" ${at} -1 rest)
        string(REGEX REPLACE "[^\n]" "" newlines "${before}")
        string(LENGTH "${newlines}" newlines)
        math(EXPR line "${line} + ${newlines}")
        string(APPEND out "${before}")
        set(path "${dir}/${included}")
        if(NOT EXISTS "${path}" AND HEADERS)
            set(path "${HEADERS}/${included}")
        endif()
        if(EXISTS "${path}")
            math(EXPR deeper "${depth} + 1")
            with_includes("${path}" ${deeper} text)
            math(EXPR next "${line} + 1")
            string(APPEND out "#line 1 \"${included}\"\n${text}\n#line ${next} \"${name}\"")
        else()
            string(APPEND out "${directive}")
        endif()
    endwhile()
    set(${result} "${out}${rest}" PARENT_SCOPE)
endfunction()

with_includes("${SOURCE}" 0 text)
if(DEFINES)
    set(lines "")
    foreach(define IN LISTS DEFINES)
        string(REGEX REPLACE "^-D" "" define "${define}")
        if(define MATCHES "^([^=]*)=(.*)$")
            string(APPEND lines "#define ${CMAKE_MATCH_1} ${CMAKE_MATCH_2}\n")
        else()
            string(APPEND lines "#define ${define} 1\n")
        endif()
    endforeach()
    cmake_path(GET SOURCE FILENAME source_name)
    string(PREPEND text "${lines}#line 1 \"${source_name}\"\n")
endif()
set(text_file "${DIR}/${NAME}.text")
file(WRITE "${text_file}" "${text}")

set(payloads "${text_file}")
file(SIZE "${text_file}" size)
set(header "opencl_c ${size}\n")
set(count 1)
if(SPIRV)
    list(APPEND payloads "${SPIRV}")
    file(SIZE "${SPIRV}" size)
    string(APPEND header "spirv ${size}\n")
    set(count 2)
endif()
file(WRITE "${DIR}/${NAME}.header" "USMK1 ${count}\n${header}\n")
set(bundle "${DIR}/${NAME}.usmk")
execute_process(COMMAND "${CMAKE_COMMAND}" -E cat "${DIR}/${NAME}.header" ${payloads}
    OUTPUT_FILE "${bundle}" COMMAND_ERROR_IS_FATAL ANY)

get_property(files GLOBAL PROPERTY files)
list(REMOVE_DUPLICATES files)
set(rule "${bundle}")
string(REPLACE " " "\\ " rule "${rule}")
string(APPEND rule ":")
foreach(file IN LISTS files)
    string(REPLACE " " "\\ " file "${file}")
    string(APPEND rule " \\\n  ${file}")
endforeach()
file(WRITE "${bundle}.d" "${rule}\n")

file(READ "${bundle}" hex HEX)
string(REGEX REPLACE "(..)" "0x\\1," bytes "${hex}")
string(REPEAT "....." 16 sixteen) # "0xNN," sixteen times: one line
string(REGEX REPLACE "(${sixteen})" "\\1\n    " bytes "${bytes}")
file(SIZE "${bundle}" size)

file(WRITE "${DIR}/${NAME}_kernels.h" "/* The kernels of ${NAME}.cl.  Made by usm_add_kernels(). */
#ifndef ${NAME}_kernels_h
#define ${NAME}_kernels_h

#include <stddef.h>

#ifdef __cplusplus
extern \"C\" {
#endif
extern const unsigned char ${NAME}_kernels[]; /* an image of type USM_IMAGE_BUNDLE */
extern const size_t        ${NAME}_kernels_size;
#ifdef __cplusplus
}
#endif

#endif
")
file(WRITE "${DIR}/${NAME}_kernels.${SUFFIX}" "/* Made by usm_add_kernels(). */
#include \"${NAME}_kernels.h\"

const unsigned char ${NAME}_kernels[] = {
    ${bytes}
};
const size_t ${NAME}_kernels_size = ${size};
")
