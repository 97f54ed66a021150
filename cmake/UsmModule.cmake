# usm_add_module(<name> MAP <file> SOURCES <file>... [INCLUDES <dir>...])
#
# A loadable module of libusm: lib<name>.so, with <file> as version script.  It sees include/usm and
# the header-only helpers of src/base/inline as "base/inline/...", and nothing else of the sources:
# a folder of the build tree holds a link to that one folder.  It links nothing of libusm; all it
# needs comes in the table that its entry is given.
#
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

function(usm_add_module name)
    cmake_parse_arguments(PARSE_ARGV 1 arg "" "MAP" "SOURCES;INCLUDES")
    set(view "${PROJECT_BINARY_DIR}/module-include")
    file(MAKE_DIRECTORY "${view}/base")
    file(CREATE_LINK "${PROJECT_SOURCE_DIR}/src/base/inline" "${view}/base/inline" SYMBOLIC)

    add_library(${name} MODULE ${arg_SOURCES})
    target_include_directories(${name} PRIVATE
        "${PROJECT_SOURCE_DIR}/include" "${PROJECT_BINARY_DIR}/include" "${view}")
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
        ../backends/common/gate.c
        ../backends/common/instances.c
        ../backends/common/kinds.c
        ../backends/common/library.c
        ../backends/common/registry.c
        ../backends/common/spirv.c)
    list(TRANSFORM common PREPEND "${CMAKE_CURRENT_FUNCTION_LIST_DIR}/")
    usm_add_module(usm_backend_${name} MAP ${name}.map INCLUDES "${${folder}}"
        SOURCES ${common} ${arg_SOURCES})
endfunction()
