/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The machine around the library: the folder of the cache, limits of memory, userfaultfd. */
#include "doctor.h"
#include "table.h"

#include "base/os.h"
#include "base/settings.h"
#include "base/text.h"
#include "managed/mechanism.h"
#include "program/disk_cache.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

/* With less, drivers that pin host memory were seen to fail allocations; systemd allows 8 MiB,
 * older systems 64 KiB. */
#define WANTED_MEMLOCK ((rlim_t)8 << 20)

/* The folder itself, or the nearest existing one above it: the one that must be writable.  Cuts
 * `path`. */
static int nearest_writable(char *path)
{
    while (access(path, F_OK) != 0) {
        char *slash = strrchr(path, '/');

        if (errno != ENOENT || !slash)
            break;
        slash[slash == path] = '\0';
    }
    return faccessat(AT_FDCWD, path, W_OK | X_OK, AT_EACCESS) == 0 ? 0 : errno;
}

/* Without a cache kernels are compiled at each start, which only costs time: a problem only if the
 * user chose the folder. */
void doctor_check_cache(doctor *d)
{
    bool is_chosen = *usm__setting_text("cache_dir") != '\0';
    char folder[PATH_MAX], *cut;
    int  error;

    if (!usm__disk_cache_folder(folder, sizeof folder)) {
        doctor_add(d, FINDING_OK, "kernel cache",
                   tool_printf("Compiled kernels are not kept on disk."), NULL);
        return;
    }
    cut   = tool_printf("%s", folder);
    error = nearest_writable(cut);
    if (error)
        doctor_add(d, is_chosen ? FINDING_PROBLEM : FINDING_NOTE, "kernel cache",
                   tool_printf("%s cannot be written (%s): kernels are compiled at every start.",
                               folder, strerror(error)),
                   tool_printf("Make it writable, or name another folder in USM_CACHE_DIR."));
    else
        doctor_add(d, FINDING_OK, "kernel cache", tool_printf("%s can be written.", folder), NULL);
    free(cut);
}

static void check_memlock(doctor *d)
{
    struct rlimit limit;
    char          text[32];

    if (getrlimit(RLIMIT_MEMLOCK, &limit) || limit.rlim_cur == RLIM_INFINITY)
        return;
    if (limit.rlim_cur < WANTED_MEMLOCK)
        doctor_add(d, FINDING_NOTE, "limits",
                   tool_printf("Only %s of memory may be locked: drivers that pin host memory run "
                               "out early.",
                               usm__format_bytes(limit.rlim_cur, text, sizeof text)),
                   tool_printf("Raise it: ulimit -l unlimited, or memlock in "
                               "/etc/security/limits.conf."));
}

static void check_overcommit(doctor *d)
{
    char *path = doctor_path(d, "/proc/sys/vm/overcommit_memory");
    FILE *in   = fopen(path, "re");

    if (in && fgetc(in) == '2')
        doctor_add(d, FINDING_NOTE, "limits",
                   tool_printf("The kernel refuses to overcommit (vm.overcommit_memory is 2): "
                               "address space that is only reserved counts as used."),
                   tool_printf("sudo sysctl vm.overcommit_memory=0, or raise "
                               "vm.overcommit_ratio."));
    if (in)
        fclose(in);
    free(path);
}

void doctor_check_limits(doctor *d)
{
    size_t before = d->nfindings;

    check_memlock(d);
    check_overcommit(d);
    if (d->nfindings == before)
        doctor_add(d, FINDING_OK, "limits", tool_printf("Memory may be locked and overcommitted."),
                   NULL);
}

/* With memory of this program's in place of an arena. */
static void describe_mechanism(doctor *d, const usm__mechanism *m)
{
    const char *how =
        m->moves ? "libusm moves pages" : "libusm copies pages (Linux 6.8 can move them)";

    if (m->is_user_only)
        doctor_add(d, FINDING_NOTE, "managed memory",
                   tool_printf("It works: %s, but system calls into blocks that are not in memory "
                               "fail with EFAULT.",
                               how),
                   tool_printf("Pin what system calls get, or: sudo sysctl "
                               "vm.unprivileged_userfaultfd=1, or let the user open "
                               "/dev/userfaultfd."));
    else
        doctor_add(d, FINDING_OK, "managed memory",
                   tool_printf("It works: %s, and system calls reach it.", how), NULL);
}

void doctor_check_managed(doctor *d)
{
    const size_t   size  = (size_t)2 << 20;
    char          *arena = usm__os_map(size, PROT_READ | PROT_WRITE);
    usm__mechanism m;

    if (!arena)
        return;
    if (usm__mechanism_open(&m, arena, size, true) == USM_OK) {
        describe_mechanism(d, &m);
        (void)usm__os_close(m.fd);
    } else {
        doctor_add(d, FINDING_NOTE, "managed memory",
                   tool_printf("usm_alloc_managed() fails: %s.", usm_last_error()), NULL);
    }
    (void)usm__os_unmap(arena, size);
}
