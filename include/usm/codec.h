/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/** @file
 * The interface of codec modules: a table of functions that encode the bytes of
 * a block before they leave the process, and decode them: compression,
 * encryption.  EXPERIMENTAL.
 *
 * Codecs may be stacked (compression first, then encryption).  A codec
 * processes whole blocks or parts of them, and does not know where they are
 * stored.  The functions are thread-safe. */
#ifndef USM_CODEC_H
#define USM_CODEC_H

#include <usm/module.h>
#include <usm/types.h>

USM_BEGIN_DECLS

typedef struct usm_codec_params {
    size_t              struct_size;
    const usm_host_api *api;
    const char         *options; /**< always "": USM_SPILL_CODEC has no options yet */
} usm_codec_params;

/** Identifies the bytes that are encoded: never the same for different bytes
 * under one key. */
typedef struct usm_codec_id {
    uint64_t block;      /**< unique in the process                    */
    uint64_t generation; /**< increases each time the block is encoded */
    uint32_t part;       /**< which part of the block                  */
} usm_codec_id;

typedef enum usm_codec_trait {
    USM_CODEC_SHRINKS       = 1u << 0, /* the encoded bytes may be fewer                   */
    USM_CODEC_AUTHENTICATES = 1u << 1, /* decode detects any change: USM_E_CORRUPT         */
    USM_CODEC_SECRET        = 1u << 2  /* the encoded bytes reveal nothing without the key */
} usm_codec_trait;

typedef struct usm_codec_ops {
    uint32_t    abi;
    uint32_t    struct_size;
    const char *name;
    uint32_t    traits; /**< usm_codec_trait */

    /** USM_E_KEY  a key is missing, too short, or its file is readable by
     * others. */
    usm_status (*create)(const usm_codec_params *params, void **codec);
    /** Destroys the codec and overwrites the memory of its keys. */
    void (*destroy)(void *codec);
    /** The most bytes that encode produces from `size` bytes. */
    size_t (*bound)(void *codec, size_t size);
    /** Encodes `size` bytes; in and out do not overlap.
     *   USM_E_SIZE  the result would exceed cap (the bytes do not shrink): an ordinary
     *               result, without an error message */
    usm_status (*encode)(void *codec, const usm_codec_id *id, const void *in, size_t size,
                         void *out, size_t cap, size_t *encoded);
    /** Decodes to `size` bytes, the size of the original.
     *   USM_E_CORRUPT  encode did not produce these bytes with this key and id */
    usm_status (*decode)(void *codec, const usm_codec_id *id, const void *in, size_t encoded,
                         void *out, size_t size);
} usm_codec_ops;

/** The only symbol that a codec module exports: `usm_codec_entry`. */
typedef const usm_codec_ops *usm_codec_entry_fn(const usm_host_api *api);

USM_END_DECLS
#endif
