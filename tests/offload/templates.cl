/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The kernels of test_templates.c for devices that compile no text. */
#include "usm/template_cl.h"
#include "templates_bodies.h"
