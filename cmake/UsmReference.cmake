# The target `reference`: the interface as HTML, by doxygen (docs/Doxyfile.in), in reference/html of the build
# folder.  `./run docs` installs doxygen and builds it.
#
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

find_program(USM_DOXYGEN doxygen DOC "doxygen, for the target reference")
mark_as_advanced(USM_DOXYGEN)
add_feature_info(reference USM_DOXYGEN "the interface as HTML, by doxygen (Debian: doxygen)")
if(USM_DOXYGEN)
    configure_file("${PROJECT_SOURCE_DIR}/docs/Doxyfile.in" "${PROJECT_BINARY_DIR}/reference/Doxyfile" @ONLY)
    add_custom_target(reference
        COMMAND "${USM_DOXYGEN}" "${PROJECT_BINARY_DIR}/reference/Doxyfile"
        COMMENT "Writing reference/html" VERBATIM)
endif()
