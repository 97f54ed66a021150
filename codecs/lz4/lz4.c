/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The codec lz4: blocks of LZ4 (Y. Collet), each independent of the others, in the library's
 * fastest mode.  It has no state.  Called by src/spill/tier_codec.c through its table. */
#include <usm/codec.h>

#include <limits.h>
#include <lz4.h>

static const usm_host_api *api;

static usm_status create(const usm_codec_params *params, void **codec)
{
    if (params->options[0] != '\0')
        return api->report(USM_E_SETTING, "codec lz4 has no options, not \"%.64s\"",
                           params->options);
    *codec = (void *)(uintptr_t)api; /* any pointer that is not NULL */
    return USM_OK;
}

static void destroy(void *codec)
{
    (void)codec;
}

static size_t bound(void *codec, size_t size)
{
    (void)codec;
    return size <= LZ4_MAX_INPUT_SIZE ? (size_t)LZ4_compressBound((int)size) : SIZE_MAX;
}

static usm_status encode(void *codec, const usm_codec_id *id, const void *in, size_t size,
                         void *out, size_t cap, size_t *encoded)
{
    int n;

    (void)codec;
    (void)id;
    if (size > LZ4_MAX_INPUT_SIZE)
        return api->report(USM_E_SIZE, "a block of %zu bytes is too large for lz4", size);
    n = LZ4_compress_default(in, out, (int)size, cap < INT_MAX ? (int)cap : INT_MAX);
    if (n <= 0)
        return USM_E_SIZE; /* it does not fit, which is normal */
    *encoded = (size_t)n;
    return USM_OK;
}

static usm_status decode(void *codec, const usm_codec_id *id, const void *in, size_t encoded,
                         void *out, size_t size)
{
    int n = -1;

    (void)codec;
    if (encoded <= INT_MAX && size <= INT_MAX)
        n = LZ4_decompress_safe(in, out, (int)encoded, (int)size);
    if (n < 0 || (size_t)n != size)
        return api->report(USM_E_CORRUPT,
                           "block %llu: %zu bytes that lz4 did not make of a block of %zu",
                           (unsigned long long)id->block, encoded, size);
    return USM_OK;
}

static const usm_codec_ops ops = {
    .abi         = USM_MODULE_ABI,
    .struct_size = sizeof ops,
    .name        = "lz4",
    .traits      = USM_CODEC_SHRINKS,
    .create      = create,
    .destroy     = destroy,
    .bound       = bound,
    .encode      = encode,
    .decode      = decode,
};

USM_API usm_codec_entry_fn usm_codec_entry;

const usm_codec_ops *usm_codec_entry(const usm_host_api *host)
{
    api = host;
    return &ops;
}
