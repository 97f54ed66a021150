/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Class "large": allocations over 4 GiB, or the named failure where the driver has no way. */
#include "common.h"

#define GIB ((size_t)1 << 30)
#define BIG (4 * GIB + (5 << 20))

/* Bytes that can be had without swapping; 0 when it is not known. */
static size_t memory_available(void)
{
    char   line[128];
    size_t kib = 0;
    FILE  *f   = fopen("/proc/meminfo", "r");

    while (f && !kib && fgets(line, sizeof line, f))
        if (sscanf(line, "MemAvailable: %zu", &kib) != 1)
            kib = 0;
    if (f)
        fclose(f);
    return kib * 1024;
}

Test(large, over_4_gib_is_allocated_or_refused_by_name)
{
    if (memory_available() < 10 * GIB)
        skip("less than 10 GiB of memory are free");
    EACH_DEVICE (r) {
        EACH_KIND (k) {
            if (!has(&r, need_kind(k)))
                continue;
            char *p = usm_malloc(BIG, r.q, k);
            if (!p) {
                CHECK(usm_last_status() == USM_E_SIZE || usm_last_status() == USM_E_NO_MEMORY,
                      "%s: %s", r.name, usm_last_error());
                CHECK(story_names(""), "%s: no message", r.name);
                not_offered("%s: %s", r.name, usm_last_error());
                continue;
            }
            tried();
            CHECK(usm_get_pointer_type(p + BIG - 1, r.ctx) == k, "%s: its last byte", r.name);
            CHECK(usm_usable_size(p) >= BIG, "%s: %zu usable", r.name, usm_usable_size(p));
            CHECK_OK(usm_free_ctx(p, r.ctx));
        }
    }
}

Test(large, bytes_beyond_4_gib_are_where_they_belong)
{
    if (memory_available() < 10 * GIB)
        skip("less than 10 GiB of memory are free");
    EACH_DEVICE (r) {
        usm_kind k = USM_DEVICE;
        if (!has(&r, need_kind(k) | NEED_DATA)) {
            not_offered("%s: no device memory, or no data moves", r.name);
            continue;
        }
        char *p = usm_malloc(BIG, r.q, k), back[4] = "";
        if (!p) {
            not_offered("%s: %s", r.name, usm_last_error());
            continue;
        }
        tried();
        put(&r, p, "low", 4);
        put(&r, p + 4 * GIB, "top", 4); /* 2^32 further: the same place for 32 bits */
        get(&r, back, p, 4);
        CHECK(!strcmp(back, "low"), "%s: %s", r.name, back);
        get(&r, back, p + 4 * GIB, 4);
        CHECK(!strcmp(back, "top"), "%s: %s", r.name, back);
        CHECK_OK(usm_memcpy(r.q, p + 4 * GIB + 3, p + 4 * GIB, 4, 0, NULL, NULL)); /* overlapping */
        get(&r, back, p + 4 * GIB + 3, 4);
        CHECK(!strcmp(back, "top"), "%s: %s after an overlapping copy", r.name, back);
        CHECK_OK(usm_free_ctx(p, r.ctx));
    }
}
