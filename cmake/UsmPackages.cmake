# Debian packages, by `cpack` in the build folder (`./run package`): one for each component that
# cmake/UsmInstall.cmake tells.  Modules for an MPI are packages of their own, so that libusm0 needs none.
#
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

if(NOT USM_SHARED)
    return() # they are those of the shared library
endif()
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME libusm)
set(CPACK_PACKAGE_VENDOR libusm)
set(CPACK_PACKAGE_CONTACT "libusm maintainers" CACHE STRING "Maintainer of the packages, as in Name <address>")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION libs)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS "${PROJECT_BINARY_DIR}/lib")
set(CPACK_COMPONENTS_ALL "")

# usm_package(<component> <package> <summary> [<field> <value>]...)
macro(usm_package component package summary)
    string(TOUPPER "${component}" upper)
    list(APPEND CPACK_COMPONENTS_ALL ${component})
    set(CPACK_DEBIAN_${upper}_PACKAGE_NAME "${package}")
    set(CPACK_DEBIAN_${upper}_DESCRIPTION "${summary}")
    set(fields ${ARGN})
    while(fields)
        list(POP_FRONT fields field value)
        set(CPACK_DEBIAN_${upper}_PACKAGE_${field} "${value}")
    endwhile()
endmacro()

set(same "libusm0 (= ${PROJECT_VERSION})")
usm_package(runtime libusm0 "unified shared memory for C: library and modules"
    # Loaded when a program selects their devices.
    SUGGESTS "ocl-icd-libopencl1, libze1" GENERATE_SHLIBS ON)
usm_package(development libusm-dev "unified shared memory for C: headers, samples, documents"
    DEPENDS "${same}, libc6-dev" SUGGESTS "clang, cmake, pkg-config" SECTION libdevel)
if(USM_TOOLS)
    usm_package(tools libusm-tools "unified shared memory for C: usm-info and the other tools"
        DEPENDS "${same}" SECTION utils)
endif()
foreach(mpi IN ITEMS openmpi mpich mpich12 abi)
    if(TARGET usm_transport_mpi_${mpi})
        usm_package(mpi_${mpi} libusm-mpi-${mpi} "unified shared memory for C: memory of other nodes over ${mpi}"
            DEPENDS "${same}")
    endif()
endforeach()
include(CPack)
