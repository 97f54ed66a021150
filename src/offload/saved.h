/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The format of files from which work is resumed: those of launches (resume.c, states.c) and those
 * of graphs (graph_keep.c).
 *
 *     head     8 characters with the kind and its version; whose work it is; checksum of that
 *     records  two numbers, the size of the payload, checksum of these and the payload; payload
 *
 * Numbers are 64 bits, the lowest byte first; checksums are XXH3.  A payload is as the program has
 * it in memory.
 *
 * Files are appended to, or written under another name and renamed (usm__os_write_file()).  A
 * process that is killed leaves a record that is incomplete, which its checksum reveals, or a file
 * with the other name, which usm__saved_sweep() removes. */
#ifndef USM_OFFLOAD_SAVED_H
#define USM_OFFLOAD_SAVED_H

#include "base/hash.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* ---- heads --------------------------------------------------------------------------------- */

enum { USM__SAVED_MAGIC = 8, USM__SAVED_HEAD_MAX = 96 };

typedef enum usm__saved_kind {
    USM__SAVED_LAUNCH, /* ended chunks      */
    USM__SAVED_STATES, /* unfinished chunks */
    USM__SAVED_GRAPH,  /* ended tasks       */
} usm__saved_kind;

typedef struct usm__saved_head {
    unsigned char bytes[USM__SAVED_HEAD_MAX];
    size_t        size;
} usm__saved_head;

void usm__saved_head_begin(usm__saved_head *h, usm__saved_kind kind);
void usm__saved_head_add(usm__saved_head *h, const void *bytes, size_t size);
void usm__saved_head_number(usm__saved_head *h, uint64_t number);
void usm__saved_head_hash(usm__saved_head *h, const usm__hash *hash);
/* Adds the checksum, the last of it. */
void usm__saved_head_end(usm__saved_head *h);

/* What a file begins with. */
typedef enum usm__saved_found {
    USM__SAVED_WHOLE,   /* a head of this kind, of this or of other work */
    USM__SAVED_CUT,     /* too short: its first writer was killed, and it has no records */
    USM__SAVED_DAMAGED, /* nobody knows whose work it has */
    USM__SAVED_OTHER,   /* another version of libusm wrote it */
    USM__SAVED_FOREIGN, /* something else, which is to be left alone */
} usm__saved_found;

/* Looks at the first bytes of a file, up to `size` of them; the head should be of the kind and size
 * of `wanted`, which is whole. */
usm__saved_found usm__saved_look(const usm__saved_head *wanted, const void *bytes, size_t size);

/* ---- records ------------------------------------------------------------------------------- */

#define USM__RECORD_SIZE ((size_t)32) /* without the payload */

typedef struct usm__saved_record {
    uint64_t a, b, size; /* two numbers that say what it is; bytes of the payload */
} usm__saved_record;

/* Writes everything except the payload, which is in place already. */
void              usm__saved_seal(unsigned char *at, uint64_t a, uint64_t b, size_t size);
usm__saved_record usm__saved_record_at(const unsigned char *at);
/* pre: the payload has as many bytes as the record says. */
bool usm__saved_is_whole(const unsigned char *record, const void *payload);

/* ---- folders ------------------------------------------------------------------------------- */

/* Whether it is what usm__os_write_file() adds to a name until the file is whole. */
bool usm__saved_is_aside(const char *ending);

typedef bool usm__saved_fn(const char *name, const void *arg);
/* Removes the files of the folder for whose names fn(name, arg) is true. */
void usm__saved_sweep(const char *folder, usm__saved_fn *fn, const void *arg);

#endif
