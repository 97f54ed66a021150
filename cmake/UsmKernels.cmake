# usm_add_kernels(<target> <file.cl> [NAME <symbol>] [OPTIONS <option>...])
#
# Puts the kernels of one OpenCL C file into <target>, as text and, where clang and llvm-spirv are
# installed, as SPIR-V too.  <symbol> is the file's name without .cl unless NAME says otherwise.
# The target can then
#
#     #include "<symbol>_kernels.h"   // const unsigned char <symbol>_kernels[];
#                                     // const size_t <symbol>_kernels_size;
#     usm_image image = {USM_IMAGE_BUNDLE, <symbol>_kernels, <symbol>_kernels_size};
#
# and the device takes the image that it can run: OpenCL either, Level Zero the SPIR-V, for it compiles
# no text.  OPTIONS go to clang; those that define a macro
# (-DN=4) also reach the text, as #define lines, and what the file includes in quotes, headers of libusm for
# OpenCL C among it ("usm/template_cl.h"), stands in it, so that both images are the same program.
#
# The bundle, <symbol>.usmk, is: a line "USMK1 <entries>", a line "<type> <bytes>" for each entry
# (type: opencl_c or spirv), an empty line, then the payloads one after the other.
# `usm-info --program <symbol>.usmk` says which of them runs where.
#
# Used by libusm's own build and, from the installed package, by everyone else's.
#
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
include_guard(GLOBAL)
cmake_policy(PUSH)
cmake_policy(VERSION 3.25) # whatever the policies of the project that includes this

# Looks once for a clang and the llvm-spirv of the same major version.
function(_usm_find_spirv_tools)
    get_property(known GLOBAL PROPERTY USM_SPIRV_TOOLS SET)
    if(known)
        return()
    endif()
    set_property(GLOBAL PROPERTY USM_SPIRV_TOOLS "")
    find_program(USM_CLANG NAMES clang clang-20 clang-19 clang-18 clang-17 clang-16 clang-15 clang-14
        DOC "clang that compiles OpenCL C for usm_add_kernels()")
    mark_as_advanced(USM_CLANG)
    if(NOT USM_CLANG)
        message(STATUS "usm_add_kernels: text only, no SPIR-V: clang not found")
        return()
    endif()
    execute_process(COMMAND "${USM_CLANG}" -dumpversion OUTPUT_VARIABLE version
        OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
    string(REGEX MATCH "^[0-9]+" major "${version}")
    if(USM_LLVM_SPIRV AND NOT USM_LLVM_SPIRV_MAJOR STREQUAL major)
        unset(USM_LLVM_SPIRV CACHE) # another clang than last time
    endif()
    find_program(USM_LLVM_SPIRV NAMES llvm-spirv-${major} llvm-spirv
        DOC "llvm-spirv of the same major version as USM_CLANG")
    mark_as_advanced(USM_LLVM_SPIRV)
    if(USM_LLVM_SPIRV)
        execute_process(COMMAND "${USM_LLVM_SPIRV}" --version OUTPUT_VARIABLE text ERROR_QUIET)
        string(REGEX MATCH "LLVM version ([0-9]+)" found "${text}")
        set(found "${CMAKE_MATCH_1}")
    endif()
    if(NOT USM_LLVM_SPIRV OR NOT found STREQUAL major)
        message(STATUS "usm_add_kernels: text only, no SPIR-V: no llvm-spirv for clang ${major}"
            " (Debian: llvm-spirv-${major})")
        return()
    endif()
    set(USM_LLVM_SPIRV_MAJOR ${major} CACHE INTERNAL "")
    set_property(GLOBAL PROPERTY USM_SPIRV_TOOLS "${USM_CLANG};${USM_LLVM_SPIRV}")
    message(STATUS "usm_add_kernels: text and SPIR-V (clang ${major}, ${USM_LLVM_SPIRV})")
endfunction()

function(usm_add_kernels target source)
    cmake_parse_arguments(PARSE_ARGV 2 arg "" "NAME" "OPTIONS")
    if(NOT TARGET "${target}")
        message(FATAL_ERROR "usm_add_kernels: there is no target ${target}")
    endif()
    if(DEFINED arg_UNPARSED_ARGUMENTS)
        message(FATAL_ERROR "usm_add_kernels: what is \"${arg_UNPARSED_ARGUMENTS}\"?  One file a"
            " call, then NAME and OPTIONS")
    endif()
    cmake_path(ABSOLUTE_PATH source BASE_DIRECTORY "${CMAKE_CURRENT_SOURCE_DIR}" NORMALIZE)
    if(NOT EXISTS "${source}")
        message(FATAL_ERROR "usm_add_kernels: there is no ${source}")
    endif()
    if(NOT arg_NAME)
        cmake_path(GET source STEM LAST_ONLY arg_NAME)
    endif()
    if(NOT arg_NAME MATCHES "^[A-Za-z_][A-Za-z0-9_]*$")
        message(FATAL_ERROR "usm_add_kernels: \"${arg_NAME}\" is no C identifier, give one by NAME")
    endif()

    _usm_find_spirv_tools()
    get_property(tools GLOBAL PROPERTY USM_SPIRV_TOOLS)
    get_property(languages GLOBAL PROPERTY ENABLED_LANGUAGES)
    if("C" IN_LIST languages)
        set(suffix c)
    else()
        set(suffix cpp)
    endif()
    get_target_property(dir ${target} BINARY_DIR)
    set(dir "${dir}/${target}_kernels")
    file(MAKE_DIRECTORY "${dir}")
    set(bundle "${dir}/${arg_NAME}.usmk")
    set(script "${CMAKE_CURRENT_FUNCTION_LIST_DIR}/UsmEmbedKernels.cmake")

    # What the text may include as "usm/...": beside this file in the source, or in an installed package.
    set(headers "")
    foreach(up IN ITEMS ../include ../../../include ../../../../include)
        cmake_path(ABSOLUTE_PATH up BASE_DIRECTORY "${CMAKE_CURRENT_FUNCTION_LIST_DIR}" NORMALIZE)
        if(NOT headers AND EXISTS "${up}/usm/template_cl.h")
            set(headers "${up}")
        endif()
    endforeach()

    set(spirv "")
    set(defines ${arg_OPTIONS})
    list(FILTER defines INCLUDE REGEX "^-D.")
    if(tools)
        list(GET tools 0 clang)
        list(GET tools 1 llvm_spirv)
        set(bitcode "${dir}/${arg_NAME}.bc")
        set(spirv "${dir}/${arg_NAME}.spv")
        cmake_path(GET source PARENT_PATH source_dir)
        add_custom_command(
            OUTPUT "${spirv}"
            BYPRODUCTS "${bitcode}"
            # llvm-spirv knows no reductions of vectors, which clang makes of a sum of neighbours.
            COMMAND "${clang}" -c -emit-llvm -target spir64 -cl-std=CL1.2 -O2
                    -fno-vectorize -fno-slp-vectorize
                    -Xclang -finclude-default-header -I "${source_dir}" -I "${headers}" ${arg_OPTIONS}
                    -MD -MF "${spirv}.d" -MQ "${spirv}" -o "${bitcode}" "${source}"
            COMMAND "${llvm_spirv}" "${bitcode}" -o "${spirv}"
            DEPENDS "${source}"
            DEPFILE "${spirv}.d"
            COMMENT "Compiling ${arg_NAME} kernels to SPIR-V"
            VERBATIM)
    endif()
    add_custom_command(
        OUTPUT "${bundle}" "${dir}/${arg_NAME}_kernels.${suffix}" "${dir}/${arg_NAME}_kernels.h"
        COMMAND "${CMAKE_COMMAND}" "-DNAME=${arg_NAME}" "-DDIR=${dir}" "-DSUFFIX=${suffix}"
                "-DSOURCE=${source}" "-DSPIRV=${spirv}" "-DDEFINES=${defines}" "-DHEADERS=${headers}" -P "${script}"
        DEPENDS "${source}" ${spirv} "${script}"
        DEPFILE "${bundle}.d"
        COMMENT "Embedding ${arg_NAME} kernels"
        VERBATIM)
    target_sources(${target} PRIVATE
        "${dir}/${arg_NAME}_kernels.${suffix}" "${dir}/${arg_NAME}_kernels.h")
    target_include_directories(${target} PRIVATE "${dir}")
endfunction()
cmake_policy(POP)
