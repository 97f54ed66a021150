/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Packets: a header of 24 bytes, all numbers little-endian, and the bytes that it describes.
 *
 *     0   magic    "usmS"
 *     4   version  2 bytes     6   kind   2 bytes
 *     8   from     the sender's rank
 *    12   tag      of a message; the reason of a refusal
 *    16   size     bytes that follow
 *    20   0
 *
 * Magic, version and the position of the kind stay the same in all releases, so that two
 * incompatible ones can tell each other. */
#include "internal.h"

#include "base/inline/bytes.h"

#define MAGIC 0x536d7375u

void usm_socket_put_head(unsigned char *at, uint32_t kind, uint32_t from, uint32_t tag, size_t size)
{
    usm_put_le(at, MAGIC, 4);
    usm_put_le(at + 4, USM_SOCKET_VERSION, 2);
    usm_put_le(at + 6, kind, 2);
    usm_put_le(at + 8, from, 4);
    usm_put_le(at + 12, tag, 4);
    usm_put_le(at + 16, (uint32_t)size, 4);
    usm_put_le(at + 20, 0, 4);
}

bool usm_socket_get_head(const unsigned char *packet, size_t n, usm_socket_head *head)
{
    usm_socket_head h;

    if (n < HEADER_SIZE || (uint32_t)usm_get_le(packet, 4) != MAGIC)
        return false;
    h.version = (uint32_t)usm_get_le(packet + 4, 2);
    h.kind    = (uint32_t)usm_get_le(packet + 6, 2);
    h.from    = (uint32_t)usm_get_le(packet + 8, 4);
    h.tag     = (uint32_t)usm_get_le(packet + 12, 4);
    h.size    = (uint32_t)usm_get_le(packet + 16, 4);
    if (h.version == USM_SOCKET_VERSION && h.size != n - HEADER_SIZE)
        return false;
    *head = h;
    return true;
}

void usm_socket_put_hello(unsigned char *at, const usm_socket_hello *hello)
{
    usm_put_le(at, hello->ranks, 4);
    usm_put_le(at + 4, hello->lease_ms, 4);
    memcpy(at + 8, hello->domain, DOMAIN_SIZE);
}

void usm_socket_get_hello(const unsigned char *at, usm_socket_hello *hello)
{
    hello->ranks    = (uint32_t)usm_get_le(at, 4);
    hello->lease_ms = (uint32_t)usm_get_le(at + 4, 4);
    memcpy(hello->domain, at + 8, DOMAIN_SIZE);
    hello->domain[DOMAIN_SIZE - 1] = 0;
}
