/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The device nodes of GPUs: may this user open them, and is there a driver that would?  A node that
 * cannot be opened makes its GPU invisible without any message. */
#include "doctor.h"
#include "table.h"

#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <grp.h>
#include <pwd.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define CHECK "device nodes"

/* The nodes of a vendor, and its OpenCL driver. */
typedef struct gpu_vendor {
    const char *id; /* PCI vendor, as /sys has it; NULL: the vendor has nodes of its own */
    const char *name;
    const char *driver; /* part of the library's name in an .icd file */
    const char *install;
} gpu_vendor;

static const gpu_vendor vendors[] = {
    {"0x8086", "Intel", "libigdrcl", "Install intel-opencl-icd."},
    {"0x1002", "AMD", "amdocl", "Install ROCm's OpenCL (rocm-opencl-icd), or mesa-opencl-icd."},
    {"0x10de", "NVIDIA", "libnvidia-opencl",
     "Install nvidia-opencl-icd; in a container, where the library is mounted but not announced, "
     "write a file nvidia.icd with the line libnvidia-opencl.so.1 into /etc/OpenCL/vendors."},
};
#define NVIDIA (&vendors[2])

static char *user_name(void)
{
    const struct passwd *pw = getpwuid(geteuid());

    return pw ? tool_printf("%s", pw->pw_name) : tool_printf("%u", (unsigned)geteuid());
}

static char *remedy_for_access(const struct stat *st)
{
    const struct group *group = getgrgid(st->st_gid);
    char               *user  = user_name(), *remedy;

    if ((st->st_mode & (S_IRGRP | S_IWGRP)) != (S_IRGRP | S_IWGRP))
        remedy = tool_printf("Ask for access to it: its mode %03o lets no group in.",
                             (unsigned)st->st_mode & 0777);
    else if (group && st->st_gid != 0)
        remedy = tool_printf("Join the group %s (sudo usermod -aG %s %s), then log in again.",
                             group->gr_name, group->gr_name, user);
    else
        remedy = tool_printf("Join the group with number %u; in a container: --group-add %u.",
                             (unsigned)st->st_gid, (unsigned)st->st_gid);
    free(user);
    return remedy;
}

/* Whether the node can be opened for reading and writing. */
static bool check_access(doctor *d, const char *path)
{
    struct stat st;

    if (faccessat(AT_FDCWD, path, R_OK | W_OK, AT_EACCESS) == 0)
        return true;
    if (stat(path, &st))
        doctor_add(d, FINDING_PROBLEM, CHECK, tool_printf("%s: %s.", path, strerror(errno)),
                   tool_printf("Let this user enter its folder."));
    else
        doctor_add(d, FINDING_PROBLEM, CHECK,
                   tool_printf("No permission to open %s: the GPU behind it is invisible.", path),
                   remedy_for_access(&st));
    return false;
}

/* The vendor of a render node, from /sys; NULL if it is not a known one. */
static const gpu_vendor *vendor_of(const doctor *d, const char *path)
{
    const char       *name  = strrchr(path, '/') + 1;
    char             *file  = tool_printf("%s/sys/class/drm/%s/device/vendor", d->root, name);
    FILE             *in    = fopen(file, "re");
    char              id[8] = "";
    const gpu_vendor *found = NULL;

    if (in && !fgets(id, sizeof id, in))
        id[0] = '\0';
    if (in)
        fclose(in);
    id[strcspn(id, "\n")] = '\0';
    for (size_t i = 0; i < sizeof vendors / sizeof *vendors; i++) {
        if (strcmp(id, vendors[i].id) == 0)
            found = &vendors[i];
    }
    free(file);
    return found;
}

static void check_driver(doctor *d, const gpu_vendor *vendor, const char *path)
{
    if (doctor_has_icd(d, vendor->driver))
        doctor_add(d, FINDING_OK, CHECK,
                   tool_printf("%s (%s) can be opened and has a driver.", path, vendor->name),
                   NULL);
    else
        doctor_add(d, FINDING_NOTE, CHECK,
                   tool_printf("%s belongs to an %s GPU, but no .icd file names %s: OpenCL does "
                               "not see it.",
                               path, vendor->name, vendor->driver),
                   tool_printf("%s", vendor->install));
}

static void check_render_node(doctor *d, const char *path)
{
    const gpu_vendor *vendor = vendor_of(d, path);

    if (!check_access(d, path))
        return;
    if (vendor && vendor != NVIDIA) /* NVIDIA's OpenCL uses nodes of its own */
        check_driver(d, vendor, path);
    else if (!vendor)
        doctor_add(d, FINDING_OK, CHECK, tool_printf("%s can be opened.", path), NULL);
}

static void check_nvidia_node(doctor *d, const char *path)
{
    if (check_access(d, path))
        check_driver(d, NVIDIA, path);
}

static size_t each_node(doctor *d, const char *pattern, void (*check)(doctor *, const char *))
{
    char  *full = doctor_path(d, pattern);
    glob_t found;
    size_t n = 0;

    if (glob(full, 0, NULL, &found) == 0) {
        for (n = 0; n < found.gl_pathc; n++)
            check(d, found.gl_pathv[n]);
        globfree(&found);
    }
    free(full);
    return n;
}

void doctor_check_nodes(doctor *d)
{
    size_t n = each_node(d, "/dev/dri/renderD*", check_render_node);

    n += each_node(d, "/dev/nvidia[0-9]*", check_nvidia_node);
    if (n == 0)
        doctor_add(d, FINDING_OK, CHECK, tool_printf("There is no GPU's device node here."), NULL);
}
