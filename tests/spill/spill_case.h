/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* A case of spill_faults.c and spill_damage.c: a child with a memory limit and a spill folder of
 * its own, as the engine lives as long as its process; blocks that know what they are. */
#ifndef SPILL_CASE_H
#define SPILL_CASE_H

#include "plain.h"

#include <dirent.h>
#include <stdatomic.h>
#include <stdint.h>
#include <usm/usm.h>

enum { BLOCK = 16384, FRAMES = 32, BLOCKS = 160 };

/* ---- a process with a limit and a spill folder --------------------------------------- */

static struct {
    usm_context *ctx;
    const char  *folder;
    atomic_int   notified;    /* failures that reached the error callback                    */
    atomic_int   told_status; /* the last                                                    */
} here;

static uint64_t random_state = 88172645463325252u;

static inline uint64_t pick(uint64_t n)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return (random_state >> 11) % n;
}

static inline void notified(usm_context *ctx, usm_status st, const char *reason, void *user)
{
    (void)ctx;
    (void)user;
    (void)reason;
    atomic_store(&here.told_status, (int)st);
    atomic_fetch_add(&here.notified, 1);
}

/* options: behind the folder, as ",quota=1M". */
static inline void start(const char *options)
{
    usm_context_desc desc = USM_CONTEXT_DESC_INIT;
    char             text[600];

    CHECK(here.folder != NULL);
    (void)alarm(100);
    (void)snprintf(text, sizeof text, "host:%dK", BLOCK / 1024 * FRAMES);
    CHECK_INT(usm_config_set("memory_limit", text), USM_OK);
    (void)snprintf(text, sizeof text, "%dK", BLOCK / 1024);
    CHECK_INT(usm_config_set("spill_block", text), USM_OK);
    (void)snprintf(text, sizeof text, "file:%s%s", here.folder, options);
    CHECK_INT(usm_config_set("spill", text), USM_OK);
    CHECK_INT(usm_config_set("log", "off"), USM_OK);
    desc.on_error = notified;
    CHECK_INT(usm_context_create(&desc, &here.ctx), USM_OK);
}

static inline usm_buffer *make(const char *name, size_t blocks)
{
    usm_buffer_desc desc = USM_BUFFER_DESC_INIT;
    usm_buffer     *buf  = NULL;

    desc.size = blocks * BLOCK;
    desc.name = name;
    CHECK_INT(usm_buffer_create(here.ctx, &desc, &buf), USM_OK);
    return buf;
}

/* The content of block i in its `version`: its first word tells both. */
static inline uint64_t word_of(size_t i, unsigned version, size_t word)
{
    if (word == 0)
        return (uint64_t)i << 32 | version;
    return ((uint64_t)i * 2654435761u + version) * 0x9E3779B97F4A7C15u + word;
}

static inline usm_status write_block(usm_buffer *buf, size_t i, unsigned version)
{
    usm_access acc;
    usm_status st = usm_access_begin(buf, i * BLOCK, BLOCK, USM_WRITE_NO_INIT, &acc);

    if (st != USM_OK)
        return st;
    for (size_t w = 0; w < BLOCK / 8; w++)
        ((uint64_t *)acc.ptr)[w] = word_of(i, version, w);
    usm_access_end(&acc);
    return USM_OK;
}

static inline usm_status read_block(usm_buffer *buf, size_t i, unsigned version)
{
    usm_access acc;
    usm_status st = usm_access_begin(buf, i * BLOCK, BLOCK, USM_READ, &acc);

    if (st != USM_OK)
        return st;
    for (size_t w = 0; w < BLOCK / 8; w++)
        CHECK(((const uint64_t *)acc.ptr)[w] == word_of(i, version, w));
    usm_access_end(&acc);
    return USM_OK;
}

typedef usm_status block_fn(usm_buffer *buf, size_t i, unsigned version);

/* What failed before may be told once more when nothing fails any more. */
static inline usm_status again(block_fn *fn, usm_buffer *buf, size_t i, unsigned version)
{
    usm_status st = fn(buf, i, version);

    for (int tries = 0; tries < 50 && (st == USM_E_IO || st == USM_E_SPILL_FULL); tries++)
        st = fn(buf, i, version);
    return st;
}

static inline void read_all(usm_buffer *buf, size_t n, unsigned version)
{
    for (size_t i = 0; i < n; i++)
        CHECK_INT(again(read_block, buf, i, version), USM_OK);
}

static inline size_t files_in(const char *folder)
{
    DIR   *dir = opendir(folder);
    size_t n   = 0;

    CHECK(dir != NULL);
    /* NOLINTNEXTLINE(concurrency-mt-unsafe): of this thread's own DIR */
    for (const struct dirent *e = readdir(dir); e != NULL; e = readdir(dir))
        n += strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0;
    (void)closedir(dir);
    return n;
}

/* Runs fn in a child; the spill folder is empty behind it. */
static inline void in_child(void (*fn)(void))
{
    int status;

    here.folder = plain_path("spill");
    (void)mkdir(here.folder, 0700);
    status = plain_child(fn, NULL);
    if (status != 0)
        printf("# the child ended with %s %d\n", WIFSIGNALED(status) ? "signal" : "status",
               WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
    CHECK_INT(status, 0);
    CHECK_INT(files_in(here.folder), 0);
}

#endif
