/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* OpenSSL's contexts, each with the key set once; as many as threads have worked at the same time.
 *
 * A context holds the key in memory that OpenSSL takes from malloc().  To keep the key out of core
 * dumps, this file finds that memory through the pointers in the context, and hides its pages.  If
 * it is not found, a warning says so once.  Called by aes_gcm.c. */
#include "internal.h"

#include <string.h>

#define POINTERS 32u /* so many pointers at the start of a context are followed */

static bool holds(const unsigned char *bytes, size_t size, const unsigned char *key)
{
    for (size_t i = 0; i + AES_KEY_SIZE <= size; i++)
        if (bytes[i] == key[0] && memcmp(bytes + i, key, AES_KEY_SIZE) == 0)
            return true;
    return false;
}

/* Implementations in C store the key as words in reverse byte order. */
static void swap_words(unsigned char *to, const unsigned char *from)
{
    for (size_t i = 0; i < AES_KEY_SIZE; i++)
        to[i] = from[i ^ 3u];
}

/* Whether the key is in memory from p on; if so, hides its pages.  The lock is held: there is only
 * one search buffer. */
static bool hide_key_at(aes *a, void *p)
{
    aes_secret *s = a->secret;
    size_t      n = aes_api->os->secret_peek(p, s->found, sizeof s->found / 2);
    bool        is_there;

    swap_words(s->given.bytes, s->key);
    is_there = holds(s->found, n, s->key) || holds(s->found, n, s->given.bytes);
    aes_api->os->secret_wipe(s->found, sizeof s->found);
    aes_api->os->secret_wipe(s->given.bytes, sizeof s->given.bytes);
    return is_there && aes_api->os->secret_hide(p, n) == 0;
}

static void hide(aes *a, const aes_context *c)
{
    void  *pointers[POINTERS];
    size_t n      = aes_api->os->secret_peek(c->evp, pointers, sizeof pointers) / sizeof *pointers;
    bool   hidden = false;

    pthread_mutex_lock(&a->lock);
    for (size_t i = 0; i < n; i++)
        if (((uintptr_t)pointers[i] & 7) == 0 && pointers[i])
            hidden |= hide_key_at(a, pointers[i]);
    pthread_mutex_unlock(&a->lock);
    if (!hidden && !usm_swap_acq_rel(&a->warned, true))
        aes_api->log(USM_LOG_WARN | USM_LOG_NODE,
                     "aes_gcm: where OpenSSL keeps the key was not found: a core dump "
                     "of this process would hold it");
}

static aes_context *make(aes *a)
{
    aes_context *c = aes_api->heap_alloc(sizeof *c);

    if (c)
        c->evp = EVP_CIPHER_CTX_new();
    if (!c || !c->evp)
        goto err_free;
    if (EVP_EncryptInit_ex2(c->evp, a->cipher, a->secret->key, NULL, NULL) != 1)
        goto err_free;
    hide(a, c);
    return c;

err_free:
    if (c)
        EVP_CIPHER_CTX_free(c->evp);
    aes_api->heap_free(c);
    (void)aes_api->report(USM_E_NO_MEMORY, "no memory for a context of OpenSSL");
    return NULL;
}

aes_context *aes_context_take(aes *a)
{
    aes_context *c;

    pthread_mutex_lock(&a->lock);
    c = a->idle;
    if (c)
        a->idle = c->next;
    pthread_mutex_unlock(&a->lock);
    return c ? c : make(a);
}

void aes_context_give(aes *a, aes_context *c)
{
    pthread_mutex_lock(&a->lock);
    c->next = a->idle;
    a->idle = c;
    pthread_mutex_unlock(&a->lock);
}

void aes_contexts_free(aes *a)
{
    for (aes_context *c = a->idle, *next; c; c = next) {
        next = c->next;
        EVP_CIPHER_CTX_free(c->evp); /* overwrites the key */
        aes_api->heap_free(c);
    }
}
