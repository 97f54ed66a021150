/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Is an answer right?  Plain C, one text after the other, after the words of RFC 1321 and with its
 * table computed as it says, so that nothing is shared with the kernels. */
#include "text.h"

#include <math.h>
#include <string.h>

#define ROUNDS 64

static uint32_t rotate(uint32_t x, unsigned n)
{
    return x << n | x >> (32 - n);
}

/* One step's function of b, c, d; *word: which one of the message it takes. */
static uint32_t mix(unsigned i, const uint32_t s[4], unsigned *word)
{
    switch (i / 16) {
    case 0:
        *word = i;
        return (s[1] & s[2]) | (~s[1] & s[3]);
    case 1:
        *word = (5 * i + 1) % 16;
        return (s[1] & s[3]) | (s[2] & ~s[3]);
    case 2:
        *word = (3 * i + 5) % 16;
        return s[1] ^ s[2] ^ s[3];
    default:
        *word = 7 * i % 16;
        return s[2] ^ (s[1] | ~s[3]);
    }
}

/* RFC 1321: the i-th is the integer part of 2^32 |sin(i)|. */
static const uint32_t *constants(void)
{
    static uint32_t table[ROUNDS];

    for (unsigned i = 0; i < ROUNDS && table[ROUNDS - 1] == 0; i++)
        table[i] = (uint32_t)(4294967296.0 * fabs(sin(i + 1.0)));
    return table;
}

static void read_block(const uint8_t block[64], uint32_t words[16])
{
    for (size_t i = 0; i < 16; i++)
        words[i] = (uint32_t)block[4 * i] | (uint32_t)block[4 * i + 1] << 8 |
                   (uint32_t)block[4 * i + 2] << 16 | (uint32_t)block[4 * i + 3] << 24;
}

void md5_digest_of(const void *message, size_t bytes, uint8_t digest[16])
{
    static const unsigned shifts[4][4] = {
        {7, 12, 17, 22}, {5, 9, 14, 20}, {4, 11, 16, 23}, {6, 10, 15, 21}};
    static const uint32_t start[4]  = {0x67452301, 0xefcdab89, 0x98badcfe, 0x10325476};
    uint8_t               block[64] = {0};
    uint32_t              words[16], s[4];

    memcpy(block, message, bytes);
    block[bytes] = 0x80;
    block[56]    = (uint8_t)(8 * bytes); /* the length in bits, of 64 bits */
    block[57]    = (uint8_t)(8 * bytes >> 8);
    read_block(block, words);
    memcpy(s, start, sizeof s);
    for (unsigned i = 0; i < ROUNDS; i++) {
        unsigned       word;
        const uint32_t sum  = s[0] + mix(i, s, &word) + constants()[i];
        const uint32_t next = s[1] + rotate(sum + words[word], shifts[i / 16][i % 4]);

        s[0] = s[3];
        s[3] = s[2];
        s[2] = s[1];
        s[1] = next;
    }
    for (unsigned i = 0; i < 16; i++)
        digest[i] = (uint8_t)((s[i / 4] + start[i / 4]) >> 8 * (i % 4));
}

int64_t md5_scan(const struct md5_request *request)
{
    for (int64_t number = request->from; number < request->to; number++) {
        const struct md5_answer text = md5_text_of(number);
        uint8_t                 digest[16];

        md5_digest_of(text.text, (size_t)text.length, digest);
        if (memcmp(digest, request->digest, sizeof digest) == 0)
            return number;
    }
    return MD5_ABSENT;
}
