/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The log.  All files call usm__log; only this file writes the output.
 *
 * The setting `log` is read again after any setting has changed.  Each line is one write(), so that
 * lines of several processes do not mix.  The lock is the last before the leaves: a caller may hold
 * any other. */
#include "base/log.h"

#include "base/fork.h"
#include "base/inline/atomic.h"
#include "base/mutex.h"
#include "base/settings.h"
#include "base/text.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define LINE_SIZE 2048

static struct {
    atomic_int  level;
    atomic_uint seen; /* usm__settings_changes at the last read; 0: never read                  */
    usm__mutex  lock;
    /* guarded by lock */
    int  fd;
    bool fd_is_file;     /* if so, it is closed here                                            */
    char path[PATH_MAX]; /* the last file in the setting, opened or not; or ""                  */
} sink = {
    .level = USM_LOG_WARN, .lock = USM__MUTEX_INIT(USM__RANK_LOG, "log"), .fd = STDERR_FILENO};

/* The parsed text of the setting. */
typedef struct wish {
    int       level; /* 0: off */
    usm__span output;
} wish;

static bool parse_level(usm__span s, int *level)
{
    static const struct {
        const char *name;
        int         level;
    } names[] = {{"off", 0},
                 {"error", USM_LOG_ERROR},
                 {"warn", USM_LOG_WARN},
                 {"warning", USM_LOG_WARN},
                 {"info", USM_LOG_INFO},
                 {"debug", USM_LOG_DEBUG},
                 {"trace", USM_LOG_TRACE}};

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        if (usm__span_is(s, names[i].name)) {
            *level = names[i].level;
            return true;
        }
    }
    return false;
}

static bool has_prefix(usm__span s, const char *prefix)
{
    size_t n = strlen(prefix);

    return s.len >= n && usm__span_is((usm__span){s.at, n}, prefix);
}

/* The text after "name:" in a field, without blanks at its ends. */
static usm__span behind_colon(usm__span field)
{
    usm__span name, value = {field.at, 0};

    (void)usm__span_next(&field, ':', &name);
    (void)usm__span_next(&field, '\0', &value); /* all of the rest: no text contains this
                                                   character */
    return value;
}

static bool parse_field(usm__span field, wish *w)
{
    if (field.len == 0)
        return true;
    if (has_prefix(field, "output:")) {
        w->output = behind_colon(field);
        return w->output.len > 0 && w->output.len < PATH_MAX;
    }
    return parse_level(has_prefix(field, "level:") ? behind_colon(field) : field, &w->level);
}

static bool parse(const char *text, wish *w)
{
    usm__span rest = usm__span_of(text), field;
    bool      fine = true;

    *w = (wish){USM_LOG_WARN, {"stderr", 6}};
    while (usm__span_next(&rest, ';', &field))
        fine &= parse_field(field, w);
    return fine;
}

bool usm__log_check(const char *value, char *why, size_t why_size)
{
    wish w;

    if (parse(value, &w))
        return true;
    (void)snprintf(why, why_size,
                   "[level:]off|error|warn|info|debug|trace and output:stderr|stdout|FILE, "
                   "separated by \";\"");
    return false;
}

/* Writes one line by one write().  pre: lock is held. */
static void write_line(const char *line, size_t size)
{
    ssize_t n;

    do
        n = write(sink.fd, line, size);
    while (n < 0 && errno == EINTR);
    /* A failure cannot be reported, because the log itself has failed. */
}

/* Switches to a stream.  pre: lock is held, as for the functions below. */
static void use(int stream)
{
    if (sink.fd_is_file)
        (void)close(sink.fd);
    sink.fd_is_file = false;
    sink.fd         = stream;
    sink.path[0]    = '\0';
}

static void complain(const char *file, int error)
{
    char line[LINE_SIZE], why[128];
    int  n;

    if (atomic_load_explicit(&sink.level, memory_order_relaxed) < USM_LOG_WARN)
        return;
    n = snprintf(line, sizeof(line),
                 "usm: warning: the log goes to stderr: \"%.1024s\" cannot be opened (%s)\n", file,
                 strerror_r(error, why, sizeof(why)));
    write_line(line, (size_t)n);
}

/* The output may be a pipe or a terminal.  A blocking open of a pipe would wait for a reader. */
static int open_output(const char *file)
{
    int flags  = O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOCTTY;
    int opened = open(file, flags | O_NONBLOCK, 0644);

    if (opened >= 0)
        (void)fcntl(opened, F_SETFL, O_APPEND); /* each write must be complete, so it may block */
    return opened;
}

static void use_file(usm__span output)
{
    int opened;

    if (strlen(sink.path) == output.len && memcmp(sink.path, output.at, output.len) == 0)
        return; /* also if it failed: it is tried once */
    use(STDERR_FILENO);
    memcpy(sink.path, output.at, output.len);
    sink.path[output.len] = '\0';
    opened                = open_output(sink.path);
    if (opened < 0) {
        complain(sink.path, errno);
        return;
    }
    sink.fd         = opened;
    sink.fd_is_file = true;
}

static void apply(const char *text)
{
    wish w;

    (void)parse(text, &w); /* was checked when it was set */
    usm_store_relaxed(&sink.level, w.level);
    if (usm__span_is(w.output, "stderr"))
        use(STDERR_FILENO);
    else if (usm__span_is(w.output, "stdout"))
        use(STDOUT_FILENO);
    else
        use_file(w.output);
}

static void refresh(void)
{
    unsigned    changes = usm_load_acquire(&usm__settings_changes);
    const char *text;

    if (changes == usm_load_acquire(&sink.seen))
        return;
    text = usm__setting_text("log"); /* may call the log again, to warn about another setting */
    usm__mutex_lock(&sink.lock);
    apply(text);
    usm_store_release(&sink.seen, changes);
    usm__mutex_unlock(&sink.lock);
}

/* The level without the bit that limits a message to one process of the node. */
static usm_log_level own_level(usm_log_level level)
{
    if (!(level & USM_LOG_NODE))
        return level;
    level = (usm_log_level)(level & ~USM_LOG_NODE);
    return level > USM_LOG_WARN || usm__launcher_speaks_for_node() ? level : USM_LOG_INFO;
}

bool usm__log_enabled(usm_log_level level)
{
    int error = errno;

    refresh();
    errno = error;
    return (int)own_level(level) <= usm_load_relaxed(&sink.level);
}

static const char *level_name(usm_log_level level)
{
    switch (level) {
    case USM_LOG_ERROR:
        return "error";
    case USM_LOG_WARN:
        return "warning";
    case USM_LOG_INFO:
        return "info";
    case USM_LOG_DEBUG:
        return "debug";
    case USM_LOG_TRACE:
        return "trace";
    case USM_LOG_NODE:
        break;
    }
    return "hook";
}

void usm__log_v(usm_log_level level, const char *format, va_list args)
{
    char   line[LINE_SIZE];
    int    error = errno;
    int    n;
    size_t size;

    level = own_level(level);
    if (!usm__log_enabled(level))
        return;
    n    = snprintf(line, sizeof(line), "usm: %s: ", level_name(level));
    size = (size_t)n;
    n    = vsnprintf(line + size, sizeof(line) - size - 1, format, args); /* leaves room for the
                                                                             newline */
    if (n > 0 && (size_t)n >= sizeof(line) - size - 1) {
        size = sizeof(line) - 2;
        memcpy(line + size - 3, "...", 4);
    } else if (n > 0) {
        size += (size_t)n;
    }
    if (line[size - 1] != '\n')
        line[size++] = '\n';
    usm__mutex_lock(&sink.lock);
    write_line(line, size);
    usm__mutex_unlock(&sink.lock);
    errno = error;
}

void usm__log(usm_log_level level, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    usm__log_v(level, format, args);
    va_end(args);
}

void usm__log_fork(usm_fork_phase phase)
{
    usm__mutex_fork(&sink.lock, phase);
}
