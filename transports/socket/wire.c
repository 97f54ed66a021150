/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Packets: a header of 24 bytes, all numbers little-endian, and what it says follows.
 *
 *     0   magic    "usmS"
 *     4   version  2 bytes     6   kind   2 bytes
 *     8   from     the sender's rank
 *    12   tag      of a message; the reason of a refusal
 *    16   size     bytes that follow
 *    20   0
 *
 * Magic, version and the place of the kind stay as they are in all releases, so that two that do
 * not fit can tell each other so. */
#include "internal.h"

#define MAGIC 0x536d7375u

static void put16(unsigned char *at, uint32_t value)
{
    at[0] = (unsigned char)value;
    at[1] = (unsigned char)(value >> 8);
}

static void put32(unsigned char *at, uint32_t value)
{
    put16(at, value);
    put16(at + 2, value >> 16);
}

static uint32_t get16(const unsigned char *at)
{
    return (uint32_t)at[0] | (uint32_t)at[1] << 8;
}

static uint32_t get32(const unsigned char *at)
{
    return get16(at) | get16(at + 2) << 16;
}

void usm_socket_put_head(unsigned char *at, uint32_t kind, uint32_t from, uint32_t tag, size_t size)
{
    put32(at, MAGIC);
    put16(at + 4, USM_SOCKET_VERSION);
    put16(at + 6, kind);
    put32(at + 8, from);
    put32(at + 12, tag);
    put32(at + 16, (uint32_t)size);
    put32(at + 20, 0);
}

bool usm_socket_get_head(const unsigned char *packet, size_t n, usm_socket_head *head)
{
    usm_socket_head h;

    if (n < HEADER_SIZE || get32(packet) != MAGIC)
        return false;
    h.version = get16(packet + 4);
    h.kind    = get16(packet + 6);
    h.from    = get32(packet + 8);
    h.tag     = get32(packet + 12);
    h.size    = get32(packet + 16);
    if (h.version == USM_SOCKET_VERSION && h.size != n - HEADER_SIZE)
        return false;
    *head = h;
    return true;
}

void usm_socket_put_hello(unsigned char *at, const usm_socket_hello *hello)
{
    put32(at, hello->ranks);
    put32(at + 4, hello->lease_ms);
    memcpy(at + 8, hello->domain, DOMAIN_SIZE);
}

void usm_socket_get_hello(const unsigned char *at, usm_socket_hello *hello)
{
    hello->ranks    = get32(at);
    hello->lease_ms = get32(at + 4);
    memcpy(hello->domain, at + 8, DOMAIN_SIZE);
    hello->domain[DOMAIN_SIZE - 1] = 0;
}
