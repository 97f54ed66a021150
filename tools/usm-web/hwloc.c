/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The machine as hwloc knows it: a tree of the objects that lstopo draws, of which those of memory and
 * those of input and output hang beside the processors'.  Without hwloc: no_hwloc.c. */
#include "web.h"

#include <hwloc.h>
#include <stdlib.h>

/* hwloc's components that start drivers: usm-info asks those, in a process of its own.  Those that are
 * plugins are not to be loaded at all. */
static const char *const drivers[] = {"opencl", "cuda", "nvml", "rsmi", "levelzero", "gl"};

static void write_list(usm__json *j, const char *key, hwloc_obj_t first);

static void write_pci(usm__json *j, const struct hwloc_pcidev_attr_s *d)
{
    const char *kind = machine_pci_kind((unsigned long)d->class_id << 8);
    char        address[32], vendor[16], device[16];

    (void)snprintf(vendor, sizeof vendor, "0x%04x", d->vendor_id);
    (void)snprintf(device, sizeof device, "0x%04x", d->device_id);
    (void)snprintf(address, sizeof address, "%04x:%02x:%02x.%x", (unsigned)d->domain, d->bus,
                   d->dev, d->func);
    usm__json_text(j, "purpose", kind ? kind : "other device");
    usm__json_text(j, "address", address);
    usm__json_text(j, "vendor", vendor);
    usm__json_text(j, "device", device);
    usm__json_real(j, "link", d->linkspeed, 4); /* in GB/s; 0: unknown */
}

static void write_attributes(usm__json *j, hwloc_obj_t o)
{
    if (o->type == HWLOC_OBJ_NUMANODE)
        usm__json_number(j, "size", o->attr->numanode.local_memory);
    else if (hwloc_obj_type_is_cache(o->type))
        usm__json_number(j, "size", o->attr->cache.size);
    else if (o->type == HWLOC_OBJ_PCI_DEVICE)
        write_pci(j, &o->attr->pcidev);
}

static void write_object(usm__json *j, hwloc_obj_t o)
{
    const char *model = hwloc_obj_get_info_by_name(o, "CPUModel");
    char        kind[64];

    (void)hwloc_obj_type_snprintf(kind, sizeof kind, o, 0);
    usm__json_object_begin(j, NULL);
    usm__json_text(j, "type", hwloc_obj_type_string(o->type));
    usm__json_text(j, "kind", kind); /* of a device or cache: "Ethernet", "L2" */
    usm__json_text(j, "name", model ? model : o->name);
    if (o->os_index != HWLOC_UNKNOWN_INDEX)
        usm__json_number(j, "number", o->os_index);
    write_attributes(j, o);
    write_list(j, "memory", o->memory_first_child);
    write_list(j, "children", o->first_child);
    write_list(j, "devices", o->io_first_child);
    usm__json_object_end(j);
}

static void write_list(usm__json *j, const char *key, hwloc_obj_t first)
{
    if (!first)
        return;
    usm__json_array_begin(j, key);
    for (hwloc_obj_t o = first; o; o = o->next_sibling)
        write_object(j, o);
    usm__json_array_end(j);
}

void machine_begin(void)
{
    (void)setenv("HWLOC_PLUGINS_BLACKLIST",
                 "hwloc_opencl,hwloc_cuda,hwloc_nvml,hwloc_rsmi,hwloc_levelzero,hwloc_gl", 0);
}

static bool load(hwloc_topology_t t)
{
    for (size_t i = 0; i < sizeof drivers / sizeof *drivers; i++)
        (void)hwloc_topology_set_components(t, HWLOC_TOPOLOGY_COMPONENTS_FLAG_BLACKLIST,
                                            drivers[i]);
    return hwloc_topology_set_io_types_filter(t, HWLOC_TYPE_FILTER_KEEP_IMPORTANT) == 0 &&
           hwloc_topology_load(t) == 0;
}

void machine_write_tree(usm__json *j)
{
    hwloc_topology_t t;

    if (hwloc_topology_init(&t) != 0)
        return;
    if (load(t)) {
        usm__json_array_begin(j, "tree");
        write_object(j, hwloc_get_root_obj(t));
        usm__json_array_end(j);
    }
    hwloc_topology_destroy(t);
}
