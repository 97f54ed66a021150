/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The codec aes_gcm: AES-256 in Galois/counter mode by OpenSSL.  The encoded form of a block:
 *
 *     encrypted bytes, as many as the block has | nonce, 12 | tag, 16
 *
 * The nonce is a random prefix and a count, so none is used twice under a key, whatever the ids
 * are.  The id of the block (number, generation, part) and its size are authenticated with it: a
 * block that was changed, swapped with another, or is an older one, does not decode.  The key:
 * key.c; OpenSSL's contexts: context.c.  Called by src/spill/tier_codec.c through its table. */
#include "internal.h"

#include "base/inline/bytes.h"

#include <limits.h>
#include <openssl/rand.h>
#include <string.h>

const usm_host_api *aes_api;

/* ---- create ---------------------------------------------------------------------------- */

static void destroy(void *codec)
{
    aes *a = codec;

    aes_contexts_free(a);
    EVP_CIPHER_free(a->cipher);
    aes_api->os->secret_unmap(a->secret, sizeof *a->secret);
    pthread_mutex_destroy(&a->lock);
    aes_api->heap_free(a);
}

static usm_status prepare(aes *a)
{
    a->secret = aes_api->os->secret_map(sizeof *a->secret);
    if (!a->secret)
        return aes_api->report(USM_E_NO_MEMORY, "no memory for a key that no core dump would hold");
    a->cipher = EVP_CIPHER_fetch(NULL, "AES-256-GCM", NULL);
    if (!a->cipher || RAND_bytes((unsigned char *)&a->prefix, sizeof a->prefix) != 1)
        return aes_api->report(USM_E_NOT_SUPPORTED, "OpenSSL has no AES-256-GCM here");
    return aes_make_key(a->secret);
}

static usm_status create(const usm_codec_params *params, void **codec)
{
    aes       *a;
    usm_status st;

    if (params->options[0] != '\0')
        return aes_api->report(USM_E_SETTING, "codec aes_gcm has no options, not \"%.64s\"",
                               params->options);
    a = aes_api->heap_alloc(sizeof *a);
    if (!a)
        return aes_api->report(USM_E_NO_MEMORY, "no memory for codec aes_gcm");
    (void)pthread_mutex_init(&a->lock, NULL);
    st = prepare(a);
    if (st != USM_OK) {
        destroy(a);
        return st;
    }
    *codec = a;
    return USM_OK;
}

static size_t bound(void *codec, size_t size)
{
    (void)codec;
    return size + AES_EXTRA;
}

/* ---- encode and decode ------------------------------------------------------------------ */

/* The data that is authenticated beside the bytes: 28 bytes, the lowest first. */
typedef struct aes_about {
    unsigned char bytes[28];
} aes_about;

static aes_about about(const usm_codec_id *id, size_t size)
{
    aes_about b;

    usm_put_le(b.bytes, id->block, 8);
    usm_put_le(b.bytes + 8, id->generation, 8);
    usm_put_le(b.bytes + 16, id->part, 4);
    usm_put_le(b.bytes + 20, size, 8);
    return b;
}

static void make_nonce(aes *a, unsigned char *nonce)
{
    usm_put_le(nonce, a->prefix, 4);
    usm_put_le(nonce + 4, usm_add_relaxed(&a->counter, 1), 8);
}

static bool seal(EVP_CIPHER_CTX *evp, const aes_about *with, const unsigned char *in, size_t size,
                 unsigned char *out)
{
    unsigned char *nonce = out + size, *tag = nonce + AES_NONCE_SIZE;
    int            n;

    return EVP_EncryptInit_ex2(evp, NULL, NULL, nonce, NULL) == 1 &&
           EVP_EncryptUpdate(evp, NULL, &n, with->bytes, sizeof with->bytes) == 1 &&
           EVP_EncryptUpdate(evp, out, &n, in, (int)size) == 1 && (size_t)n == size &&
           EVP_EncryptFinal_ex(evp, tag, &n) == 1 &&
           EVP_CIPHER_CTX_ctrl(evp, EVP_CTRL_AEAD_GET_TAG, AES_TAG_SIZE, tag) == 1;
}

static bool unseal(EVP_CIPHER_CTX *evp, const aes_about *with, const unsigned char *in, size_t size,
                   unsigned char *out)
{
    const unsigned char *nonce = in + size;
    unsigned char        tag[AES_TAG_SIZE]; /* OpenSSL requires that it can write there */
    int                  n;

    memcpy(tag, nonce + AES_NONCE_SIZE, sizeof tag);
    return EVP_DecryptInit_ex2(evp, NULL, NULL, nonce, NULL) == 1 &&
           EVP_DecryptUpdate(evp, NULL, &n, with->bytes, sizeof with->bytes) == 1 &&
           EVP_DecryptUpdate(evp, out, &n, in, (int)size) == 1 && (size_t)n == size &&
           EVP_CIPHER_CTX_ctrl(evp, EVP_CTRL_AEAD_SET_TAG, AES_TAG_SIZE, tag) == 1 &&
           EVP_DecryptFinal_ex(evp, tag, &n) == 1;
}

static usm_status encode(void *codec, const usm_codec_id *id, const void *in, size_t size,
                         void *out, size_t cap, size_t *encoded)
{
    aes         *a    = codec;
    aes_about    with = about(id, size);
    aes_context *c;
    bool         ok;

    if (size > INT_MAX || cap < AES_EXTRA || size > cap - AES_EXTRA)
        return aes_api->report(USM_E_SIZE, "aes_gcm has no room for %zu bytes", size);
    c = aes_context_take(a);
    if (!c)
        return USM_E_NO_MEMORY;
    make_nonce(a, (unsigned char *)out + size);
    ok = seal(c->evp, &with, in, size, out);
    aes_context_give(a, c);
    if (!ok)
        return aes_api->report(USM_E_INTERNAL, "OpenSSL does not encrypt block %llu",
                               (unsigned long long)id->block);
    *encoded = size + AES_EXTRA;
    return USM_OK;
}

static usm_status fail_corrupt(const usm_codec_id *id)
{
    return aes_api->report(USM_E_CORRUPT,
                           "it is not what was encrypted with this key: generation %llu",
                           (unsigned long long)id->generation);
}

static usm_status decode(void *codec, const usm_codec_id *id, const void *in, size_t encoded,
                         void *out, size_t size)
{
    aes         *a    = codec;
    aes_about    with = about(id, size);
    aes_context *c;
    bool         ok;

    if (size > INT_MAX || encoded != size + AES_EXTRA)
        return fail_corrupt(id);
    c = aes_context_take(a);
    if (!c)
        return USM_E_NO_MEMORY;
    ok = unseal(c->evp, &with, in, size, out);
    aes_context_give(a, c);
    if (ok)
        return USM_OK;
    memset(out, 0, size); /* bytes that were not authenticated must not be read */
    return fail_corrupt(id);
}

static const usm_codec_ops ops = {
    .abi         = USM_MODULE_ABI,
    .struct_size = sizeof ops,
    .name        = "aes_gcm",
    .traits      = USM_CODEC_AUTHENTICATES | USM_CODEC_SECRET,
    .create      = create,
    .destroy     = destroy,
    .bound       = bound,
    .encode      = encode,
    .decode      = decode,
};

USM_API usm_codec_entry_fn usm_codec_entry;

const usm_codec_ops *usm_codec_entry(const usm_host_api *host)
{
    aes_api = host;
    return &ops;
}
