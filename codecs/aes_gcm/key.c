/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Where the key comes from.  The codec does not encrypt with the key that the user gave, but with
 * that key mixed with random bytes of this codec:
 *
 *     key = HMAC-SHA256(given, salt | label)
 *
 * Two processes with the same USM_SPILL_KEY count their nonces from the same start, and must not
 * use the same key.  No other process reads the spilled blocks, so the salt is not kept.  Called by
 * aes_gcm.c. */
#include "internal.h"

#include <openssl/rand.h>
#include <string.h>

static usm_status random_key(aes_secret *s, size_t *size)
{
    if (RAND_priv_bytes(s->given.bytes, AES_KEY_SIZE) != 1)
        return aes_api->report(USM_E_KEY, "OpenSSL has no random bytes for a key");
    *size = AES_KEY_SIZE;
    aes_api->log(USM_LOG_INFO, "aes_gcm: neither USM_SPILL_KEY nor USM_SPILL_KEY_FILE is set: "
                               "spilled blocks get a random key that ends with the process");
    return USM_OK;
}

static usm_status mix(aes_secret *s, size_t size)
{
    static const char label[] = "libusm aes_gcm 1";
    unsigned char     salt[AES_KEY_SIZE + sizeof label];
    size_t            n = 0;

    memcpy(salt + AES_KEY_SIZE, label, sizeof label);
    if (RAND_bytes(salt, AES_KEY_SIZE) != 1 ||
        !EVP_Q_mac(NULL, "HMAC", NULL, "SHA256", NULL, s->given.bytes, size, salt, sizeof salt,
                   s->key, sizeof s->key, &n) ||
        n != sizeof s->key)
        return aes_api->report(USM_E_KEY, "OpenSSL makes no key for spilled blocks");
    return USM_OK;
}

usm_status aes_make_key(aes_secret *s)
{
    static const usm_key_source from = {"spill_key", "spill_key_file", "USM_SPILL_KEY"};
    size_t                      size = 0;
    usm_status                  st   = usm_key_take(aes_api, &from, &s->given, &size);

    if (st == USM_OK && size == 0)
        st = random_key(s, &size);
    if (st == USM_OK)
        st = mix(s, size);
    aes_api->os->secret_wipe(&s->given, sizeof s->given);
    return st;
}
