/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Texts, their numbers, digests as people write them (text.h); for everyone here. */
#include "text.h"

#include <string.h>

struct md5_answer md5_text_of(int64_t number)
{
    struct md5_answer answer = {0};

    for (; number >= 0; number = number / MD5_LETTERS - 1) {
        memmove(answer.text + 1, answer.text, (size_t)answer.length);
        answer.text[0] = (char)('a' + number % MD5_LETTERS);
        answer.length++;
    }
    return answer;
}

int64_t md5_number_of(const char *text)
{
    int64_t number = 0;

    if (*text == '\0' || strlen(text) > MD5_LONGEST)
        return MD5_ABSENT;
    for (; *text; text++) {
        if (*text < 'a' || *text > 'z')
            return MD5_ABSENT;
        number = MD5_LETTERS * number + (*text - 'a' + 1);
    }
    return number - 1;
}

int64_t md5_texts_up_to(unsigned length)
{
    int64_t texts = 0;

    for (unsigned i = 0; i < length; i++)
        texts = MD5_LETTERS * (texts + 1);
    return texts;
}

static int digit_of(char c)
{
    static const char digits[] = "0123456789abcdef0123456789ABCDEF";
    const char       *at       = c ? strchr(digits, c) : NULL;

    return at ? (int)((at - digits) % 16) : -1;
}

bool md5_parse_digest(const char *hex, uint8_t digest[16])
{
    if (strlen(hex) != 32)
        return false;
    for (unsigned i = 0; i < 32; i++) {
        const int digit = digit_of(hex[i]);

        if (digit < 0)
            return false;
        digest[i / 2] = (uint8_t)(i % 2 ? digest[i / 2] | digit : digit << 4);
    }
    return true;
}

void md5_print_digest(const uint8_t digest[16], char hex[33])
{
    for (unsigned i = 0; i < 32; i++)
        hex[i] = "0123456789abcdef"[digest[i / 2] >> (i % 2 ? 0 : 4) & 15];
    hex[32] = '\0';
}
