# usm_install_built(<target> [<argument of install(TARGETS)>...])
#
# Installs <target> where it is built; where it is not, `cmake --install` says so and goes on: a user who
# built a part of libusm (`./run demo`, or one target) installs that part.
#
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

function(usm_install_built name)
    if(NOT USM_INSTALL)
        return()
    endif()
    install(TARGETS ${name} OPTIONAL ${ARGN})
    install(CODE "if(NOT EXISTS \"$<TARGET_FILE:${name}>\")
    message(STATUS \"Left out, not built: ${name}\")
endif()")
endfunction()
