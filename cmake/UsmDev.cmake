# How libusm's own code is compiled: warnings, sanitizers, coverage; and a helper for options.
#
# The target usm_dev carries the options.  Parts of libusm link it PRIVATE inside
# $<BUILD_INTERFACE:...>, so that nothing of it is exported and CMAKE_C_FLAGS stay the user's.
#
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

add_library(usm_dev INTERFACE)

# _GNU_SOURCE: mremap, memfd_create, membarrier, pthread names, dladdr.
target_compile_definitions(usm_dev INTERFACE _GNU_SOURCE)
# No path of the building machine in __FILE__: the same sources give the same bytes.
target_compile_options(usm_dev INTERFACE "-fmacro-prefix-map=${PROJECT_SOURCE_DIR}/=")

if(PROJECT_IS_TOP_LEVEL)
    set(warnings
        -Wall -Wextra -Wpedantic -Wshadow -Wundef -Wvla -Wpointer-arith -Wcast-qual -Wwrite-strings
        -Wformat=2 -Wswitch-enum)
    set(c_warnings -Wstrict-prototypes -Wmissing-prototypes)
    target_compile_options(usm_dev INTERFACE ${warnings} "$<$<COMPILE_LANGUAGE:C>:${c_warnings}>")
endif()
# Some two hundred programs are linked, again after each change of the library.
set(USM_LINKER AUTO CACHE STRING
    "Linker of libusm's own build, as -fuse-ld= takes it: AUTO: mold or lld where installed, OFF: the compiler's")
set(linker "${USM_LINKER}")
if(linker STREQUAL "AUTO")
    set(linker OFF)
    find_program(USM_LINKER_PROGRAM NAMES mold ld.lld
        DOC "What USM_LINKER=AUTO has found")
    mark_as_advanced(USM_LINKER_PROGRAM)
    if(PROJECT_IS_TOP_LEVEL AND USM_LINKER_PROGRAM)
        cmake_path(GET USM_LINKER_PROGRAM FILENAME linker)
        string(REPLACE "ld." "" linker "${linker}")
    endif()
endif()
if(linker)
    include(CheckLinkerFlag) # gcc knows mold from its version 12 on
    check_linker_flag(C "-fuse-ld=${linker}" USM_HAVE_LINKER_${linker})
    if(USM_HAVE_LINKER_${linker})
        target_link_options(usm_dev INTERFACE "-fuse-ld=${linker}")
    elseif(NOT USM_LINKER STREQUAL "AUTO")
        message(FATAL_ERROR "USM_LINKER=${USM_LINKER}, but the compiler does not take -fuse-ld=${linker}")
    endif()
endif()
if(USM_WERROR)
    target_compile_options(usm_dev INTERFACE -Werror)
endif()
if(USM_SANITIZE)
    set(sanitize "-fsanitize=${USM_SANITIZE}" -fno-omit-frame-pointer)
    if(USM_SANITIZE MATCHES "undefined")
        list(APPEND sanitize -fno-sanitize-recover=undefined)
    endif()
    target_compile_options(usm_dev INTERFACE ${sanitize})
    target_link_options(usm_dev INTERFACE ${sanitize})
endif()
if(USM_COVERAGE)
    target_compile_options(usm_dev INTERFACE --coverage -O0 -fprofile-update=atomic)
    target_link_options(usm_dev INTERFACE --coverage)
endif()
if(USM_FUZZERS)
    if(NOT CMAKE_C_COMPILER_ID MATCHES "Clang")
        message(FATAL_ERROR "USM_FUZZERS=ON needs clang: -DCMAKE_C_COMPILER=clang")
    endif()
    # What libFuzzer steers by; the runtime itself is linked by usm_add_fuzzer() alone.
    target_compile_options(usm_dev INTERFACE -fsanitize=fuzzer-no-link)
endif()

# usm_auto_option(<option> <found?> <missing> <variable>)
# Settles an AUTO|ON|OFF option: sets <variable>, and fails when ON cannot be had.
function(usm_auto_option option found missing variable)
    if("${${option}}" STREQUAL "AUTO")
        set(result ${found})
        if(NOT found)
            message(STATUS "usm: ${option}=AUTO, left out: ${missing} not found")
        endif()
    elseif(${option})
        if(NOT found)
            message(FATAL_ERROR "${option}=ON, but ${missing} was not found")
        endif()
        set(result TRUE)
    else()
        set(result FALSE)
    endif()
    set(${variable} ${result} PARENT_SCOPE)
endfunction()
