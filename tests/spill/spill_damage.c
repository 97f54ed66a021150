/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* spill_damage [--damages N]: bits that turn in the spill file, blocks that lie in the place of
 * others, blocks that are a version behind: 10,000 of them, each of which must be found by the
 * access that reads it, and none may cost more than the block that it hit. */
#include "spill_case.h"

#include <fcntl.h>

static uint64_t damages_wanted = 10000;

/* ---- damage in the file -------------------------------------------------------------- */

/* The scratch file: open, without a name, in the spill folder. */
static int scratch_file(void)
{
    char path[64], link[512];

    for (int fd = 3; fd < 256; fd++) {
        ssize_t n;

        (void)snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
        n = readlink(path, link, sizeof link - 1);
        if (n <= 0)
            continue;
        link[n] = 0;
        if (strstr(link, here.folder) != NULL && strstr(link, "(deleted)") != NULL)
            return open(path, O_RDWR | O_CLOEXEC);
    }
    return -1;
}

typedef struct damage {
    const char *name;
    uint64_t    made, detected, unread;
} damage;

static struct {
    int            fd;
    size_t         slots;
    unsigned char *before; /* [slots * BLOCK]: the file as it was                             */
    unsigned char *old;    /* the same, a version earlier                                    */
} disk;

static void load_disk(unsigned char *bytes)
{
    CHECK(pread(disk.fd, bytes, disk.slots * BLOCK, 0) == (ssize_t)(disk.slots * BLOCK));
}

static void put_slot(size_t slot, const void *bytes)
{
    CHECK(pwrite(disk.fd, bytes, BLOCK, (off_t)(slot * BLOCK)) == BLOCK);
}

/* Which block lies in the slot in its version; SIZE_MAX: none. */
static size_t block_in(size_t slot, unsigned version)
{
    uint64_t word;

    memcpy(&word, disk.before + slot * BLOCK, 8);
    if ((unsigned)word != version || word >> 32 >= BLOCKS ||
        memcmp(&word, &(uint64_t){word_of((size_t)(word >> 32), version, 0)}, 8) != 0)
        return SIZE_MAX;
    return (size_t)(word >> 32);
}

static void flip_bit(size_t slot, size_t other)
{
    unsigned char bytes[BLOCK];

    (void)other;
    memcpy(bytes, disk.before + slot * BLOCK, BLOCK);
    bytes[pick(BLOCK)] ^= (unsigned char)(1u << pick(8));
    put_slot(slot, bytes);
}

static void swap_slots(size_t slot, size_t other)
{
    put_slot(slot, disk.before + other * BLOCK);
}

static void make_stale(size_t slot, size_t other)
{
    (void)other;
    put_slot(slot, disk.old + slot * BLOCK);
}

/* Damages every slot that holds a block, reads all blocks, and takes the damage back. */
static void one_round(usm_buffer *buf, unsigned version, damage *d,
                      void (*make_damage)(size_t slot, size_t other))
{
    size_t slot_of[BLOCKS];

    for (size_t i = 0; i < BLOCKS; i++)
        slot_of[i] = SIZE_MAX;
    load_disk(disk.before);
    for (size_t s = 0; s < disk.slots; s++)
        if (block_in(s, version) != SIZE_MAX)
            slot_of[block_in(s, version)] = s;
    for (size_t i = 0; i < BLOCKS; i++) {
        size_t other = slot_of[(i + 1 + pick(BLOCKS - 1)) % BLOCKS];

        if (slot_of[i] == SIZE_MAX || (other == SIZE_MAX && make_damage == swap_slots) ||
            (make_damage == make_stale &&
             memcmp(disk.old + slot_of[i] * BLOCK, disk.before + slot_of[i] * BLOCK, BLOCK) == 0)) {
            slot_of[i] = SIZE_MAX;
            continue;
        }
        make_damage(slot_of[i], other);
        d->made++;
    }
    for (size_t i = 0; i < BLOCKS; i++) {
        usm_status st = read_block(buf, i, version); /* wrong bytes end the test */

        CHECK(st == USM_OK || st == USM_E_CORRUPT);
        CHECK(st == USM_OK || slot_of[i] != SIZE_MAX);
        d->detected += st == USM_E_CORRUPT;
        d->unread += st == USM_OK && slot_of[i] != SIZE_MAX; /* it was still in memory */
    }
    for (size_t i = 0; i < BLOCKS; i++)
        if (slot_of[i] != SIZE_MAX)
            put_slot(slot_of[i], disk.before + slot_of[i] * BLOCK);
    read_all(buf, BLOCKS, version);
}

static void rewrite(usm_buffer *buf, unsigned version)
{
    for (size_t i = 0; i < BLOCKS; i++)
        CHECK_INT(write_block(buf, i, version), USM_OK);
    read_all(buf, BLOCKS, version); /* it leaves memory again, and is as new */
}

static void damaged_file(void)
{
    damage      list[]   = {{"bits that turned", 0, 0, 0},
                            {"blocks in the place of others", 0, 0, 0},
                            {"stale blocks", 0, 0, 0}};
    uint64_t    detected = 0, made = 0;
    unsigned    version = 1;
    usm_buffer *buf;

    start(",engine=threads");
    (void)alarm(200 + (unsigned)(damages_wanted / 50));
    buf = make("damaged", BLOCKS);
    rewrite(buf, version);
    disk.fd     = scratch_file();
    disk.slots  = (size_t)BLOCKS * 3;
    disk.before = calloc(disk.slots, BLOCK);
    disk.old    = calloc(disk.slots, BLOCK);
    CHECK(disk.fd >= 0 && disk.before != NULL && disk.old != NULL);
    CHECK_INT(ftruncate(disk.fd, (off_t)(disk.slots * BLOCK)), 0);
    while (detected < damages_wanted) {
        if (version % 4 == 1 && version > 1)
            one_round(buf, version, &list[2], make_stale);
        one_round(buf, version, &list[0], flip_bit);
        one_round(buf, version, &list[1], swap_slots);
        load_disk(disk.old);
        rewrite(buf, ++version);
        one_round(buf, version, &list[2], make_stale);
        detected = made = 0;
        for (int i = 0; i < 3; i++) {
            detected += list[i].detected;
            made += list[i].made - list[i].unread;
        }
    }
    for (int i = 0; i < 3; i++)
        printf("# %llu %s that were read, %llu detected\n",
               (unsigned long long)(list[i].made - list[i].unread), list[i].name,
               (unsigned long long)list[i].detected);
    CHECK_INT(made, detected);
    CHECK(list[0].detected > 0 && list[1].detected > 0 && list[2].detected > 0);
    printf("# %llu injected and read, %llu detected, nothing lost\n", (unsigned long long)made,
           (unsigned long long)detected);
    usm_buffer_destroy(buf);
    usm_context_destroy(here.ctx);
}

static void every_damage_in_the_file_is_detected(void)
{
    in_child(damaged_file);
}

/* ---- parts of damaged blocks ------------------------------------------------------------- */

static const char *codec, *engine;

static void damage_all(int fd)
{
    unsigned char bytes[4096];
    ssize_t       n;

    for (off_t at = 0; (n = pread(fd, bytes, sizeof bytes, at)) > 0; at += n) {
        for (ssize_t i = 0; i < n; i++)
            bytes[i] ^= 0x55;
        CHECK(pwrite(fd, bytes, (size_t)n, at) == n);
    }
}

static usm_status write_part(usm_buffer *buf, size_t i)
{
    usm_access acc;
    usm_status st = usm_access_begin(buf, i * BLOCK + 4096, 4096, USM_WRITE_NO_INIT, &acc);

    if (st != USM_OK)
        return st;
    memset(acc.ptr, 0, acc.size);
    usm_access_end(&acc);
    return USM_OK;
}

/* Nothing of a block is asked for, but it comes as a whole or not at all. */
static void parts_of_damaged_blocks(void)
{
    usm_buffer *buf;
    size_t      failed = 0;
    int         fd;

    CHECK_INT(usm_config_set("spill_codec", codec), USM_OK);
    start(engine);
    (void)alarm(30);
    buf = usm_buffer_new(here.ctx, BLOCK);
    if (!buf && usm_last_status() == USM_E_NO_BACKEND) {
        printf("# %s was not built\n", codec);
        usm_context_destroy(here.ctx);
        return;
    }
    usm_buffer_destroy(buf);
    buf = make("damaged", BLOCKS);
    rewrite(buf, 1);
    fd = scratch_file();
    CHECK(fd >= 0);
    damage_all(fd);
    for (size_t i = 0; i < BLOCKS; i++) {
        usm_status st = write_part(buf, i);

        CHECK(st == USM_OK || st == USM_E_CORRUPT); /* it was still in memory, or not */
        failed += st != USM_OK;
    }
    CHECK(failed >= BLOCKS - FRAMES);
    for (size_t i = 0; i < BLOCKS; i++) /* written as a whole, it need not come */
        CHECK_INT(write_block(buf, i, 2), USM_OK);
    read_all(buf, BLOCKS, 2);
    usm_buffer_destroy(buf);
    usm_context_destroy(here.ctx);
}

static void a_part_of_a_damaged_block_is_refused(void)
{
    static const char *const engines[] = {",engine=threads", ",engine=uring"};
    static const char *const codecs[]  = {"lz4", "aes_gcm"};

    for (size_t i = 0; i < 4; i++) {
        engine = engines[i % 2];
        codec  = codecs[i / 2];
        in_child(parts_of_damaged_blocks);
    }
}

static const plain_case cases[] = {
    CASE(every_damage_in_the_file_is_detected),
    CASE(a_part_of_a_damaged_block_is_refused),
    {NULL, NULL},
};

int main(int argc, char **argv)
{
    if (argc > 2 && strcmp(argv[1], "--damages") == 0) {
        damages_wanted = strtoull(argv[2], NULL, 0);
        argv += 2;
        argc -= 2;
    }
    return plain_main(argc, argv, cases);
}
