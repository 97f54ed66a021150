/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* In place of screen.c where ncurses was not there at build time. */
#include "top.h"

bool top_can_show(void)
{
    return false;
}

int top_show(top_model *m, const top_screen *s)
{
    (void)m, (void)s;
    return 1; /* not called */
}
