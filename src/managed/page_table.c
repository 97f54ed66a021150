/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Whether a huge page stays one when it is moved to an address that has a page table.  Called by
 * mechanism.c.
 *
 * The first access to 2 MiB where nothing is has two ways through the kernel.  Where huge pages are
 * asked for (MADV_HUGEPAGE) it zeroes one, finds that userfaultfd watches the address, and throws
 * the page away: 40 to 200 us.  Elsewhere it makes a page table and zeroes a small page: 3 us, but
 * UFFDIO_MOVE splits a huge page that it moves to where a page table is.  Linux 6.14 can free a page
 * table that MADV_DONTNEED has emptied (CONFIG_PT_RECLAIM), so that the second way serves, 17 us a
 * fault.  Nothing says whether it does: it is tried. */
#include "managed/mechanism.h"

#include "base/os.h"

#include <fcntl.h>
#include <stdint.h>
#include <sys/ioctl.h>
#include <sys/mman.h>

/* Newer than the headers of the systems that libusm builds on (Linux 6.7, <linux/fs.h>). */
#define IS_PRESENT (UINT64_C(1) << 3)
#define IS_SWAPPED (UINT64_C(1) << 4)
#define IS_HUGE    (UINT64_C(1) << 6)

struct region {
    uint64_t start, end, categories;
};

struct scan {
    uint64_t size, flags, start, end, walk_end, regions, nregions, most_pages;
    uint64_t inverted, all_of, any_of, returned;
};

#define IOCTL_SCAN _IOWR('f', 16, struct scan)

/* How many stretches of [p, p + 2 MiB) have one of these; 0 or 1, or -1 where the kernel cannot tell. */
static int scan(const char *p, uint64_t categories)
{
    struct region region;
    struct scan   a  = {.size     = sizeof a,
                        .start    = (uintptr_t)p,
                        .end      = (uintptr_t)p + USM__HUGE_PAGE,
                        .regions  = (uintptr_t)&region,
                        .nregions = 1,
                        .any_of   = categories,
                        .returned = categories};
    int           fd = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
    int           n  = fd < 0 ? -1 : ioctl(fd, IOCTL_SCAN, &a);

    if (fd >= 0)
        (void)usm__os_close(fd);
    return n;
}

void usm__mechanism_free_tables(char *at, size_t size)
{
    for (char *p = at; p < at + size; p += USM__HUGE_PAGE)
        if (scan(p, IS_PRESENT | IS_SWAPPED) == 0)
            (void)madvise(p, USM__HUGE_PAGE, MADV_DONTNEED);
}

/* Two huge pages at p are for the trial. */
static bool stays_huge(const usm__mechanism *m, char *p)
{
    char *to = p + USM__HUGE_PAGE;

    (void)madvise(p, USM__HUGE_PAGE, MADV_HUGEPAGE);
    (void)madvise(to, USM__HUGE_PAGE, MADV_NOHUGEPAGE);
    *(volatile char *)p = *(volatile char *)to = 1;
    (void)madvise(to, USM__HUGE_PAGE, MADV_DONTNEED); /* leaves the table, or frees it */
    return scan(p, IS_HUGE) == 1 && usm__mechanism_watch(m, to, USM__HUGE_PAGE) == 0 &&
           usm__mechanism_place(m, p, to, USM__HUGE_PAGE, false) == 0 && scan(to, IS_HUGE) == 1;
}

bool usm__mechanism_tries_tables(const usm__mechanism *m)
{
    usm__mechanism trial = *m;
    char          *all   = usm__os_map_noreserve(3 * USM__HUGE_PAGE);
    bool           is_so;

    if (!all)
        return false;
    trial.frees_tables = true;
    is_so              = stays_huge(&trial, all + (-(uintptr_t)all & (USM__HUGE_PAGE - 1)));
    (void)usm__os_unmap(all, 3 * USM__HUGE_PAGE);
    return is_so;
}
