# usm_install_built(<target> <component> [<argument of install(TARGETS)>...])
#
# Installs <target> where it is built; where it is not, `cmake --install` says so and goes on: a user who
# built a part of libusm (`./run demo`, or one target) installs that part.
#
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

function(usm_install_built name component)
    if(NOT USM_INSTALL)
        return()
    endif()
    install(TARGETS ${name} OPTIONAL ${ARGN} COMPONENT ${component})
    install(CODE "if(NOT EXISTS \"$<TARGET_FILE:${name}>\")
    message(STATUS \"Left out, not built: ${name}\")
endif()" COMPONENT ${component})
endfunction()
