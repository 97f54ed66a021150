/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* How much power devices draw, for the policy "energy": from a table, or measured.
 *
 * A table names devices as usm-info lists them.  If several lines match a device, the most specific
 * one counts: "3/host:0" (of a rank), then "host:0", "host" (the backend), "*".
 *
 * Only the host is measured, by the energy counters of its packages, which Linux offers under
 * powercap to processes that may read them.  They yield the mean of an interval in which the
 * processor may have been idle.  Since a cap must not be exceeded, the highest mean seen so far
 * counts. */
#include "offload/watts.h"

#include "base/log.h"
#include "base/mutex.h"
#include "base/os.h"
#include "base/settings.h"
#include "base/settings_check.h"
#include "base/status.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define INTERVAL_NS 50000000u
#define LINE_MOST   ((size_t)4096)    /* files of /sys are at most a page */
#define TABLE_MOST  ((size_t)1 << 20) /* thousands of devices, and comments */

/* --- counters -------------------------------------------------------------------------------- */

static bool read_line(const char *folder, unsigned zone, const char *file, char *line, size_t size)
{
    char   path[512];
    size_t n = 0;
    char  *text;

    (void)snprintf(path, sizeof(path), "%s/intel-rapl:%u/%s", folder, zone, file);
    text = usm__os_read_file(path, LINE_MOST, &n);
    if (text == NULL)
        return false;
    (void)snprintf(line, size, "%.*s", (int)strcspn(text, "\n"), text);
    usm__heap_free(text);
    return true;
}

/* False, with errno. */
static bool read_number(const char *folder, unsigned zone, const char *file, uint64_t *value)
{
    char  line[64];
    char *end = line;

    if (!read_line(folder, zone, file, line, sizeof(line)))
        return false;
    *value = strtoull(line, &end, 10);
    if (end == line)
        errno = EINVAL;
    return end != line;
}

bool usm__powercap_read(const char *folder, uint64_t now_ns, usm__powercap *counters)
{
    char line[64];

    *counters = (usm__powercap){.at_ns = now_ns};
    for (unsigned zone = 0; zone < USM__POWERCAP_ZONES; zone++) {
        unsigned n = counters->n;

        if (!read_line(folder, zone, "name", line, sizeof(line)) ||
            strncmp(line, "package", 7) != 0) /* "psys" would count packages twice */
            continue;
        if (read_number(folder, zone, "energy_uj", &counters->uj[n]) &&
            read_number(folder, zone, "max_energy_range_uj", &counters->most_uj[n]))
            counters->n++;
        else
            counters->error = errno;
    }
    return counters->n > 0;
}

double usm__powercap_joules(const usm__powercap *before, const usm__powercap *after)
{
    uint64_t uj = 0;

    if (before->n != after->n || after->at_ns < before->at_ns)
        return -1;
    for (unsigned i = 0; i < after->n; i++) {
        uint64_t most = after->most_uj[i];

        if (after->uj[i] >= before->uj[i])
            uj += after->uj[i] - before->uj[i];
        else if (before->uj[i] <= most) /* the counter has wrapped, once */
            uj += after->uj[i] + (most - before->uj[i]);
        else
            return -1;
    }
    return (double)uj / 1e6;
}

double usm__powercap_watts(const usm__powercap *before, const usm__powercap *after)
{
    double joules = usm__powercap_joules(before, after);

    if (joules < 0 || after->at_ns == before->at_ns)
        return 0;
    return joules * 1e9 / (double)(after->at_ns - before->at_ns);
}

/* 0: there are no counters, or none that this process may read. */
static double measure(void)
{
    static struct {
        usm__mutex    lock;
        usm__powercap last;
        double        most;
    } seen = {.lock = USM__MUTEX_INIT(USM__RANK_WATTS, "watts")};
    usm__powercap now;
    double        watts = 0;

    usm__mutex_lock(&seen.lock);
    if (seen.last.n == 0 && usm__powercap_read(USM__POWERCAP, usm__os_now_ns(), &seen.last))
        usm__os_sleep_ns(INTERVAL_NS);
    if (seen.last.n > 0 && usm__os_now_ns() - seen.last.at_ns >= INTERVAL_NS &&
        usm__powercap_read(USM__POWERCAP, usm__os_now_ns(), &now)) {
        watts     = usm__powercap_watts(&seen.last, &now);
        seen.last = now;
        if (watts > seen.most)
            seen.most = watts;
    }
    watts = seen.most;
    usm__mutex_unlock(&seen.lock);
    return watts;
}

/* --- the table ------------------------------------------------------------------------------- */

static bool span_equals(usm__span s, const char *text, size_t len)
{
    return s.len == len && memcmp(s.at, text, len) == 0;
}

/* How specifically a line names the device; 0: not at all. */
static unsigned match(usm__span name, const char *device)
{
    const char *slash = strchr(device, '/'), *local = slash != NULL ? slash + 1 : device;

    if (span_equals(name, device, strlen(device)))
        return 4;
    if (span_equals(name, local, strlen(local)))
        return 3;
    if (span_equals(name, local, strcspn(local, ":")))
        return 2;
    return span_equals(name, "*", 1);
}

static usm__span without_comment(usm__span line)
{
    const char *sign = memchr(line.at, '#', line.len);

    if (sign != NULL)
        line.len = (size_t)(sign - line.at);
    return usm__span_trimmed(line);
}

/* Looks up a device in lines, or in the fields of a list.  *found is unchanged if none matches. */
static usm_status look_up(const char *text, char separator, const char *where, const char *device,
                          double *watts, bool *found)
{
    usm__span rest = usm__span_of(text), field, name = {NULL, 0};
    unsigned  best = 0;
    double    value;

    for (unsigned line = 1; usm__span_next(&rest, separator, &field); line++) {
        unsigned m;

        field = without_comment(field);
        if (field.len == 0)
            continue;
        if (!usm__settings_cut_watts(field, &name, &value))
            return usm__fail(USM_E_SETTING,
                             "%s: entry %u, \"%.*s\", is not name=watts, as in opencl:0=150", where,
                             line, (int)(field.len < 64 ? field.len : 64), field.at);
        m = match(name, device);
        if (m > best) {
            best   = m;
            *watts = value;
            *found = true;
        }
    }
    return USM_OK;
}

static usm_status look_up_file(const char *path, const char *device, double *watts, bool *found)
{
    size_t     size = 0;
    char      *text = usm__os_read_file(path, TABLE_MOST, &size);
    char       why[64];
    usm_status st;

    if (text == NULL)
        return usm__fail(USM_E_SETTING,
                         "USM_WATTS names the file %s, which cannot be read: %s; it is a path or "
                         "name=watts separated by \",\"",
                         path,
                         errno == EINVAL ? "it is not a regular file"
                                         : strerror_r(errno, why, sizeof(why)));
    st = look_up(text, '\n', path, device, watts, found);
    usm__heap_free(text);
    return st;
}

static usm_status look_up_setting(const char *device_name, double *watts, bool *found)
{
    const char *setting = usm__setting_text("watts");

    if (usm__settings_is_watts_path(setting))
        return look_up_file(setting, device_name, watts, found);
    return look_up(setting, ',', "USM_WATTS", device_name, watts, found);
}

usm_status usm__watts_stated(const char *device_name, double *watts)
{
    bool found = false;

    *watts = 0;
    return look_up_setting(device_name, watts, &found);
}

usm_status usm__watts_of(const char *device_name, double *watts, const char **source)
{
    const char *slash = strchr(device_name, '/'), *local = slash != NULL ? slash + 1 : device_name;
    bool        found = false;
    double      value = 0;
    usm_status  st    = look_up_setting(device_name, &value, &found);

    if (st != USM_OK)
        return st;
    *source = "USM_WATTS";
    if (!found) {
        if (strncmp(local, "host", 4) == 0 && (local[4] == ':' || local[4] == '\0'))
            value = measure();
        *source = value > 0 ? "powercap" : "unknown";
    }
    *watts = value;
    return USM_OK;
}

usm_status usm__watts_ask(const char *device_name, double *watts)
{
    const char *source = NULL;
    usm_status  st     = usm__watts_of(device_name, watts, &source);

    if (st != USM_OK)
        return st;
    if (*watts > 0)
        usm__info("energy: %s draws %.1f W, as %s says", device_name, *watts, source);
    else
        usm__info("energy: the power draw of %s is unknown, so it gets no work; set USM_WATTS",
                  device_name);
    return USM_OK;
}
