/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Which text has this MD5 digest?  Three kernels of KernelHive's form; sizes are bytes.
 *
 * A request: digest[16], from, to (int64): texts with the numbers from <= n < to are tried.
 * 0 is "a", 25 "z", 26 "aa", 730 "abc".  A result: length (int32; 0: not found), text, 32 bytes. */
#define REQUEST 32
#define RESULT  32

struct request {
    uchar digest[16];
    long  from, to;
};

/* part i of `parts`, half-open, none shared and none left out */
__kernel void partitionData(__global const uchar *in, uint in_size, uint parts, __global uchar *out,
                            uint part_size)
{
    __global const struct request *whole = (__global const struct request *)in;
    long                           n     = whole->to - whole->from;

    for (uint i = 0; i < parts; i++) {
        __global struct request *part = (__global struct request *)(out + i * part_size);

        for (uint j = 0; j < 16; j++)
            part->digest[j] = whole->digest[j];
        part->from = whole->from + n / parts * i + min((long)i, n % parts);
        part->to   = part->from + n / parts + (i < n % parts);
    }
}

__constant uint sines[64] = {
    0xd76aa478, 0xe8c7b756, 0x242070db, 0xc1bdceee, 0xf57c0faf, 0x4787c62a, 0xa8304613, 0xfd469501,
    0x698098d8, 0x8b44f7af, 0xffff5bb1, 0x895cd7be, 0x6b901122, 0xfd987193, 0xa679438e, 0x49b40821,
    0xf61e2562, 0xc040b340, 0x265e5a51, 0xe9b6c7aa, 0xd62f105d, 0x02441453, 0xd8a1e681, 0xe7d3fbc8,
    0x21e1cde6, 0xc33707d6, 0xf4d50d87, 0x455a14ed, 0xa9e3e905, 0xfcefa3f8, 0x676f02d9, 0x8d2a4c8a,
    0xfffa3942, 0x8771f681, 0x6d9d6122, 0xfde5380c, 0xa4beea44, 0x4bdecfa9, 0xf6bb4b60, 0xbebfbc70,
    0x289b7ec6, 0xeaa127fa, 0xd4ef3085, 0x04881d05, 0xd9d4d039, 0xe6db99e5, 0x1fa27cf8, 0xc4ac5665,
    0xf4292244, 0x432aff97, 0xab9423a7, 0xfc93a039, 0x655b59c3, 0x8f0ccc92, 0xffeff47d, 0x85845dd1,
    0x6fa87e4f, 0xfe2ce6e0, 0xa3014314, 0x4e0811a1, 0xf7537e82, 0xbd3af235, 0x2ad7d2bb, 0xeb86d391};
__constant uint turns[16] = {7, 12, 17, 22, 5, 9, 14, 20, 4, 11, 16, 23, 6, 10, 15, 21};

/* Of a message of one block. */
static uint4 md5(const uint *words)
{
    uint4 s = (uint4)(0x67452301, 0xefcdab89, 0x98badcfe, 0x10325476), v = s;

    for (uint i = 0; i < 64; i++) {
        uint f, word;

        if (i < 16) {
            f    = (v.y & v.z) | (~v.y & v.w);
            word = i;
        } else if (i < 32) {
            f    = (v.w & v.y) | (~v.w & v.z);
            word = (5 * i + 1) % 16;
        } else if (i < 48) {
            f    = v.y ^ v.z ^ v.w;
            word = (3 * i + 5) % 16;
        } else {
            f    = v.z ^ (v.y | ~v.w);
            word = 7 * i % 16;
        }
        f += v.x + sines[i] + words[word];
        v = (uint4)(v.w, v.y + rotate(f, turns[i / 16 * 4 + i % 4]), v.y, v.z);
    }
    return s + v;
}

/* Text number n as the message's first words; returns its length, at most 15. */
static uint message_of(long n, uint *words)
{
    uchar text[16];
    uint  length = 0;

    for (; n >= 0 && length < 15; n = n / 26 - 1)
        text[length++] = (uchar)('a' + n % 26);
    for (uint i = 0; i < 16; i++)
        words[i] = 0;
    for (uint i = 0; i < length; i++)
        words[i / 4] |= (uint)text[length - 1 - i] << 8 * (i % 4);
    words[length / 4] |= 0x80u << 8 * (length % 4);
    words[14] = 8 * length;
    return length;
}

/* Each work-item has a result of its own: out_size is RESULT times the global size. */
__kernel void processData(__global const uchar *in, uint in_size, __global uchar *out, uint out_size)
{
    __global const struct request *request = (__global const struct request *)in;
    __global uint                 *result  = (__global uint *)(out + get_global_id(0) * RESULT);
    uint4                          digest  = vload4(0, (__global const uint *)in);
    uint                           words[16];

    for (uint i = 0; i < RESULT / 4; i++)
        result[i] = 0;
    for (long n = request->from + (long)get_global_id(0); n < request->to;
         n += (long)get_global_size(0)) {
        uint length = message_of(n, words);

        if (any(md5(words) != digest))
            continue;
        result[0] = length;
        words[length / 4] &= ~(0x80u << 8 * (length % 4));
        for (uint i = 0; i < 4; i++)
            result[1 + i] = words[i];
        return;
    }
}

/* The first result that has found something. */
__kernel void mergeData(__global const uchar *in, uint in_size, uint parts, __global uchar *out,
                        uint out_size)
{
    __global const uint *results = (__global const uint *)in;
    __global uint       *result  = (__global uint *)out;
    uint                 found   = 0;

    while (found + 1 < in_size / RESULT && results[found * (RESULT / 4)] == 0)
        found++;
    for (uint i = 0; i < RESULT / 4; i++)
        result[i] = results[found * (RESULT / 4) + i];
}
