# Loadable modules of libusm, and archives for them.  They see include/usm, the header-only helpers of
# src/base/inline as "base/inline/...", and src/group as "group/...", and nothing else of the sources: a
# folder of the build tree holds links to these.
#
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

set(USM_MODULE_VIEW "${PROJECT_BINARY_DIR}/module-include")
file(MAKE_DIRECTORY "${USM_MODULE_VIEW}/base")
foreach(folder IN ITEMS base/inline group)
    file(CREATE_LINK "${PROJECT_SOURCE_DIR}/src/${folder}" "${USM_MODULE_VIEW}/${folder}" SYMBOLIC)
endforeach()

# usm_add_module_archive(<name> <file>...): an archive of what several modules share
function(usm_add_module_archive name)
    add_library(${name} STATIC EXCLUDE_FROM_ALL ${ARGN})
    target_include_directories(${name} PRIVATE "${USM_MODULE_VIEW}"
        PUBLIC "${PROJECT_SOURCE_DIR}/include" "${PROJECT_BINARY_DIR}/include")
    target_link_libraries(${name} PRIVATE usm_dev Threads::Threads)
    set_target_properties(${name} PROPERTIES POSITION_INDEPENDENT_CODE ON)
endfunction()

# usm_add_module(<name> MAP <file> SOURCES <file>... [INCLUDES <dir>...])
#
# A module: lib<name>.so, with <file> as version script.  It links nothing of libusm but such archives;
# all else that it needs comes in the table that its entry is given.
function(usm_add_module name)
    cmake_parse_arguments(PARSE_ARGV 1 arg "" "MAP" "SOURCES;INCLUDES")
    add_library(${name} MODULE ${arg_SOURCES})
    target_include_directories(${name} PRIVATE
        "${PROJECT_SOURCE_DIR}/include" "${PROJECT_BINARY_DIR}/include" "${USM_MODULE_VIEW}")
    target_include_directories(${name} SYSTEM PRIVATE ${arg_INCLUDES})
    target_link_libraries(${name} PRIVATE usm_dev Threads::Threads ${CMAKE_DL_LIBS})
    set(map "${CMAKE_CURRENT_SOURCE_DIR}/${arg_MAP}")
    target_link_options(${name} PRIVATE
        "LINKER:--version-script=${map}" LINKER:-z,nodelete LINKER:--as-needed)
    if(NOT USM_SANITIZE)
        target_link_options(${name} PRIVATE LINKER:--no-undefined)
    endif()
    set_target_properties(${name} PROPERTIES LINK_DEPENDS "${map}")
    add_dependencies(usm_modules ${name})
    set(component runtime)
    if(name MATCHES "^usm_transport_(mpi_.*)$")
        set(component ${CMAKE_MATCH_1})
    endif()
    usm_install_built(${name} ${component}
        LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}/usm-${USM_MODULE_ABI}")
endfunction()

# usm_add_driver_backend(<name> TITLE <title> HEADER <file> PACKAGE <name> SOURCES <file>...)
#
# The module usm_backend_<name> over the driver interface <title>: it needs <HEADER> (in the folder
# USM_<NAME>_INCLUDE_DIR, looked for here; in Debian in <PACKAGE>) to build and the interface's loader
# only to run.  With <name>.map, and with what such backends share (backends/common).  The option
# USM_BACKEND_<NAME> says whether it is wanted; there is no such target where it is not built.
function(usm_add_driver_backend name)
    cmake_parse_arguments(PARSE_ARGV 1 arg "" "TITLE;HEADER;PACKAGE" "SOURCES")
    string(TOUPPER "${name}" upper)
    set(folder USM_${upper}_INCLUDE_DIR)
    find_path(${folder} ${arg_HEADER} DOC "Folder that holds ${arg_HEADER}")
    mark_as_advanced(${folder})
    set(found FALSE)
    if(${folder})
        set(found TRUE)
    endif()
    usm_auto_option(USM_BACKEND_${upper} ${found} "${arg_HEADER} (Debian: ${arg_PACKAGE})" build)
    add_feature_info(USM_BACKEND_${upper} build "the ${arg_TITLE} backend, a module")
    if(NOT build)
        return()
    endif()
    set(common
        ../backends/common/commands.c
        ../backends/common/defer.c
        ../backends/common/instances.c
        ../backends/common/kinds.c
        ../backends/common/library.c
        ../backends/common/registry.c
        ../backends/common/spirv.c)
    list(TRANSFORM common PREPEND "${CMAKE_CURRENT_FUNCTION_LIST_DIR}/")
    usm_add_module(usm_backend_${name} MAP ${name}.map INCLUDES "${${folder}}"
        SOURCES ${common} ${arg_SOURCES})
endfunction()
