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

static const plain_case cases[] = {
    CASE(every_damage_in_the_file_is_detected),
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
