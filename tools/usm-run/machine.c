/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Reads the description of a machine. */
#include "simulate.h"

#include <stdlib.h>

static const char *const machine_keys[] = {"schema", "version", "devices", "units", NULL};
static const char *const unit_keys[]    = {"name", "latency_us", "mib_s", "devices", NULL};
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

/* Adds the devices of the machine, or of a unit. */
static bool read_devices(machine *m, value devices)
{
    app        *a   = &m->file;
    const char *end = NULL;
    size_t      n   = json_is_array(devices.json) ? json_array_size(devices.json) : 0;

    if (n == 0 || n > USM__SIM_DEVICES_MAX - m->n)
        return mistake(
            a, devices.at,
            "'devices' must be an array of 1 to %d devices; usm-info --machine writes those of "
            "this machine",
            USM__SIM_DEVICES_MAX);
    for (size_t i = 0; i < n; i++)
        (void)read_device(m, next_element(devices, i, &end));
    return true;
}

static bool read_unit(machine *m, value at)
{
    app           *a       = &m->file;
    usm__sim_unit *u       = &m->units[m->nunits];
    double         latency = 0, rate = 0;
    bool           is_ok;

    if (!check_keys(a, at, "a unit", unit_keys))
        return false;
    *u    = (usm__sim_unit){.first = (uint32_t)m->n};
    is_ok = get_text(a, at, "name", &u->name);
    is_ok &= get_real(a, at, "latency_us", 0, &latency);
    is_ok &= get_real(a, at, "mib_s", 1e-3, &rate);
    if (!is_ok)
        return false;
    if (!u->name || !(rate > 0) || !member(at, "devices").json)
        return mistake(a, at.at,
                       "a unit needs its 'name', 'mib_s', the rate of its link, and 'devices'");
    u->link = (usm__link){.latency = latency / 1e6, .bytes_per_s = rate * (1 << 20)};
    if (!read_devices(m, member(at, "devices")))
        return false;
    u->ndevices = (uint32_t)m->n - u->first;
    m->nunits++;
    return true;
}

static bool read_units(machine *m, value units)
{
    const char *end = NULL;

    if (!units.json)
        return true;
    if (!json_is_array(units.json) || json_array_size(units.json) > USM__UNITS_MAX)
        return mistake(&m->file, units.at, "'units' must be an array of at most %d units",
                       USM__UNITS_MAX);
    for (size_t i = 0; i < json_array_size(units.json); i++)
        (void)read_unit(m, next_element(units, i, &end));
    return true;
}

bool machine_read(machine *m, const char *path)
{
    app     *a = &m->file;
    value    root;
    uint64_t schema = 1;

    if (!read_json(a, path))
        return false;
    root = (value){a->root, a->text + strspn(a->text, " \t\r\n")};
    if (!check_keys(a, root, "a machine", machine_keys))
        return false;
    (void)get_number(a, root, "schema", 1, 1, &schema);
    m->devices = need(calloc(USM__SIM_DEVICES_MAX, sizeof *m->devices));
    if (read_devices(m, member(root, "devices"))) {
        m->nlocal = m->n;
        (void)read_units(m, member(root, "units"));
    }
    return a->mistakes == 0;
}

void machine_free(machine *m)
{
    free(m->devices);
    app_free(&m->file);
}
