/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The machine: see web.h.  Devices, their memories and the settings' limits come from usm-info, in
 * a child that a driver may kill; processors, caches, memories and links from sysfs, and from
 * hwloc where it is installed (hwloc.c); use from /proc. */
#include "web.h"

#include "base/os.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { INFO_SECONDS = 60 }; /* usm-info probes each device, and gives up on one by itself */

#define SYS_NODES "/sys/devices/system/node"
#define SYS_CPUS  "/sys/devices/system/cpu"
#define SYS_PCI   "/sys/bus/pci/devices"

int machine_devices(request *r)
{
    static const char *const args[] = {"--json", NULL};
    child_plan               plan   = {.program = "usm-info", .args = args, .folder = -1};
    child_text               out = {.max = TEXT_MAX}, err = {.max = 4096};
    char                     text[128];
    int                      status = 0, http;
    int                      error  = child_run(r->w, &plan, INFO_SECONDS, &out, &err, &status);

    if (error)
        http = answer_error(r, 500, "usm-info: %s", strerror(error));
    else if (!out.size || out.is_cut)
        http = answer_error(r, 500, "usm-info %s", child_end_text(status, text, sizeof text));
    else
        http = answer(r, 200, "application/json", out.text, out.size);
    free(out.text);
    free(err.text);
    return http;
}

/* ---- sysfs ----------------------------------------------------------------------------------- */

/* The first line of a file; "" if there is none. */
static const char *line_of(const char *folder, const char *name, char *text, size_t size)
{
    char  path[PATH_MAX];
    FILE *file;

    *text = '\0';
    (void)snprintf(path, sizeof path, "%s/%s", folder, name);
    file = fopen(path, "re");
    if (!file)
        return text;
    if (fgets(text, (int)size, file))
        text[strcspn(text, "\n")] = '\0';
    (void)fclose(file);
    return text;
}

typedef void visit(usm__json *j, const char *folder, const char *name);

static int by_number(const struct dirent **a, const struct dirent **b)
{
    return strverscmp((*a)->d_name, (*b)->d_name);
}

/* Visits the entries of a folder whose names begin with `prefix` and a digit, by number. */
static void each(usm__json *j, const char *folder, const char *prefix, visit *fn)
{
    struct dirent **names = NULL;
    char            path[PATH_MAX];
    int             n = scandir(folder, &names, NULL, by_number);

    for (int i = 0; i < n; i++) {
        const char *rest = names[i]->d_name + strlen(prefix);

        if (strncmp(names[i]->d_name, prefix, strlen(prefix)) == 0 && *rest >= '0' &&
            *rest <= '9') {
            (void)snprintf(path, sizeof path, "%s/%s", folder, names[i]->d_name);
            fn(j, path, names[i]->d_name);
        }
        free(names[i]);
    }
    free(names);
}

static void write_number_of(usm__json *j, const char *key, const char *folder, const char *name)
{
    char text[64];

    usm__json_signed(j, key, strtol(line_of(folder, name, text, sizeof text), NULL, 10));
}

static void write_line_of(usm__json *j, const char *key, const char *folder, const char *name)
{
    char text[256];

    usm__json_text(j, key, line_of(folder, name, text, sizeof text));
}

static void write_cache(usm__json *j, const char *folder, const char *name)
{
    char type[32];

    (void)name;
    if (strcmp(line_of(folder, "type", type, sizeof type), "Instruction") == 0)
        return;
    usm__json_object_begin(j, NULL);
    write_number_of(j, "level", folder, "level");
    write_line_of(j, "size", folder, "size");
    write_line_of(j, "cpus", folder, "shared_cpu_list");
    usm__json_object_end(j);
}

static void write_cpu(usm__json *j, const char *folder, const char *name)
{
    char path[PATH_MAX];

    usm__json_object_begin(j, NULL);
    usm__json_number(j, "number", strtoul(name + 3, NULL, 10));
    write_number_of(j, "core", folder, "topology/core_id");
    write_number_of(j, "package", folder, "topology/physical_package_id");
    usm__json_array_begin(j, "caches");
    (void)snprintf(path, sizeof path, "%s/cache", folder);
    each(j, path, "index", write_cache);
    usm__json_array_end(j);
    usm__json_object_end(j);
}

/* "Node 0 MemTotal:  24683656 kB" */
static uint64_t node_memory(const char *folder, const char *key)
{
    char     path[PATH_MAX], line[256];
    uint64_t kib = 0;
    FILE    *file;

    (void)snprintf(path, sizeof path, "%s/meminfo", folder);
    file = fopen(path, "re");
    while (file && fgets(line, sizeof line, file)) {
        const char *at = strstr(line, key);

        if (at)
            kib = strtoull(at + strlen(key), NULL, 10);
    }
    if (file)
        (void)fclose(file);
    return kib * 1024;
}

static void write_node(usm__json *j, const char *folder, const char *name)
{
    usm__json_object_begin(j, NULL);
    usm__json_number(j, "number", strtoul(name + 4, NULL, 10));
    usm__json_number(j, "memory", node_memory(folder, "MemTotal:"));
    write_line_of(j, "cpus", folder, "cpulist");
    write_line_of(j, "distances", folder, "distance");
    usm__json_object_end(j);
}

/* Graphics and accelerators, networks, disks: what memory travels to. */
const char *machine_pci_kind(unsigned long class_code)
{
    switch (class_code >> 16) {
    case 0x01:
        return "storage";
    case 0x02:
        return "network";
    case 0x03:
        return "graphics";
    case 0x12:
        return "accelerator";
    default:
        return NULL;
    }
}

static void write_pci(usm__json *j, const char *folder, const char *name)
{
    char        text[64];
    const char *kind =
        machine_pci_kind(strtoul(line_of(folder, "class", text, sizeof text), NULL, 16));

    if (!kind)
        return;
    usm__json_object_begin(j, NULL);
    usm__json_text(j, "address", name);
    usm__json_text(j, "kind", kind);
    write_line_of(j, "vendor", folder, "vendor");
    write_line_of(j, "device", folder, "device");
    write_number_of(j, "node", folder, "numa_node");
    write_line_of(j, "speed", folder, "current_link_speed");
    write_line_of(j, "width", folder, "current_link_width");
    usm__json_object_end(j);
}

static unsigned processors(void)
{
    unsigned limit = usm__os_cgroup_cpus("/proc/self/cgroup", "/sys/fs/cgroup");
    long     all   = sysconf(_SC_NPROCESSORS_ONLN);

    return limit && (long)limit < all ? limit : (unsigned)all;
}

int machine_topology(request *r)
{
    char        host[HOST_NAME_MAX + 1] = "";
    json_answer a;

    if (!json_open(r, &a))
        return 503;
    (void)gethostname(host, sizeof host - 1);
    usm__json_object_begin(&a.j, NULL);
    usm__json_text(&a.j, "host", host);
    usm__json_text(&a.j, "folder", r->w->folder.path);
    usm__json_number(&a.j, "memory", usm__os_memory_total());
    usm__json_number(&a.j, "processors", processors());
    usm__json_array_begin(&a.j, "nodes");
    each(&a.j, SYS_NODES, "node", write_node);
    usm__json_array_end(&a.j);
    usm__json_array_begin(&a.j, "cpus");
    each(&a.j, SYS_CPUS, "cpu", write_cpu);
    usm__json_array_end(&a.j);
    usm__json_array_begin(&a.j, "pci");
    each(&a.j, SYS_PCI, "", write_pci);
    usm__json_array_end(&a.j);
    machine_write_tree(&a.j);
    usm__json_object_end(&a.j);
    return json_close(r, 200, &a);
}

/* ---- use ------------------------------------------------------------------------------------- */

/* "cpu3 user nice system idle iowait irq ...": writes how busy it was since the last time. */
static void write_cpu_use(usm__json *j, machine_use *last, const char *line)
{
    char         *at;
    unsigned long cpu = strtoul(line + 3, &at, 10);
    uint64_t      sum = 0, idle = 0;

    if (cpu >= sizeof last->all / sizeof *last->all)
        return;
    for (int i = 0; i < 8; i++) {
        uint64_t n = strtoull(at, &at, 10);

        sum += n;
        idle += i == 3 || i == 4 ? n : 0;
    }
    usm__json_array_begin(j, NULL);
    usm__json_number(j, NULL, cpu);
    usm__json_real(j, NULL,
                   sum > last->all[cpu]
                       ? (double)(sum - idle - last->busy[cpu]) / (double)(sum - last->all[cpu])
                       : 0,
                   3);
    usm__json_array_end(j);
    last->all[cpu]  = sum;
    last->busy[cpu] = sum - idle;
}

static void write_memory_use(usm__json *j)
{
    char     line[256];
    uint64_t total = 0, available = 0;
    FILE    *file = fopen("/proc/meminfo", "re");

    while (file && fgets(line, sizeof line, file)) {
        if (strncmp(line, "MemTotal:", 9) == 0)
            total = strtoull(line + 9, NULL, 10) * 1024;
        if (strncmp(line, "MemAvailable:", 13) == 0)
            available = strtoull(line + 13, NULL, 10) * 1024;
    }
    if (file)
        (void)fclose(file);
    usm__json_number(j, "total", total);
    usm__json_number(j, "available", available);
}

void machine_write_use(usm__json *j, machine_use *last)
{
    char  line[512];
    FILE *file = fopen("/proc/stat", "re");

    usm__json_object_begin(j, NULL);
    usm__json_array_begin(j, "cpus");
    while (file && fgets(line, sizeof line, file))
        if (strncmp(line, "cpu", 3) == 0 && line[3] >= '0' && line[3] <= '9')
            write_cpu_use(j, last, line);
    if (file)
        (void)fclose(file);
    usm__json_array_end(j);
    write_memory_use(j);
    usm__json_object_end(j);
}
