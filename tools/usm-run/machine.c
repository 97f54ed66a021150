/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Reads the description of a machine. */
#include "simulate.h"

#include <stdlib.h>

static const char *const machine_keys[] = {"schema", "version", "devices", NULL};
static const char *const device_keys[]  = {"name",       "like",  "speed", "in_place",
                                           "latency_us", "mib_s", "watts", "idle_watts",
                                           "watts_from", NULL};

static bool read_in_place(app *a, value at, bool *out)
{
    value v = member(at, "in_place");

    if (v.json && !json_is_boolean(v.json))
        return mistake(a, v.at, "'in_place' must be true or false");
    *out = v.json && json_is_true(v.json);
    return true;
}

static bool read_device(machine *m, value at)
{
    app            *a       = &m->file;
    machine_device *d       = &m->devices[m->n];
    double          latency = 0, rate = 0;
    bool            is_ok;

    *d = (machine_device){.at = at, .speed = 1};
    if (!check_keys(a, at, "a device", device_keys))
        return false;
    is_ok = get_text(a, at, "name", &d->sim.name);
    is_ok &= get_text(a, at, "like", &d->like);
    is_ok &= get_real(a, at, "speed", 1e-6, &d->speed);
    is_ok &= read_in_place(a, at, &d->sim.uses_host_memory);
    is_ok &= get_real(a, at, "latency_us", 0, &latency);
    is_ok &= get_real(a, at, "mib_s", 1e-3, &rate);
    is_ok &= get_real(a, at, "watts", 0, &d->sim.watts);
    is_ok &= get_real(a, at, "idle_watts", 0, &d->sim.idle_watts);
    if (!is_ok)
        return false;
    if (!d->sim.name || !member(at, "mib_s").json)
        return mistake(a, at.at,
                       "a device needs its 'name' and 'mib_s', the rate of copies between "
                       "host memory and it");
    if (!d->like)
        d->like = d->sim.name;
    d->sim.latency_s   = latency / 1e6;
    d->sim.bytes_per_s = rate * (1 << 20);
    m->n++;
    return true;
}

bool machine_read(machine *m, const char *path)
{
    app        *a   = &m->file;
    const char *end = NULL;
    value       root, devices;
    uint64_t    schema = 1;

    if (!read_json(a, path))
        return false;
    root = (value){a->root, a->text + strspn(a->text, " \t\r\n")};
    if (!check_keys(a, root, "a machine", machine_keys))
        return false;
    (void)get_number(a, root, "schema", 1, 1, &schema);
    devices = member(root, "devices");
    if (!json_is_array(devices.json) || json_array_size(devices.json) == 0 ||
        json_array_size(devices.json) > USM__SIM_DEVICES_MAX)
        return mistake(a, devices.at,
                       "'devices' must be an array of 1 to %d devices; usm-info "
                       "--machine writes those of this machine",
                       USM__SIM_DEVICES_MAX);
    m->devices = need(calloc(json_array_size(devices.json), sizeof *m->devices));
    for (size_t i = 0; i < json_array_size(devices.json); i++)
        (void)read_device(m, next_element(devices, i, &end));
    return a->mistakes == 0;
}

void machine_free(machine *m)
{
    free(m->devices);
    app_free(&m->file);
}
