# What `cmake --install` puts where: headers, library, modules, tools, the CMake package, libusm.pc and libusm_umf.pc,
# samples and documents.  Modules install themselves (usm_add_module), and so do the tools.  Each has a
# component, which is a package of cmake/UsmPackages.cmake: runtime, development, tools, mpi_<name>.
#
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

include(CMakePackageConfigHelpers)
set(package_dir "${CMAKE_INSTALL_LIBDIR}/cmake/usm")

install(DIRECTORY "${PROJECT_SOURCE_DIR}/include/usm" DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}"
    COMPONENT development FILES_MATCHING PATTERN "*.h" PATTERN "*.hpp")
install(FILES "${PROJECT_BINARY_DIR}/include/usm/version.h"
    DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}/usm" COMPONENT development)

install(TARGETS usm EXPORT usm-targets
    LIBRARY COMPONENT runtime NAMELINK_COMPONENT development
    ARCHIVE COMPONENT development)
install(EXPORT usm-targets NAMESPACE usm:: DESTINATION "${package_dir}" COMPONENT development)
if(TARGET usm_umf)
    install(EXPORT usm-umf-targets NAMESPACE usm:: DESTINATION "${package_dir}" COMPONENT development)
endif()

configure_package_config_file("${PROJECT_SOURCE_DIR}/cmake/usm-config.cmake.in"
    "${PROJECT_BINARY_DIR}/package/usm-config.cmake" INSTALL_DESTINATION "${package_dir}"
    NO_SET_AND_CHECK_MACRO)
# Before 1.0 a minor version may change the ABI.
write_basic_package_version_file("${PROJECT_BINARY_DIR}/package/usm-config-version.cmake"
    COMPATIBILITY SameMinorVersion)
install(FILES
    "${PROJECT_BINARY_DIR}/package/usm-config.cmake"
    "${PROJECT_BINARY_DIR}/package/usm-config-version.cmake"
    "${PROJECT_SOURCE_DIR}/cmake/UsmKernels.cmake"
    "${PROJECT_SOURCE_DIR}/cmake/UsmEmbedKernels.cmake"
    DESTINATION "${package_dir}" COMPONENT development)

# libusm.pc finds its prefix from where it lies: the installed tree may be moved.
cmake_path(IS_ABSOLUTE CMAKE_INSTALL_LIBDIR libdir_is_absolute)
if(libdir_is_absolute)
    set(pc_prefix "${CMAKE_INSTALL_PREFIX}")
else()
    file(RELATIVE_PATH up "/p/${CMAKE_INSTALL_LIBDIR}/pkgconfig" "/p")
    cmake_path(SET up NORMALIZE "${up}")
    string(REGEX REPLACE "/$" "" up "${up}")
    set(pc_prefix "\${pcfiledir}/${up}")
endif()
foreach(dir IN ITEMS LIBDIR INCLUDEDIR)
    cmake_path(IS_ABSOLUTE CMAKE_INSTALL_${dir} is_absolute)
    if(is_absolute)
        set(pc_${dir} "${CMAKE_INSTALL_${dir}}")
    else()
        set(pc_${dir} "\${prefix}/${CMAKE_INSTALL_${dir}}")
    endif()
endforeach()
set(pc_private "-pthread")
foreach(lib IN LISTS CMAKE_DL_LIBS ITEMS m)
    string(APPEND pc_private " -l${lib}")
endforeach()
if(USM_SHARED)
    set(pc_libs "")
else()
    set(pc_libs " ${pc_private}") # there is only the archive: everyone needs them
endif()
configure_file("${PROJECT_SOURCE_DIR}/cmake/libusm.pc.in" "${PROJECT_BINARY_DIR}/package/libusm.pc"
    @ONLY)
install(FILES "${PROJECT_BINARY_DIR}/package/libusm.pc"
    DESTINATION "${CMAKE_INSTALL_LIBDIR}/pkgconfig" COMPONENT development)
if(TARGET usm_umf)
    configure_file("${PROJECT_SOURCE_DIR}/cmake/libusm_umf.pc.in"
        "${PROJECT_BINARY_DIR}/package/libusm_umf.pc" @ONLY)
    install(FILES "${PROJECT_BINARY_DIR}/package/libusm_umf.pc"
        DESTINATION "${CMAKE_INSTALL_LIBDIR}/pkgconfig" COMPONENT development)
endif()

# Each sample is a project of its own against an installed libusm.  Links between the documents hold.
install(DIRECTORY "${PROJECT_SOURCE_DIR}/samples" DESTINATION "${CMAKE_INSTALL_DOCDIR}" COMPONENT development)
install(FILES "${PROJECT_SOURCE_DIR}/README.md" "${PROJECT_SOURCE_DIR}/CHANGELOG.md" "${PROJECT_SOURCE_DIR}/LICENSE"
    DESTINATION "${CMAKE_INSTALL_DOCDIR}" COMPONENT development)
install(DIRECTORY "${PROJECT_SOURCE_DIR}/docs" DESTINATION "${CMAKE_INSTALL_DOCDIR}" COMPONENT development
    FILES_MATCHING PATTERN "*.md" PATTERN "*.svg" PATTERN "*.png" PATTERN man EXCLUDE)
if(TARGET reference) # where `./run docs` has built it
    install(DIRECTORY "${PROJECT_BINARY_DIR}/reference/html" DESTINATION "${CMAKE_INSTALL_DOCDIR}"
        COMPONENT development OPTIONAL)
endif()

if(PROJECT_IS_TOP_LEVEL)
    add_custom_target(uninstall
        COMMAND "${CMAKE_COMMAND}" "-DBUILD=${PROJECT_BINARY_DIR}" -P "${PROJECT_SOURCE_DIR}/cmake/UsmUninstall.cmake"
        VERBATIM)
    include(UsmPackages) # what cpack makes
endif()
