# The targets `format` and `format-check`: clang-format over every C source that git knows
# (tests/check_format.sh does it and says which version it wants).
#
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

add_custom_target(format
    COMMAND "${PROJECT_SOURCE_DIR}/tests/check_format.sh" --fix
    WORKING_DIRECTORY "${PROJECT_SOURCE_DIR}" VERBATIM USES_TERMINAL)
add_custom_target(format-check
    COMMAND "${PROJECT_SOURCE_DIR}/tests/check_format.sh"
    WORKING_DIRECTORY "${PROJECT_SOURCE_DIR}" VERBATIM USES_TERMINAL)
