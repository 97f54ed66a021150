/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The key of aes_gcm: where it comes from, and that it is nowhere it could leave the process from:
 * not in messages, settings, the environment, or memory that a core dump would hold.
 *
 * The search runs in a process of its own, started with the key in its environment as a user does;
 * the program knows the key only with every character changed. */
#include "plain.h"

#include "base/log.h"
#include "base/settings.h"
#include "device/registry.h"

#include "codecs/aes_gcm/internal.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <sys/mman.h>
#include <sys/stat.h>

#define CHILD "USM_TEST_KEY_CHILD"

/* 64 digits, each one further than the key's: '0' to '9' become '1' to ':'. */
static const char shifted[] = "4:39284:583:2748192834758291847582:1847582:18475829184:582918475";

static void key_text(char *text)
{
    for (size_t i = 0; i < 64; i++)
        text[i] = (char)(shifted[i] - 1);
    text[64] = '\0';
}

static void key_bytes(unsigned char *bytes)
{
    for (size_t i = 0; i < 32; i++)
        bytes[i] =
            (unsigned char)((shifted[2 * i] - 1 - '0') << 4 | (shifted[2 * i + 1] - 1 - '0'));
}

static const usm_codec_ops *ops(void)
{
    const usm_codec_ops *table = usm__registry_codec("aes_gcm");

    if (!table && usm_last_status() == USM_E_NO_BACKEND)
        SKIP("this build has no codec aes_gcm");
    CHECK(table != NULL);
    return table;
}

static usm_status create_codec(void **codec)
{
    usm_codec_params params = {sizeof params, &usm__registry_api, ""};

    return ops()->create(&params, codec);
}

static void use(void *codec)
{
    usm_codec_id  id         = {1, 2, 3};
    unsigned char clear[256] = "some text", bytes[512], back[256];
    size_t        n          = 0;

    CHECK_INT(ops()->encode(codec, &id, clear, sizeof clear, bytes, sizeof bytes, &n), USM_OK);
    CHECK_INT(ops()->decode(codec, &id, bytes, n, back, sizeof back), USM_OK);
    CHECK(memcmp(clear, back, sizeof clear) == 0);
}

/* ---- where it comes from ------------------------------------------------------------------ */

static void forget_keys(void)
{
    CHECK_INT(usm__settings_set("spill_key", NULL), USM_OK);
    CHECK_INT(usm__settings_set("spill_key_file", NULL), USM_OK);
}

static void without_a_key_there_is_a_random_one_and_the_log_says_so(void)
{
    char        text[4096], value[600];
    const char *path  = plain_path("log");
    void       *codec = NULL;

    (void)ops();
    (void)snprintf(value, sizeof value, "level:info;output:%s", path);
    CHECK_INT(usm__settings_set("log", value), USM_OK);
    CHECK_INT(create_codec(&codec), USM_OK);
    use(codec);
    ops()->destroy(codec);
    CHECK_INT(usm__settings_set("log", NULL), USM_OK);
    CHECK_IN("a random key", plain_read(path, text, sizeof text));
}

static void keys_of_a_setting_are_checked(void)
{
    static const char *const bad[] = {"0", "0123456789abcdef0123456789abcdeg",
                                      "0123456789abcdef0123456789abcdef0", "secret"};
    void                    *codec = NULL;

    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        CHECK_INT(usm__settings_set("spill_key", bad[i]), USM_E_SETTING);
        CHECK_IN("32 or 64 hexadecimal digits", usm_last_error());
        CHECK(strstr(usm_last_error(), bad[i]) == NULL || strlen(bad[i]) == 1);
    }
    CHECK_INT(usm__settings_set("spill_key", "0123456789abcdef0123456789ABCDEF"), USM_OK);
    CHECK_STR(usm__setting_text("spill_key"), "(set)");
    CHECK_INT(create_codec(&codec), USM_OK);
    use(codec);
    ops()->destroy(codec);
    CHECK_INT(usm__settings_set("spill_key", ""), USM_OK);
    CHECK_STR(usm__setting_text("spill_key"), "");
    forget_keys();
}

static usm_status create_with_file(const char *path, void **codec)
{
    CHECK_INT(usm__settings_set("spill_key_file", path), USM_OK);
    return create_codec(codec);
}

static void a_key_file_is_read_if_nobody_else_can(void)
{
    const char *path  = plain_path("key");
    void       *codec = NULL;
    char        text[66];

    (void)ops();
    key_text(text);
    text[64] = '\n';
    text[65] = '\0';
    plain_write(path, text);
    CHECK_INT(chmod(path, 0600), 0);
    CHECK_INT(create_with_file(path, &codec), USM_OK);
    use(codec);
    ops()->destroy(codec);
    codec = NULL;
    for (unsigned mode = 1; mode < 0100; mode++) {
        CHECK_INT(chmod(path, 0600 | mode), 0);
        CHECK_INT(create_with_file(path, &codec), USM_E_KEY);
        CHECK_IN("chmod 600", usm_last_error());
        CHECK(codec == NULL);
    }
    CHECK_INT(chmod(path, 0400), 0);
    CHECK_INT(create_with_file(path, &codec), USM_OK);
    ops()->destroy(codec);
    forget_keys();
}

static void a_bad_key_file_stops_encryption(void)
{
    static const char *const bad[] = {"", "\n", "0123", "0123456789abcdef0123456789abcdefxx\n",
                                      "zz23456789abcdef0123456789abcdef\n"};
    const char              *path  = plain_path("key");
    void                    *codec = NULL;

    (void)ops();
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        (void)unlink(path);
        plain_write(path, bad[i]);
        CHECK_INT(chmod(path, 0600), 0);
        CHECK_INT(create_with_file(path, &codec), USM_E_KEY);
        CHECK_IN("does not hold 32 or 64 hexadecimal digits", usm_last_error());
    }
    (void)unlink(path);
    CHECK_INT(create_with_file(path, &codec), USM_E_KEY);
    CHECK_IN("No such file", usm_last_error());
    CHECK_INT(create_with_file("/dev/zero", &codec), USM_E_KEY);
    CHECK_INT(mkfifo(path, 0600), 0); /* opening it would wait for a writer */
    CHECK_INT(create_with_file(path, &codec), USM_E_KEY);
    CHECK(codec == NULL);
    forget_keys();
}

/* ---- where it is ----------------------------------------------------------------------------- */

typedef struct needle {
    const char *name;
    /* with every byte changed, so that looking does not find itself */
    unsigned char bytes[64];
    size_t        size;
    unsigned      found, dumped;
} needle;

static void make_needle(needle *n, const char *name, const void *bytes, size_t size)
{
    n->name = name;
    n->size = size;
    for (size_t i = 0; i < size; i++)
        n->bytes[i] = ((const unsigned char *)bytes)[i] ^ 0xff;
}

static bool is_here(const needle *n, const unsigned char *at)
{
    for (size_t i = 0; i < n->size; i++)
        if ((at[i] ^ n->bytes[i]) != 0xff)
            return false;
    return true;
}

static void search_range(int mem, uintptr_t from, uintptr_t to, bool is_dumped, needle *list,
                         size_t n, unsigned char *room, size_t room_size)
{
    for (uintptr_t at = from; at < to; at += room_size - 128) {
        size_t  want = to - at < room_size ? to - at : room_size;
        ssize_t got  = pread(mem, room, want, (off_t)at);

        for (ssize_t i = 0; got > 0 && i < got; i++)
            for (size_t k = 0; k < n; k++)
                if (i + (ssize_t)list[k].size <= got && is_here(&list[k], room + i)) {
                    list[k].found++;
                    list[k].dumped += is_dumped;
                }
    }
}

/* Looks through all memory of the process; a range is dumped unless its flags have "dd". */
static void search(needle *list, size_t n)
{
    enum { ROOM = 1 << 20 };
    unsigned char *room =
        mmap(NULL, ROOM, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    int       mem  = open("/proc/self/mem", O_RDONLY | O_CLOEXEC);
    FILE     *maps = fopen("/proc/self/smaps", "re");
    char      line[512], mode[8] = "";
    uintptr_t from = 0, to = 0;

    CHECK(room != MAP_FAILED && mem >= 0 && maps != NULL);
    while (fgets(line, sizeof line, maps)) {
        uintptr_t a, b;
        char      m[8];

        if (sscanf(line, "%" SCNxPTR "-%" SCNxPTR " %7s", &a, &b, m) == 3) {
            from = a;
            to   = b;
            (void)snprintf(mode, sizeof mode, "%s", m);
        } else if (strncmp(line, "VmFlags:", 8) == 0 && mode[0] == 'r' &&
                   !((uintptr_t)room >= from && (uintptr_t)room < to)) {
            search_range(mem, from, to, strstr(line, " dd") == NULL, list, n, room, ROOM);
        }
    }
    (void)fclose(maps);
    (void)close(mem);
    (void)munmap(room, ROOM);
}

static bool occurs_in_file(const char *path, const needle *n)
{
    static char text[1 << 16];
    FILE       *file = fopen(path, "re");
    size_t      size;
    bool        occurs = false;

    CHECK(file != NULL);
    size = fread(text, 1, sizeof text, file);
    (void)fclose(file);
    for (size_t i = 0; i + n->size <= size; i++)
        occurs |= is_here(n, (const unsigned char *)text + i);
    memset(text, 0, sizeof text);
    return occurs;
}

/* With the key in the environment: see main(). */
static void the_key_is_nowhere_child(void)
{
    enum { TEXT, GIVEN, MADE, KINDS };
    needle         list[KINDS] = {{0}};
    const char    *log         = plain_path("log");
    const char    *shown       = NULL;
    void          *codec = NULL, *second = NULL;
    char           value[600];
    unsigned char *scratch =
        mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (!getenv(CHILD))
        return; /* the parent's list */
    CHECK(scratch != MAP_FAILED);
    key_text((char *)scratch);
    make_needle(&list[TEXT], "the text", scratch, 64);
    key_bytes(scratch);
    make_needle(&list[GIVEN], "its bytes", scratch, 32);
    (void)munmap(scratch, 4096);
    list[MADE].size = 32;
    search(list, 2);
    CHECK(list[TEXT].dumped > 0); /* the search finds what is there */
    CHECK(occurs_in_file("/proc/self/environ", &list[TEXT]));

    (void)snprintf(value, sizeof value, "level:trace;output:%s", log);
    CHECK_INT(usm__settings_set("log", value), USM_OK);
    CHECK_INT(usm__settings_get("spill_key", &shown, NULL), USM_OK);
    CHECK_STR(shown, "(set)");
    CHECK_STR(usm__setting_origin("spill_key"), "USM_SPILL_KEY");
    CHECK_INT(create_codec(&codec), USM_OK);
    CHECK_INT(create_codec(&second), USM_OK); /* takes it a second time */
    CHECK_INT(((const struct aes *)codec)->secret->given.text[0],
              0); /* wiped: the settings' is kept */
    use(codec);
    use(second);
    usm__warn("there is a log");
    make_needle(&list[MADE], "the derived key", ((const struct aes *)codec)->secret->key, 32);
    list[TEXT].dumped = list[TEXT].found = 0;
    search(list, KINDS);
    for (size_t i = 0; i < KINDS; i++) {
        printf("# %s: found %u times, %u of them where a core dump would hold it\n", list[i].name,
               list[i].found, list[i].dumped);
        CHECK_INT(list[i].dumped, 0);
    }
    CHECK(list[TEXT].found > 0 && list[MADE].found > 1); /* ours and OpenSSL's */
    CHECK_INT(list[GIVEN].found, 0);
    CHECK(!occurs_in_file("/proc/self/environ", &list[TEXT]));
    CHECK(!occurs_in_file(log, &list[TEXT]));
    ops()->destroy(codec);
    ops()->destroy(second);
    list[MADE].found = 0;
    search(&list[MADE], 1);
    CHECK_INT(list[MADE].found, 0); /* overwritten everywhere */
    usm__settings_forget();
    list[TEXT].found = 0;
    search(&list[TEXT], 1);
    CHECK_INT(list[TEXT].found, 0);
}

static void run_child(void)
{
    char  key[80] = "USM_SPILL_KEY=", path[600], *plugins = getenv("USM_PLUGIN_PATH");
    char  self[] = "test_codec_key", name[] = "the_key_is_nowhere_child", mark[] = CHILD "=1";
    char *args[] = {self, name, NULL}, *environment[] = {key, mark, path, NULL};

    key_text(key + strlen(key));
    (void)snprintf(path, sizeof path, "USM_PLUGIN_PATH=%s", plugins ? plugins : "");
    execve("/proc/self/exe", args, environment);
    _exit(3);
}

static void the_key_is_nowhere_it_could_leave_from(void)
{
    (void)ops();
    /* Sanitizers have copies of their own, and more memory than can be searched. */
    if (!PLAIN_SANITIZED)
        CHECK_INT(plain_child(run_child, NULL), 0);
}

/* What is said of a key that does not parse does not show it. */
static void refuse(void)
{
    char text[65];

    key_text(text);
    text[63] = 'x';
    CHECK_INT(setenv("USM_SPILL_KEY", text, 1), 0);
    usm__settings_forget();
    CHECK_STR(usm__setting_text("spill_key"), "");
}

static void a_refused_key_is_not_shown(void)
{
    const char *path = plain_path("errors");
    char        text[4096], key[65];

    CHECK_INT(plain_child(refuse, path), 0);
    key_text(key);
    key[63] = '\0';
    CHECK_IN("USM_SPILL_KEY (its value is not shown) cannot be used",
             plain_read(path, text, sizeof text));
    CHECK(strstr(text, key) == NULL);
    key[8] = '\0';
    CHECK(strstr(text, key) == NULL);
}

static const plain_case cases[] = {
    CASE(without_a_key_there_is_a_random_one_and_the_log_says_so),
    CASE(keys_of_a_setting_are_checked),
    CASE(a_key_file_is_read_if_nobody_else_can),
    CASE(a_bad_key_file_stops_encryption),
    CASE(the_key_is_nowhere_child),
    CASE(the_key_is_nowhere_it_could_leave_from),
    CASE(a_refused_key_is_not_shown),
    {NULL, NULL},
};

int main(int argc, char **argv)
{
    return plain_main(argc, argv, cases);
}
