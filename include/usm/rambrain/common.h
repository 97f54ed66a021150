/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* A name that programs of Rambrain include, with its macros for messages. */
#include <usm/rambrain.hpp>
