/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Shared by the files of the codec. */
#ifndef USM_CODEC_AES_GCM_INTERNAL_H
#define USM_CODEC_AES_GCM_INTERNAL_H

#include "base/inline/atomic.h"
#include "base/inline/key.h"

#include <openssl/evp.h>
#include <pthread.h>
#include <usm/codec.h>

#define AES_KEY_SIZE   32u
#define AES_NONCE_SIZE 12u
#define AES_TAG_SIZE   16u
#define AES_EXTRA      (AES_NONCE_SIZE + AES_TAG_SIZE) /* after the encrypted bytes */

/* In memory of os->secret_map(). */
typedef struct aes_secret {
    unsigned char key[AES_KEY_SIZE]; /* of this codec: made from the user's key and random
                                          bytes */
    usm_key       given;             /* the user's, until `key` is made */
    unsigned char found[4096];       /* memory that is searched for the key */
} aes_secret;

/* An OpenSSL context that has the key; used by one thread at a time. */
typedef struct aes_context {
    struct aes_context *next;
    EVP_CIPHER_CTX     *evp;
} aes_context;

typedef struct aes {
    /* fixed after create */
    aes_secret *secret;
    EVP_CIPHER *cipher;
    uint32_t    prefix; /* of nonces */
    /* atomic */
    _Atomic(uint64_t) counter; /* of nonces: none is used twice */
    _Atomic(bool)     warned;
    /* guarded by lock */
    pthread_mutex_t lock;
    aes_context    *idle;
} aes;

extern const usm_host_api *aes_api;

/* key.c: makes secret->key from USM_SPILL_KEY, USM_SPILL_KEY_FILE, or random bytes.  USM_E_KEY */
usm_status aes_make_key(aes_secret *secret);

/* context.c */
aes_context *aes_context_take(aes *a); /* NULL with an error message */
void         aes_context_give(aes *a, aes_context *c);
void         aes_contexts_free(aes *a);

#endif
