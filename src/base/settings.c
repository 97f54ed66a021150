/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The table of settings, and the work of usm_config_set and usm_config_get.  Other files get a
 * value by its key; only this file reads the environment for settings.
 *
 * A key has two slots: one for the value of usm_config_set, and one for the value that the
 * environment or the default had when it was first requested.  Both point to values that are never
 * changed or freed, in the list `kept`.  Readers therefore need no lock, and a fork finds nothing
 * half done.  If a text is set again, the old value is found, so the list has one entry for each
 * different text. */
#include "base/settings.h"

#include "base/assert.h"
#include "base/inline/atomic.h"
#include "base/log.h"
#include "base/os.h"
#include "base/os_secret.h"
#include "base/settings_check.h"
#include "base/status.h"
#include "base/text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define WHY_SIZE    256
#define MAX_NAME    48   /* longest name for which a suggestion is made                      */
#define SECRET_SIZE 4096 /* a page for each; the check of the setting accepts no longer text */

#define NAMES(lower, upper) .key = (lower), .variable = "USM_" upper

const usm__setting usm__settings[] = {
    {NAMES("device_selector", "DEVICE_SELECTOR"), .initial = "", .unit = "selector",
     .foreign = {"ONEAPI_DEVICE_SELECTOR"},
     .help    = "which devices are used, and in which order: backend:device[,device]... terms, "
                "separated by \";\"; unset: GPUs, then CPUs, then the host"},
    {NAMES("pool", "POOL"), .initial = "", .unit = "[kind:]pool[,option=value]...",
     .foreign = {"UR_L0_DISABLE_USM_ALLOCATOR", "UR_L0_USM_ALLOCATOR"}, .translated = true,
     .help = "the pool for each kind of memory, separated by \";\"; options: area_size, "
             "maximum_size, min_align, retain, retain_ms, thread_cache, zero_init"},
    {NAMES("memory_limit", "MEMORY_LIMIT"), .initial = "", .unit = "kind:bytes|percent",
     .binding = true,
     .help = "most memory to hold, as in host:256M,device:80%, pools and buffers together; auto or "
             "unset: no limit, but buffers keep to 80% of the host's, divided by the job's ranks "
             "on it"},
    {NAMES("spill", "SPILL"), .initial = "file:/var/tmp", .unit = "off|tier;...", .secure = true,
     .binding = true, .check = usm__settings_check_spill,
     .help = "where buffers that outgrow memory go: tiers in order, as in "
             "file:/var/tmp,quota=20G, separated by \";\"; off: nothing is spilled"},
    {NAMES("spill_codec", "SPILL_CODEC"), .initial = "off", .unit = "off|auto|codec,...",
     .binding = true, .check = usm__settings_check_codec,
     .help = "the codecs of spilled blocks: lz4 (compression), aes_gcm (encryption), "
             "lz4,aes_gcm, or auto: lz4 when samples say that it is quicker than the tier"},
    {NAMES("spill_key", "SPILL_KEY"), .initial = "", .unit = "hex digits", .secure = true,
     .secret = true, .binding = true, .check = usm__settings_check_key,
     .help =
         "the key of aes_gcm, 32 or 64 digits; wiped from the environment when it is taken, and "
         "never shown; unset: USM_SPILL_KEY_FILE, else a random one"},
    {NAMES("spill_key_file", "SPILL_KEY_FILE"), .initial = "", .unit = "path", .secure = true,
     .help =
         "a file with the key of aes_gcm in hexadecimal digits; nobody but its owner may read it"},
    {NAMES("valkey_password", "VALKEY_PASSWORD"), .initial = "", .unit = "text", .secure = true,
     .secret = true,
     .help =
         "the password for the servers of USM_SPILL=valkey:...; wiped from the environment when "
         "it is taken, and never shown; unset: USM_VALKEY_PASSWORD_FILE, else none is sent"},
    {NAMES("valkey_password_file", "VALKEY_PASSWORD_FILE"), .initial = "", .unit = "path",
     .secure = true, .help = "a file with that password; nobody but its owner may read it"},
    {NAMES("spill_block", "SPILL_BLOCK"), .initial = "1M", .unit = "bytes",
     .type = USM__SETTING_SIZE,
     .help = "the unit in which buffers and managed memory are evicted and loaded; rounded up to a "
             "power of two such that at most 8192 blocks are in memory, fewer where the memory "
             "limit is small; unset: 2M if managed memory is the first of them"},
    {NAMES("managed", "MANAGED"), .initial = "auto", .unit = "auto|move|copy|off",
     .type = USM__SETTING_WORD,
     .help = "how blocks of managed memory come to where the program uses them: their pages are "
             "moved (move), their bytes copied (copy), or move where the kernel can (auto)"},
    {NAMES("spill_wait", "SPILL_WAIT"), .initial = "2000", .unit = "ms", .type = USM__SETTING_SIZE,
     .help = "how long an access waits for memory that other accesses and commands hold, before it "
             "fails with USM_E_AGAIN"},
    {NAMES("spill_lend", "SPILL_LEND"), .initial = "0", .unit = "bytes", .type = USM__SETTING_SIZE,
     .help = "memory of this process that other ranks of an MPI job may borrow, as 8G"},
    {NAMES("spill_replicas", "SPILL_REPLICAS"), .initial = "", .unit = "1|2|3",
     .type = USM__SETTING_WORD,
     .help = "copies of each evicted block, never two in one fault domain; unset: 2 when "
             "memory of other nodes is a tier, else 1"},
    {NAMES("spill_read", "SPILL_READ"), .initial = "primary", .unit = "primary|any",
     .type = USM__SETTING_WORD,
     .help =
         "which copy of a block is read: the first, or any, that is the one whose replica target "
         "has the fewest reads in progress; targets that are slow or fail are asked last"},
    {NAMES("spill_domain", "SPILL_DOMAIN"), .initial = "", .unit = "name",
     .help = "the fault domain of this process's memory, such as a rack or a power line; unset: "
             "its node"},
    {NAMES("job_lease", "JOB_LEASE"), .initial = "3000", .unit = "ms", .type = USM__SETTING_SIZE,
     .help = "a member of the job that is silent for so long is lost: its blocks are re-replicated "
             "elsewhere"},
    {NAMES("job_orphan", "JOB_ORPHAN"), .initial = "30000", .unit = "ms", .type = USM__SETTING_SIZE,
     .help = "the blocks of a borrower that is silent for so long are freed, and those on such a "
             "lender are given up; usm-memd ends when all are"},
    {NAMES("job_key", "JOB_KEY"), .initial = "", .unit = "hex digits", .secure = true,
     .secret = true, .binding = true, .check = usm__settings_check_key,
     .help =
         "the key members of the job prove to each other that they have, 32 or 64 digits; wiped "
         "from the environment when it is taken, and never shown; unset: USM_JOB_KEY_FILE"},
    {NAMES("job_key_file", "JOB_KEY_FILE"), .initial = "", .unit = "path", .secure = true,
     .help = "a file with the job's key in hexadecimal digits; nobody but its owner may read it"},
    {NAMES("mpi", "MPI"), .initial = "auto", .unit = "auto|openmpi|mpich|mpich12|abi",
     .type = USM__SETTING_WORD,
     .help = "which build of the MPI module is loaded; auto: the one for the MPI that the program "
             "has loaded"},
    {NAMES("mpi_near", "MPI_NEAR"), .initial = "1", .unit = "", .type = USM__SETTING_BOOL,
     .help = "memory that a process of the same host lends is mapped instead of sent over MPI, and "
             "shared buffers pass bytes through mapped memory"},
    {NAMES("queue_wait", "QUEUE_WAIT"), .initial = "30000", .unit = "ms", .type = USM__SETTING_SIZE,
     .help = "how long an allocation that finds no memory waits for what queues have yet to free, "
             "before it fails; commands over buffers that have waited for memory for so long are "
             "reported in a warning"},
    {NAMES("log", "LOG"), .initial = "warn", .unit = "level:LEVEL;output:FILE", .secure = true,
     .check = usm__log_check,
     .help  = "what is logged (off, error, warn, info, debug, trace) and where to (stderr, stdout, "
              "a file)"},
    {NAMES("hooks", "HOOKS"), .initial = "", .unit = "hook;...", .secure = true,
     .help = "hooks stacked over the backends: trace, order, fault:CALL@N, slow:CALL=TIME"},
    {NAMES("validation", "VALIDATION"), .initial = "0", .unit = "", .type = USM__SETTING_BOOL,
     .help = "full checks of pointers and lifetimes, with reports"},
    {NAMES("trace", "TRACE"), .initial = "", .unit = "path", .secure = true,
     .help = "the file in which allocations and driver calls are recorded for usm-prof; %h, %r, %p "
             "stand for host, rank, process; read once, before the first pool is made"},
    {NAMES("trace_stacks", "TRACE_STACKS"), .initial = "off", .unit = "off|on|all|bytes",
     .help = "with a trace: stacks of allocations, one each 512 KiB on average (on), all, or as "
             "many bytes apart"},
    {NAMES("trace_ring", "TRACE_RING"), .initial = "1M", .unit = "bytes", .type = USM__SETTING_SIZE,
     .help =
         "with a trace: memory of each thread for events that are not yet written; what finds no "
         "room is counted as lost"},
    {NAMES("monitor", "MONITOR"), .initial = "1", .unit = "", .type = USM__SETTING_BOOL,
     .help = "usm-top of the same user may see the figures of this process"},
    {NAMES("debug", "DEBUG"), .initial = "", .unit = "check,...",
     .help =
         "checks of the program's own memory: redzone (writes past a block), poison (use of what "
         "was never written or is free), leaks (what was not freed)"},
    {NAMES("plugin_path", "PLUGIN_PATH"), .initial = "", .unit = "path", .secure = true,
     .help = "folders to search for modules first, separated by \":\""},
    {NAMES("cache_dir", "CACHE_DIR"), .initial = "", .unit = "path", .secure = true,
     .help = "where compiled kernels are kept, and which local sizes suit them; off: nowhere; "
             "unset: $XDG_CACHE_HOME/usm or ~/.cache/usm"},
    {NAMES("ipc", "IPC"), .initial = "channel", .unit = "channel|pidfd", .type = USM__SETTING_WORD,
     .help =
         "how descriptors reach other processes: sent by their owner (channel), or taken out of "
         "it (pidfd), which Yama may refuse"},
    {NAMES("policy", "POLICY"), .initial = "adaptive",
     .unit = "adaptive|static|fixed|guided|fastest|energy", .type = USM__SETTING_WORD,
     .help = "how many indices a member of a team takes at a time, where a launch names no policy"},
    {NAMES("watts", "WATTS"), .initial = "", .unit = "name=watts,...|path", .secure = true,
     .check = usm__settings_check_watts,
     .help  = "what devices draw while they compute, as in host=65,opencl:0=150, or a file of such "
              "lines; unset: the host's is measured where the system counts energy"},
    {NAMES("host_guard_device", "HOST_GUARD_DEVICE"), .initial = "0", .unit = "",
     .type = USM__SETTING_BOOL,
     .help = "the host backend keeps device memory unreadable outside of its commands"},
    {NAMES("host_threads", "HOST_THREADS"), .initial = "0", .unit = "threads",
     .type = USM__SETTING_SIZE,
     .help = "how many threads of the host backend compute, 256 at most; 0: one for each processor "
             "that the process may run on and its control group's quota pays for"},
    {NAMES("host_bind", "HOST_BIND"), .initial = "0", .unit = "", .type = USM__SETTING_BOOL,
     .help =
         "each of these threads keeps to a processor of its own, when there are as many; what a "
         "host task starts inherits it"},
    {NAMES("level_zero_lists", "LEVEL_ZERO_LISTS"), .initial = "immediate",
     .unit = "immediate|regular", .type = USM__SETTING_WORD,
     .help = "how Level Zero queues hand over commands: immediate command lists, or a regular one "
             "for each command"},
    {NAMES("level_zero_vmem", "LEVEL_ZERO_VMEM"), .initial = "auto", .unit = "auto|on|off",
     .type = USM__SETTING_WORD,
     .help = "whether Level Zero's device memory grows in pieces, mapped side by side: always, "
             "never, or where the driver is known to be right about kernels that cross from piece "
             "to piece (Intel's since 24.22)"},
    {NAMES("null_memory", "NULL_MEMORY"), .initial = "80G", .unit = "bytes",
     .type = USM__SETTING_SIZE, .help = "how much memory the null backend pretends to have"},
    {NAMES("null_vmem", "NULL_VMEM"), .initial = "1", .unit = "", .type = USM__SETTING_BOOL,
     .help = "the null backend can reserve addresses and map memory behind them"},
    {.key = NULL}};

#define COUNT (sizeof(usm__settings) / sizeof(usm__settings[0]) - 1)

typedef struct view {
    const char *text, *origin;
    uint64_t    number; /* the value of a bool (0, 1) or a size */
    /* For a secret that is set: the secret, in memory for keys, and the text is "(set)".  Until
     * keep() has stored it, the text is the secret itself, and does not leave this file. */
    const char *secret;
    bool        is_refused; /* binding and invalid; a refused secret is not kept */
} view;

typedef struct value {
    struct value *next;
    size_t        index;
    view          view; /* its text is the member below */
    char          text[];
} value;

atomic_uint usm__settings_changes = 1;

/* Atomic, each of them. */
static struct {
    value *_Atomic              kept;
    value *_Atomic              was_set[COUNT];  /* by usm_config_set, or NULL                 */
    value *_Atomic              was_read[COUNT]; /* environment or default; NULL: not read yet */
    usm__setting_check *_Atomic late_check[COUNT];
    usm__setting_translate *_Atomic translate_of[COUNT];
    atomic_flag                     warned_unknown;
} values = {.warned_unknown = ATOMIC_FLAG_INIT};

static const char by_call[] = "usm_config_set";

/* --- keys ----------------------------------------------------------------- */

/* Returns COUNT if there is no such key. */
static size_t find(const char *key)
{
    usm__span s = usm__span_of(key);
    size_t    i = 0;

    if (s.len > 4 && usm__span_is((usm__span){key, 4}, "usm_"))
        s = (usm__span){key + 4, s.len - 4};
    while (i < COUNT && !usm__span_is(s, usm__settings[i].key))
        i++;
    return i;
}

static size_t min3(size_t a, size_t b, size_t c)
{
    size_t m = a < b ? a : b;

    return m < c ? m : c;
}

static char upper(char c)
{
    if (c >= 'a' && c <= 'z')
        c = (char)(c - 'a' + 'A');
    return c;
}

/* Levenshtein's distance, ignoring case.  pre: both are shorter than MAX_NAME. */
static size_t distance(const char *a, const char *b)
{
    size_t row[MAX_NAME];
    size_t n = strlen(b);

    for (size_t j = 0; j <= n; j++)
        row[j] = j;
    for (size_t i = 1; a[i - 1] != '\0'; i++) {
        size_t diagonal = row[0];

        row[0] = i;
        for (size_t j = 1; j <= n; j++) {
            size_t above  = row[j];
            bool   differ = upper(a[i - 1]) != upper(b[j - 1]);

            row[j]   = min3(above + 1, row[j - 1] + 1, diagonal + differ);
            diagonal = above;
        }
    }
    return row[n];
}

/* Returns the setting whose name differs by at most two edits, or NULL.  `name` is a key without
 * usm_ . */
static const usm__setting *closest(const char *name)
{
    const usm__setting *best  = NULL;
    size_t              least = 3;

    if (strlen(name) >= MAX_NAME)
        return NULL;
    for (size_t i = 0; i < COUNT; i++) {
        size_t d = distance(name, usm__settings[i].key);

        if (d < least && d < strlen(usm__settings[i].key)) {
            least = d;
            best  = &usm__settings[i];
        }
    }
    return best;
}

static usm_status fail_unknown(const char *key)
{
    const usm__setting *like = closest(strncasecmp(key, "usm_", 4) == 0 ? key + 4 : key);
    char                all[512];
    size_t              n = 0;

    for (size_t i = 0; i < COUNT && n < sizeof(all); i++)
        n +=
            (size_t)snprintf(all + n, sizeof(all) - n, "%s%s", i ? ", " : "", usm__settings[i].key);
    if (like != NULL)
        return usm__fail(USM_E_SETTING,
                         "there is no setting \"%.64s\", did you mean \"%s\"? The settings are %s",
                         key, like->key, all);
    return usm__fail(USM_E_SETTING, "there is no setting \"%.64s\"; the settings are %s", key, all);
}

/* --- values --------------------------------------------------------------- */

/* True if the text is one of the words of `words`, "a|b|c"; writes them to `why`. */
static bool is_word(const char *text, const char *words, char *why)
{
    usm__span rest = usm__span_of(words), word;
    size_t    n    = 0;
    bool      is   = false;

    while (usm__span_next(&rest, '|', &word)) {
        n += (size_t)snprintf(why + n, WHY_SIZE - n, "%s%.*s", n > 0 ? ", " : "", (int)word.len,
                              word.at);
        is |= word.len == strlen(text) && memcmp(word.at, text, word.len) == 0;
    }
    return is;
}

static bool parse(size_t i, const char *text, uint64_t *number, char *why)
{
    usm__setting_check *late = usm_load_acquire(&values.late_check[i]);
    usm__setting_check *own  = usm__settings[i].check;
    bool                on   = false;

    *number = 0;
    switch (usm__settings[i].type) {
    case USM__SETTING_BOOL:
        (void)snprintf(why, WHY_SIZE, "1, 0, true, false, yes, no, on, off");
        if (!usm__span_bool(usm__span_of(text), &on))
            return false;
        *number = on;
        break;
    case USM__SETTING_SIZE:
        (void)snprintf(why, WHY_SIZE, "a number of bytes, with K, M, G or T for powers of 1024");
        if (!usm__span_size(usm__span_of(text), number))
            return false;
        break;
    case USM__SETTING_WORD:
        if (!is_word(text, usm__settings[i].unit, why) && (*text || *usm__settings[i].initial))
            return false;
        break;
    case USM__SETTING_TEXT:
        break;
    }
    why[0] = '\0';
    return (own == NULL || own(text, why, WHY_SIZE)) && (late == NULL || late(text, why, WHY_SIZE));
}

static bool is_hidden(size_t i, const char *text)
{
    return usm__settings[i].secret && text[0] != '\0';
}

static value *find_kept(size_t i, const view *v)
{
    value *it = usm_load_acquire(&values.kept);

    while (it != NULL &&
           !(it->index == i && it->view.origin == v->origin &&
             it->view.is_refused == v->is_refused &&
             strcmp(it->view.secret != NULL ? it->view.secret : it->text, v->text) == 0))
        it = it->next;
    return it;
}

static value *make_value(const char *shown)
{
    size_t size = strlen(shown) + 1;
    value *it   = usm__heap_alloc(sizeof(*it) + size);

    if (it != NULL)
        memcpy(it->text, shown, size);
    return it;
}

static void free_value(value *it)
{
    if (it->view.secret != NULL)
        usm__os_secret_unmap((void *)(uintptr_t)it->view.secret, SECRET_SIZE);
    usm__heap_free(it);
}

/* Stores a value permanently; NULL if memory is exhausted. */
static value *keep(size_t i, const view *v)
{
    value *it = find_kept(i, v);

    if (it != NULL)
        return it;
    it = make_value(is_hidden(i, v->text) ? "(set)" : v->text);
    if (it == NULL)
        return NULL;
    it->view        = *v;
    it->view.text   = it->text;
    it->view.secret = NULL;
    it->index       = i;
    if (is_hidden(i, v->text)) {
        char *secret = usm__os_secret_map(SECRET_SIZE);

        if (secret == NULL) {
            free_value(it);
            return NULL;
        }
        (void)snprintf(secret, SECRET_SIZE, "%s", v->text);
        it->view.secret = secret;
    }
    it->next = usm_load_relaxed(&values.kept);
    while (!usm_cas_acq_rel(&values.kept, &it->next, it))
        ;
    return it;
}

static const char *read_environment(size_t i, const char *variable)
{
    const char *text;

    if (variable == NULL)
        return NULL;
    /* NOLINTNEXTLINE(concurrency-mt-unsafe): read once per key; setenv is the program's affair */
    text = usm__settings[i].secure ? secure_getenv(variable) : getenv(variable);
    return text != NULL && text[0] != '\0' ? text : NULL;
}

/* What the environment contains for a setting. */
typedef struct reading {
    view             view;
    usm__translation t; /* used if the variable has another grammar than the setting */
    char             wrong[1024];
    size_t           wrong_size;
} reading;

/* `text` NULL: it may not be shown. */
static void note_wrong(reading *r, const char *variable, const char *text, bool is_binding,
                       const char *why)
{
    size_t room = sizeof(r->wrong) - r->wrong_size;
    bool   show = text != NULL;
    int    n    = snprintf(r->wrong + r->wrong_size, room, "%s%s%s%.128s%s %s; allowed: %s",
                     r->wrong_size ? "; " : "", variable, show ? "=\"" : "",
                     show ? text : " (its value is not shown)", show ? "\"" : "",
                     is_binding ? "cannot be used" : "is ignored", why);

    r->wrong_size += n < 0 ? 0 : (size_t)n < room ? (size_t)n : room - 1;
}

/* True if the variable is set, and is valid or binding: then its value is used. */
static bool take_variable(size_t i, const char *variable, bool is_foreign, reading *r)
{
    usm__setting_translate *translate = usm_load_acquire(&values.translate_of[i]);
    const char             *text      = read_environment(i, variable);
    const char             *ours      = text;
    char                    why[WHY_SIZE];

    if (text == NULL)
        return false;
    memset(&r->t, 0, sizeof(r->t));
    if (is_foreign && translate != NULL) {
        if (!translate(variable, text, &r->t)) {
            note_wrong(r, variable, text, false, r->t.why);
            return false;
        }
        ours = r->t.value;
    }
    if (!parse(i, ours, &r->view.number, why)) {
        bool hidden = usm__settings[i].secret, binding = usm__settings[i].binding;

        note_wrong(r, variable, hidden ? NULL : text, binding, why);
        r->view = (view){hidden ? "" : text, variable, 0, NULL, binding};
        return binding;
    }
    r->view.text   = ours;
    r->view.origin = variable;
    return true;
}

/* Uses the first variable that is set and valid, and reports the errors of the others. */
static void read_variables(size_t i, reading *r)
{
    const usm__setting *setting = &usm__settings[i];
    char                why[WHY_SIZE];

    if (take_variable(i, setting->variable, false, r))
        return;
    for (size_t k = 0; k < USM__SETTING_FOREIGN && setting->foreign[k] != NULL; k++)
        if (!(setting->translated && usm_load_acquire(&values.translate_of[i]) == NULL) &&
            take_variable(i, setting->foreign[k], true, r))
            return;
    memset(&r->t, 0, sizeof(r->t));
    r->view = (view){setting->initial, "default", 0, NULL, false};
    (void)parse(i, setting->initial, &r->view.number, why);
}

/* Called after the value was stored, because the log reads settings too. */
static void notify(size_t i, const reading *r, const value *taken)
{
    if (r->wrong_size > 0)
        usm__warn_job("%s", r->wrong);
    if (r->t.made[0] != '\0')
        usm__info("%s is taken for %s=\"%s\": %s", taken->view.origin, usm__settings[i].variable,
                  taken->text, r->t.made);
    if (r->t.lost[0] != '\0')
        usm__warn_job("%s is taken for %s=\"%s\", but without %s", taken->view.origin,
                      usm__settings[i].variable, taken->text, r->t.lost);
}

/* If memory is exhausted, the result is right but not kept, and the next call tries again.  Only a
 * translated value or a secret cannot be returned without being kept: the default is returned
 * then. */
static view resolve(size_t i)
{
    reading r        = {.wrong_size = 0};
    value  *expected = NULL;
    value  *mine;

    read_variables(i, &r);
    mine = keep(i, &r.view);
    if (mine == NULL && (r.view.text == r.t.value || is_hidden(i, r.view.text)))
        return (view){usm__settings[i].initial, "default", 0, NULL, false};
    if (mine == NULL)
        return r.view;
    if (!usm_cas_acq_rel(&values.was_read[i], &expected, mine))
        return expected->view;
    notify(i, &r, mine);
    return mine->view;
}

static view current(size_t i)
{
    value *v = usm_load_acquire(&values.was_set[i]);

    if (v == NULL)
        v = usm_load_acquire(&values.was_read[i]);
    return v != NULL ? v->view : resolve(i);
}

static void put(size_t i, value *v)
{
    usm_store_release(&values.was_set[i], v);
    (void)usm_add_relaxed(&usm__settings_changes, 1);
}

/* --- the interface -------------------------------------------------------- */

usm_status usm__settings_set(const char *key, const char *value_text)
{
    view   v = {value_text, by_call, 0, NULL, false};
    char   why[WHY_SIZE];
    value *it;
    size_t i;

    if (key == NULL)
        return usm__fail(USM_E_INVALID, "usm_config_set() needs a key, such as \"log\", not NULL");
    i = find(key);
    if (i == COUNT)
        return fail_unknown(key);
    if (value_text == NULL) {
        put(i, NULL);
        return USM_OK;
    }
    if (!parse(i, value_text, &v.number, why))
        return usm__fail(USM_E_SETTING, "setting %s cannot be \"%.128s\"; allowed: %s",
                         usm__settings[i].key, usm__settings[i].secret ? "(not shown)" : value_text,
                         why);
    it = keep(i, &v);
    if (it == NULL)
        return usm__fail(USM_E_NO_MEMORY, "no memory to keep the value of setting %s",
                         usm__settings[i].key);
    put(i, it);
    return USM_OK;
}

usm_status usm__settings_get(const char *key, const char **value_text, const char **origin)
{
    size_t i;
    view   v;

    if (key == NULL)
        return usm__fail(USM_E_INVALID, "usm_config_get() needs a key, such as \"log\", not NULL");
    i = find(key);
    if (i == COUNT)
        return fail_unknown(key);
    v = current(i);
    if (value_text != NULL)
        *value_text = v.text;
    if (origin != NULL)
        *origin = v.origin;
    return USM_OK;
}

const char *usm__setting_text(const char *key)
{
    size_t i = find(key);

    return i < COUNT ? current(i).text : NULL;
}

bool usm__setting_bool(const char *key)
{
    size_t i = find(key);

    usm_assert(i < COUNT && usm__settings[i].type == USM__SETTING_BOOL);
    return i < COUNT && current(i).number != 0;
}

uint64_t usm__setting_size(const char *key)
{
    size_t i = find(key);

    usm_assert(i < COUNT && usm__settings[i].type == USM__SETTING_SIZE);
    return i < COUNT ? current(i).number : 0;
}

usm_status usm__settings_refusal(void)
{
    reading r;

    for (size_t i = 0; i < COUNT; i++) {
        if (!usm__settings[i].binding || !current(i).is_refused)
            continue;
        r.wrong_size = 0;
        read_variables(i, &r);
        return usm__fail(USM_E_SETTING, "%s",
                         r.wrong_size ? r.wrong : "a variable was refused and has changed since");
    }
    return USM_OK;
}

/* Overwrites the value of the variable where it is stored, so that the system's view of the
 * process's environment, and a core dump, no longer have it. */
static void wipe_variable(size_t i, const char *origin)
{
    /* NOLINTNEXTLINE(concurrency-mt-unsafe): its address does not change, only its bytes */
    char *text = origin == usm__settings[i].variable ? getenv(origin) : NULL;

    if (text != NULL)
        usm__os_secret_wipe(text, strlen(text));
}

size_t usm__setting_take_secret(const char *key, char *text, size_t cap)
{
    size_t i = find(key);
    view   v;

    usm_assert(i < COUNT && usm__settings[i].secret);
    if (i == COUNT)
        return 0;
    v = current(i);
    if (v.secret == NULL)
        return 0;
    (void)snprintf(text, cap, "%s", v.secret);
    wipe_variable(i, v.origin);
    return strlen(v.secret);
}

const char *usm__setting_origin(const char *key)
{
    size_t i = find(key);

    return i < COUNT ? current(i).origin : NULL;
}

void usm__setting_set_check(const char *key, usm__setting_check *check)
{
    size_t   i = find(key);
    char     why[WHY_SIZE];
    uint64_t number;
    value   *set;

    usm_assert(i < COUNT);
    usm_store_release(&values.late_check[i], check);
    usm_store_release(&values.was_read[i], NULL); /* to be read again, with the check */
    (void)usm_add_relaxed(&usm__settings_changes, 1);
    set = usm_load_acquire(&values.was_set[i]);
    usm_assert(!usm__settings[i].secret); /* no secret has such a check */
    if (set != NULL && !parse(i, set->text, &number, why)) {
        put(i, NULL);
        usm__warn("usm_config_set(\"%s\", \"%.128s\") is reverted; allowed: %s",
                  usm__settings[i].key, set->text, why);
    }
}

void usm__setting_set_translate(const char *key, usm__setting_translate *translate)
{
    size_t i = find(key);

    usm_assert(i < COUNT && usm__settings[i].translated);
    usm_store_release(&values.translate_of[i], translate);
    usm_store_release(&values.was_read[i], NULL); /* to be read again, with the translation */
    (void)usm_add_relaxed(&usm__settings_changes, 1);
}

static bool is_somebody_elses(const char *name)
{
    /* USM_INSIDE_ is usm-exec's; the last one tells Python (python/usm) where this library is. */
    static const char *const others[] = {"USM_TEST_", "USM_CI_", "USM_BENCH_", "USM_INSIDE_",
                                         "USM_LIBRARY="};

    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++)
        if (strncmp(name, others[i], strlen(others[i])) == 0)
            return true;
    return false;
}

static void warn_if_unknown(const char *entry)
{
    size_t              n = strcspn(entry, "=");
    char                name[MAX_NAME + 8];
    const usm__setting *like;

    if (strncmp(entry, "USM_", 4) != 0 || is_somebody_elses(entry))
        return;
    for (size_t i = 0; i < COUNT; i++)
        if (strlen(usm__settings[i].variable) == n &&
            memcmp(entry, usm__settings[i].variable, n) == 0)
            return;
    (void)snprintf(name, sizeof(name), "%.*s", n < sizeof(name) ? (int)n : (int)sizeof(name),
                   entry);
    like = closest(name + 4);
    if (like != NULL)
        usm__warn_job("the variable %s is not a setting: did you mean %s?", name, like->variable);
    else
        usm__warn_job("the variable %s is not a setting and is ignored", name);
}

void usm__settings_warn_unknown(void)
{
    if (atomic_flag_test_and_set(&values.warned_unknown))
        return;
    for (char **entry = environ; entry != NULL && *entry != NULL; entry++)
        warn_if_unknown(*entry);
}

void usm__settings_forget(void)
{
    value *next;

    for (size_t i = 0; i < COUNT; i++) {
        usm_store_relaxed(&values.was_set[i], NULL);
        usm_store_relaxed(&values.was_read[i], NULL);
        usm_store_relaxed(&values.late_check[i], NULL);
        usm_store_relaxed(&values.translate_of[i], NULL);
    }
    for (value *it = usm_swap_acq_rel(&values.kept, NULL); it != NULL; it = next) {
        next = it->next;
        free_value(it);
    }
    atomic_flag_clear(&values.warned_unknown);
    (void)usm_add_relaxed(&usm__settings_changes, 1);
}
