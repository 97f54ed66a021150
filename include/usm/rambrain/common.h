/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* What all headers of Rambrain's names give: the interface, its macros for messages, and the names of
 * std without a prefix, as its programs expect. */
#ifndef USM_RAMBRAIN_COMMON_H
#define USM_RAMBRAIN_COMMON_H

#include <usm/rambrain.hpp>

#include <chrono>
#include <cstdio>
#include <iostream>

using namespace std;

#define errmsgf(format, ...)  (void)std::fprintf(stderr, "error: " format "\n", __VA_ARGS__)
#define warnmsgf(format, ...) (void)std::fprintf(stderr, "warning: " format "\n", __VA_ARGS__)
#define infomsgf(format, ...) (void)std::fprintf(stderr, "info: " format "\n", __VA_ARGS__)
#define errmsg(text)          errmsgf("%s", text)
#define warnmsg(text)         warnmsgf("%s", text)
#define infomsg(text)         infomsgf("%s", text)

#endif
