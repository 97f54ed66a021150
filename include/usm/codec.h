/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/** @file
 * What a codec is: a table of functions that turn the bytes of a block into
 * those that leave the process, and back: compression, encryption.
 * EXPERIMENTAL.
 *
 * Several may be stacked (compressed first, then encrypted).  A codec sees whole
 * blocks or parts of them, never where they go.  Functions are thread-safe. */
#ifndef USM_CODEC_H
#define USM_CODEC_H

#include <usm/module.h>
#include <usm/types.h>

USM_BEGIN_DECLS

typedef struct usm_codec_params {
    size_t              struct_size;
    const usm_host_api *api;
    const char         *options; /**< "": USM_SPILL_CODEC has none yet                      */
} usm_codec_params;

/** Names what is encoded: never twice the same for different bytes under one key. */
typedef struct usm_codec_id {
    uint64_t block;      /**< unique in the process                                       */
    uint64_t generation; /**< grows each time the block is encoded                        */
    uint32_t part;       /**< which part of the block                                     */
} usm_codec_id;

typedef enum usm_codec_trait {
    USM_CODEC_SHRINKS       = 1u << 0, /* the encoded bytes may be fewer                    */
    USM_CODEC_AUTHENTICATES = 1u << 1, /* decode detects any change: USM_E_CORRUPT          */
    USM_CODEC_SECRET        = 1u << 2  /* without the key they tell nothing                 */
} usm_codec_trait;

typedef struct usm_codec_ops {
    uint32_t    abi;
    uint32_t    struct_size;
    const char *name;
    uint32_t    traits; /**< usm_codec_trait                                               */

    /** USM_E_KEY: a key is missing, too short, or its file is readable by others. */
    usm_status (*create)(const usm_codec_params *params, void **codec);
    /** Forgets keys: their memory is overwritten. */
    void (*destroy)(void *codec);
    /** Most bytes that encode makes of `size`. */
    size_t (*bound)(void *codec, size_t size);
    /** out and in do not overlap.  USM_E_SIZE: it would not fit in cap (it does not shrink): an
     * ordinary answer without a story. */
    usm_status (*encode)(void *codec, const usm_codec_id *id, const void *in, size_t size,
                         void *out, size_t cap, size_t *encoded);
    /** `size` is that of the original.  USM_E_CORRUPT: these bytes were not made by encode with
     * this key and id. */
    usm_status (*decode)(void *codec, const usm_codec_id *id, const void *in, size_t encoded,
                         void *out, size_t size);
} usm_codec_ops;

/** The only export of a module, `usm_codec_entry`. */
typedef const usm_codec_ops *usm_codec_entry_fn(const usm_host_api *api);

USM_END_DECLS
#endif
