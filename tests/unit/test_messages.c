/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* What failures say: the list of messages that users met and did not understand, each with the
 * words that have to be in it.  All of them, and whatever is logged on the way, keep the rules of
 * keeps_the_rules().  Every line of the list is a process of its own, over the public interface. */
#include "plain.h"

#include <usm/usm.h>

#include <ctype.h>
#include <sys/resource.h>
#include <sys/vfs.h>

#include <linux/magic.h>

#define MIB ((size_t)1 << 20)

typedef struct saying {
    const char *what; /* of the list, when it fails                                              */
    const char *variables[3]; /* NAME=value; $T in it stands for the test's folder               */
    void (*fail)(void);       /* fails, and leaves the message                                   */
    usm_status  status;
    const char *words[4];
    const char *not_words;
} saying;

/* --- what fails ------------------------------------------------------------------------------- */

static void *inside; /* a pointer into a block, and the block: for the words of some messages */
static void *start;

static void take_memory(void)
{
    CHECK(!usm_alloc_host(64));
}

static void take_a_context(void)
{
    usm_context *ctx = NULL;

    CHECK(usm_context_create(NULL, &ctx) != USM_OK && !ctx);
}

/* Writes more than memory has, until that fails. */
static void outgrow_memory_of(usm_buffer *b)
{
    usm_access a;

    for (size_t at = 0; at < 32 * MIB; at += MIB) {
        if (usm_access_begin(b, at, MIB, USM_WRITE_NO_INIT, &a) != USM_OK)
            return;
        memset(a.ptr, (int)(at >> 20) + 1, MIB);
        usm_access_end(&a);
    }
    CHECK(!"it should have failed");
}

static void outgrow_memory(void)
{
    outgrow_memory_of(usm_buffer_new(NULL, 32 * MIB));
}

static void outgrow_memory_by_name(void)
{
    usm_buffer_desc d = USM_BUFFER_DESC_INIT;
    usm_buffer     *b = NULL;

    d.size = 32 * MIB;
    d.name = "grid";
    CHECK_INT(usm_buffer_create(NULL, &d, &b), USM_OK);
    outgrow_memory_of(b);
}

static void free_inside_of_a_block(void)
{
    start = usm_alloc_host(100);
    CHECK(start != NULL);
    inside = (char *)start + 8;
    CHECK(usm_free_ctx(inside, NULL) != USM_OK);
}

static void run_out_of_addresses(void)
{
    struct rlimit few = {(rlim_t)1 << 30, (rlim_t)1 << 30};

    CHECK_INT(setrlimit(RLIMIT_AS, &few), 0);
    CHECK(!usm_alloc_host((size_t)1 << 30));
}

static void leave_a_buffer_by_a_byte(void)
{
    usm_buffer *b = usm_buffer_new(NULL, 64);
    usm_access  a;

    CHECK(usm_access_begin(b, 64, 1, USM_READ, &a) != USM_OK);
}

static void cross_the_end_of_a_block(void)
{
    char *p = usm_alloc_host(64), *q = usm_alloc_host(4096);

    CHECK(p && q && usm_copy(p + 63, q, 128) != USM_OK);
}

static void cross_a_limit_by_a_context(void)
{
    CHECK(!usm_alloc_host(2 * MIB));
}

#define LIMITED "USM_MEMORY_LIMIT=host:4M"

static const saying list[] = {
    {"a limit without its kind",
     {"USM_MEMORY_LIMIT=4G"},
     take_memory,
     USM_E_SETTING,
     {"USM_MEMORY_LIMIT=\"4G\" cannot be used", "did you mean host:4G?"},
     NULL},
    {"the same, of a context",
     {"USM_MEMORY_LIMIT=4G"},
     take_a_context,
     USM_E_SETTING,
     {"USM_MEMORY_LIMIT=\"4G\" cannot be used", "did you mean host:4G?"},
     NULL},
    {"a limit that is none",
     {"USM_MEMORY_LIMIT=host:much"},
     take_memory,
     USM_E_SETTING,
     {"USM_MEMORY_LIMIT=\"host:much\" cannot be used; allowed: auto, or host:SIZE"},
     "did you mean"},
    {"a folder in place of a tier",
     {"USM_SPILL=/data"},
     take_memory,
     USM_E_SETTING,
     {"USM_SPILL=\"/data\" cannot be used", "did you mean file:/data?"},
     NULL},
    {"a key that is none",
     {"USM_SPILL_KEY=beef01"},
     take_memory,
     USM_E_SETTING,
     {"USM_SPILL_KEY (its value is not shown) cannot be used", "32 or 64 hexadecimal digits"},
     "beef"},
    {"codecs that are none",
     {"USM_SPILL_CODEC=lz4;aes_gcm"},
     take_memory,
     USM_E_SETTING,
     {"USM_SPILL_CODEC=\"lz4;aes_gcm\" cannot be used"},
     NULL},
    {"a folder that is not there",
     {LIMITED, "USM_SPILL=file:$T/nowhere"},
     outgrow_memory,
     USM_E_IO,
     {"an unnamed buffer", "$T/nowhere", "No such file or directory"},
     NULL},
    {"a quota that is used up",
     {LIMITED, "USM_SPILL=file:$T,quota=4M"},
     outgrow_memory,
     USM_E_SPILL_FULL,
     {"an unnamed buffer", "the quota of 4194304 bytes", "$T"},
     NULL},
    {"a buffer with a name",
     {LIMITED, "USM_SPILL=file:$T,quota=4M"},
     outgrow_memory_by_name,
     USM_E_SPILL_FULL,
     {"buffer \"grid\"", "the quota of 4194304 bytes"},
     "unnamed"},
    {"spilling is off",
     {LIMITED, "USM_SPILL=off"},
     outgrow_memory,
     USM_E_SPILL_FULL,
     {"an unnamed buffer", "USM_SPILL=off"},
     NULL},
    {"a pointer inside of a block",
     {"USM_POOL=slab"},
     free_inside_of_a_block,
     USM_E_INTERIOR_POINTER,
     {"$I lies 8 bytes inside the block at $B; free that"},
     NULL},
    {"the same of an arena",
     {"USM_POOL=arena"},
     free_inside_of_a_block,
     USM_E_INTERIOR_POINTER,
     {"$I lies 8 bytes inside the block at $B; free that"},
     NULL},
    {"no addresses left",
     {"USM_POOL=direct"},
     run_out_of_addresses,
     USM_E_NO_MEMORY,
     {"the host has no ", "left", "may have 1048576 KiB of addresses (ulimit -v)"},
     NULL},
    {"one byte past a buffer",
     {NULL},
     leave_a_buffer_by_a_byte,
     USM_E_INVALID,
     {"1 byte at 64 exceeds the buffer of 64 bytes"},
     NULL},
    {"past the end of a block",
     {NULL},
     cross_the_end_of_a_block,
     USM_E_SIZE,
     {"128 bytes at ", "would cross the end of the block"},
     NULL},
    {"a limit that is reached",
     {"USM_MEMORY_LIMIT=host:1M", "USM_POOL=direct"},
     cross_a_limit_by_a_context,
     USM_E_BUDGET,
     {"2097152 bytes more would cross the limit of 1048576 for host memory", "0 B live"},
     NULL},
};

/* --- the rules -------------------------------------------------------------------------------- */

/* "1 blocks": a 1 that stands alone before a word in the plural. */
static bool has_wrong_plural(const char *text)
{
    static const char *const words[] = {"allocations", "arguments", "blocks",  "bytes",  "buffers",
                                        "calls",       "commands",  "devices", "events", "launches",
                                        "members",     "threads",   "times",   NULL};

    for (const char *at = text; (at = strstr(at, "1 ")) != NULL; at += 2) {
        if (at > text && (isalnum((unsigned char)at[-1]) || at[-1] == '.' || at[-1] == '-'))
            continue;
        for (size_t i = 0; words[i]; i++)
            if (strncmp(at + 2, words[i], strlen(words[i])) == 0)
                return true;
    }
    return false;
}

static void keeps_the_rules(const char *text)
{
    const char *wrong = strstr(text, "\"\"")                           ? "names nothing"
                        : strstr(text, "(null)") || strstr(text, "  ") ? "has a hole"
                        : has_wrong_plural(text)                       ? "does not count properly"
                                                                       : NULL;

    if (wrong) {
        printf("# a message %s: %s\n", wrong, text);
        CHECK(!"the rules are kept");
    }
}

/* --- the list --------------------------------------------------------------------------------- */

static const saying *now;
static const char   *folder;

/* $T, $I and $B are filled in. */
static const char *filled(const char *text)
{
    static char out[700];
    size_t      n = 0;

    for (; *text && n < sizeof out - 300; text++) {
        char c = '\0';

        if (text[0] == '$')
            c = text[1];
        if (c == 'T')
            n += (size_t)snprintf(out + n, sizeof out - n, "%s", folder);
        else if (c == 'I' || c == 'B')
            n += (size_t)snprintf(out + n, sizeof out - n, "%p", c == 'I' ? inside : start);
        else
            out[n++] = *text;
        text += c != '\0';
    }
    out[n] = '\0';
    return out;
}

static void set_variables(void)
{
    CHECK_INT(setenv("USM_DEVICE_SELECTOR", "host:*", 1), 0);
    for (size_t i = 0; i < 3 && now->variables[i]; i++) {
        char  text[700];
        char *sign;

        (void)snprintf(text, sizeof text, "%s", filled(now->variables[i]));
        sign  = strchr(text, '=');
        *sign = '\0';
        CHECK_INT(setenv(text, sign + 1, 1), 0);
    }
}

static void say(void)
{
    set_variables();
    now->fail();
    keeps_the_rules(usm_last_error());
    for (size_t i = 0; i < 4 && now->words[i]; i++)
        CHECK_IN(filled(now->words[i]), usm_last_error());
    if (now->not_words && strstr(usm_last_error(), now->not_words)) {
        printf("# it says %s: %s\n", now->not_words, usm_last_error());
        CHECK(!"it does not say so");
    }
    CHECK_INT(usm_last_status(), now->status);
}

static bool is_memory(const char *path)
{
    struct statfs fs;

    return statfs(path, &fs) == 0 && fs.f_type == TMPFS_MAGIC;
}

/* Where /tmp is memory nothing is spilled to it. */
static void work_on_a_disk(void)
{
    const char *tmp = getenv("TMPDIR"), *disk = getenv("USM_TEST_DISK");

    if (!is_memory(tmp ? tmp : "/tmp"))
        return;
    if (!disk)
        disk = "/var/tmp";
    if (is_memory(disk))
        SKIP("there is no folder on a disk; USM_TEST_DISK may name one");
    CHECK_INT(setenv("TMPDIR", disk, 1), 0);
}

static void each_message_names_culprit_and_remedy(void)
{
    char text[16384], path[512], there[512];

    work_on_a_disk();
    (void)snprintf(path, sizeof path, "%s", plain_path("errors"));
    (void)snprintf(there, sizeof there, "%s", path);
    *strrchr(there, '/') = '\0';
    folder               = there;
    for (size_t i = 0; i < sizeof list / sizeof list[0]; i++) {
        now = &list[i];
        if (PLAIN_SANITIZED && now->fail == run_out_of_addresses)
            continue; /* the sanitizers' own tables take more */
        if (plain_child(say, path) != 0) {
            printf("# %s\n", now->what);
            CHECK(!"its message is as it should be");
        }
        keeps_the_rules(plain_read(path, text, sizeof text));
    }
    printf("# %zu messages\n", sizeof list / sizeof list[0]);
}

/* Which call it is that the page map makes depends on the machine: each is made to fail, until one
 * does not matter. */
static unsigned mapping;

/* The first area of a process needs a leaf of the page map; `slab` would try another area. */
static void have_no_mapping(void)
{
    char  text[64];
    void *p;

    (void)snprintf(text, sizeof text, "fault:os.mmap@%u+", mapping);
    CHECK_INT(setenv("USM_HOOKS", text, 1), 0);
    CHECK_INT(setenv("USM_DEVICE_SELECTOR", "host:*", 1), 0);
    CHECK_INT(setenv("USM_POOL", "direct", 1), 0);
    (void)usm_alloc(64, USM_UNKNOWN); /* its error message gives the thread room for the next */
    p = usm_alloc_host(64);
    (void)fprintf(stderr, "%s", p ? "all is well" : usm_last_error());
    if (!p)
        CHECK_INT(usm_last_status(), USM_E_NO_MEMORY);
}

static void a_page_map_that_cannot_grow_says_so(void)
{
    char        text[4096];
    const char *path = plain_path("mappings");
    bool        said = false;

    for (mapping = 1; mapping < 200; mapping++) {
        CHECK_INT(plain_child(have_no_mapping, path), 0);
        keeps_the_rules(plain_read(path, text, sizeof text));
        said |= strstr(text, "no host memory for the page map, in which libusm finds the block of "
                             "0x") != NULL;
        if (strstr(text, "all is well"))
            break;
    }
    printf("# %u mappings\n", mapping - 1);
    CHECK(mapping < 200);
    CHECK(said);
}

static void plurals_are_told_apart(void)
{
    CHECK(has_wrong_plural("in 1 blocks") && has_wrong_plural("1 allocations"));
    CHECK(!has_wrong_plural("in 21 blocks, 1 block, 0.1 bytes, x1 calls"));
}

static const plain_case cases[] = {
    CASE(plurals_are_told_apart),
    CASE(each_message_names_culprit_and_remedy),
    CASE(a_page_map_that_cannot_grow_says_so),
    {NULL, NULL},
};

int main(int argc, char **argv)
{
    return plain_main(argc, argv, cases);
}
