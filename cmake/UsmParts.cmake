# What USM_PARTS may name, and what needs all of them.
#
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

set(usm_all_parts observe async ipc buffer offload)
foreach(part IN LISTS USM_PARTS)
    if(NOT part IN_LIST usm_all_parts)
        message(FATAL_ERROR "USM_PARTS: \"${part}\" is no part of libusm; there are ${usm_all_parts}")
    endif()
endforeach()
if("buffer" IN_LIST USM_PARTS AND NOT "observe" IN_LIST USM_PARTS)
    message(FATAL_ERROR "USM_PARTS: buffer needs observe, whose trace has its events: add it, or forget the old value with -U USM_PARTS")
endif()
if("offload" IN_LIST USM_PARTS AND NOT "buffer" IN_LIST USM_PARTS)
    message(FATAL_ERROR "USM_PARTS: offload needs buffer")
endif()
set(USM_HAS_ALL_PARTS ON)
foreach(part IN LISTS usm_all_parts)
    if(NOT part IN_LIST USM_PARTS)
        set(USM_HAS_ALL_PARTS OFF)
    endif()
endforeach()
if(NOT USM_HAS_ALL_PARTS AND (USM_TOOLS OR USM_SAMPLES OR USM_BENCH))
    message(FATAL_ERROR "USM_TOOLS, USM_SAMPLES and USM_BENCH need all of USM_PARTS (${usm_all_parts});"
        " set them OFF")
endif()
