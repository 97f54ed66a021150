/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Proves that a member has the job's key, by OpenSSL's libcrypto: the only file of the transport
 * that uses it.  Called by transports/far (challenge and response when members join) and meet.c. */
#include "internal.h"

#include <limits.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <sys/random.h>

bool mpi_hmac(const void *key, size_t key_size, const void *data, size_t size,
              unsigned char mac[MPI_MAC_SIZE])
{
    unsigned n = 0;

    return key_size <= INT_MAX &&
           HMAC(EVP_sha256(), key, (int)key_size, data, size, mac, &n) != NULL && n == MPI_MAC_SIZE;
}

bool mpi_is_same_mac(const unsigned char *a, const unsigned char *b)
{
    unsigned other = 0;

    for (size_t i = 0; i < MPI_MAC_SIZE; i++)
        other |= (unsigned)(a[i] ^ b[i]);
    return other == 0;
}

bool mpi_random(void *data, size_t size)
{
    return getrandom(data, size, 0) == (ssize_t)size;
}
