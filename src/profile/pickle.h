/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Writes Python's pickles, protocol 2: dictionaries, lists, texts, numbers.  Only operations that
 * PyTorch's memory viewer reads too.  A failed write shows in ferror().  Called by
 * export_pytorch.c. */
#ifndef USM_PROFILE_PICKLE_H
#define USM_PROFILE_PICKLE_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#define USM__PICKLE_KEYS 64u

typedef struct usm__pickle {
    FILE       *out;
    const char *keys[USM__PICKLE_KEYS]; /* the memo's first entries */
    uint32_t    nkeys;
    uint32_t    memo; /* entries beyond the keys */
} usm__pickle;

void usm__pickle_begin(usm__pickle *p, FILE *out);
void usm__pickle_end(usm__pickle *p);

/* Keys and values follow by turns. */
void usm__pickle_dict_begin(usm__pickle *p);
void usm__pickle_dict_end(usm__pickle *p);
void usm__pickle_list_begin(usm__pickle *p);
/* Before element i of a list: readers take a thousand at a time. */
void usm__pickle_list_next(usm__pickle *p, size_t i);
void usm__pickle_list_end(usm__pickle *p);

/* A constant that is written often: later ones refer to the first.  At most USM__PICKLE_KEYS. */
void usm__pickle_word(usm__pickle *p, const char *constant);
/* Bytes that are no UTF-8 become U+FFFD. */
void usm__pickle_text(usm__pickle *p, const char *text);
void usm__pickle_number(usm__pickle *p, uint64_t value);
void usm__pickle_bool(usm__pickle *p, bool value);

/* Remembers the value just written; usm__pickle_again() writes a reference to it. */
uint32_t usm__pickle_remember(usm__pickle *p);
void     usm__pickle_again(usm__pickle *p, uint32_t what);

#endif
