/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Pins of several ranges (buffer/pins.h). */
#include "buffer/pins.h"

#include "buffer/command.h"

void usm__pins_give(size_t n, const usm__pin *list)
{
    for (size_t i = 0; i < n; i++)
        usm__space_unpin(list[i].space, list[i].offset, list[i].size, list[i].mode);
}

/* How many of the pins, from the first on, are of one engine: nearly always all. */
static size_t run_of_engine(size_t n, const usm__pin *list)
{
    size_t i = 1;

    while (i < n && list[i].space->spill == list[0].space->spill)
        i++;
    return i;
}

/* Pins all if each is in one block in memory: the common case, without a lock. */
static bool all_hit(size_t n, const usm__pin *list)
{
    for (size_t i = 0; i < n; i++) {
        const usm__pin *p = &list[i];

        if (usm__space_pin_hit(p->space, p->offset, p->size, p->mode))
            continue;
        usm__pins_give(i, list);
        return false;
    }
    return true;
}

usm_status usm__pins_take(size_t n, const usm__pin *list)
{
    usm_status st = USM_OK;

    if (all_hit(n, list))
        return USM_OK;
    for (size_t i = 0, run; i < n; i += run) {
        run = run_of_engine(n - i, list + i);
        st  = usm__spill_pin(list[i].space->spill, run, list + i);
        if (st != USM_OK) {
            usm__pins_give(i, list);
            break;
        }
    }
    return st;
}

usm_status usm__pins_take_waiting(size_t n, const usm__pin *list)
{
    for (;;) {
        uint64_t   ended = usm__commands_ended();
        usm_status st    = usm__pins_take(n, list);

        if (st != USM_E_AGAIN || !usm__commands_await_end(ended))
            return st;
    }
}
