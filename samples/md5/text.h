/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Texts of small letters, their numbers and their digests: what is looked for, without libusm.
 *
 * Texts are numbered in the order of their length, then of the alphabet:
 *
 *     0 = "a", ... 25 = "z", 26 = "aa", ... 730 = "abc", ... */
#ifndef SAMPLES_MD5_TEXT_H
#define SAMPLES_MD5_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MD5_LETTERS  26
#define MD5_LONGEST  13          /* letters, such that all texts of that many have numbers */
#define MD5_ABSENT   INT64_C(-1) /* no number */
#define MD5_NO_STRIP UINT32_MAX  /* no strip of 26 texts: what kernels begin with */

/* What a device is asked; 32 bytes, the same for every kernel. */
struct md5_request {
    uint8_t digest[16];
    int64_t from, to; /* numbers of texts, from <= number < to */
};

/* text.c: texts and their numbers ------------------------------------------------------------ */

/* How a result travels: 32 bytes, `length` is 0 when there is none. */
struct md5_answer {
    int32_t length;
    char    text[28]; /* 0-terminated */
};

struct md5_answer md5_text_of(int64_t number);     /* of MD5_ABSENT, too */
int64_t           md5_number_of(const char *text); /* MD5_ABSENT: it is no such text */
/* How many texts have at most `length` letters, at most MD5_LONGEST. */
int64_t md5_texts_up_to(unsigned length);
/* 32 hexadecimal digits, in either case, and nothing else. */
bool md5_parse_digest(const char *hex, uint8_t digest[16]);
void md5_print_digest(const uint8_t digest[16], char hex[33]);

/* reference.c: plain C ----------------------------------------------------------------------- */

/* Of a message of at most 55 bytes, which is one block. */
void md5_digest_of(const void *message, size_t bytes, uint8_t digest[16]);
/* The lowest number in the request's range whose text has the digest, or MD5_ABSENT. */
int64_t md5_scan(const struct md5_request *request);

#endif
