/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* What src/spill/describe.c makes of figures. */
#include "plain.h"

#include "spill/describe.h"

static usm_spill_stats some_stats(void)
{
    usm_spill_stats s = {.struct_size     = sizeof s,
                         .limit           = 256u << 20,
                         .resident        = 200u << 20,
                         .resident_peak   = 256u << 20,
                         .pinned          = 3u << 20,
                         .dirty           = 1536u << 10,
                         .block_size      = 1u << 20,
                         .blocks          = 2048,
                         .misses          = 17,
                         .wait_ns         = 1234567890,
                         .prefetched      = 100,
                         .prefetch_hits   = 90,
                         .prefetch_wasted = 5,
                         .evicted_clean   = 11,
                         .evicted_dirty   = 12,
                         .zero_blocks     = 13,
                         .ntiers          = 2,
                         .copies          = 2,
                         .copies_missing  = 7,
                         .copies_repaired = 5,
                         .blocks_lost     = 1};

    s.tiers[0] = (usm_tier_stats){.name        = "mpi",
                                  .capacity    = 1u << 30,
                                  .read_p50_ns = 1,
                                  .encoded_in  = 4u << 20,
                                  .encoded_out = 1u << 20};
    s.tiers[1] = (usm_tier_stats){.name         = "file:/a\"b",
                                  .used         = 5u << 20,
                                  .capacity     = UINT64_MAX,
                                  .read         = 1u << 20,
                                  .written      = 2u << 20,
                                  .reads        = 1,
                                  .writes       = 2,
                                  .read_ns      = 500000000,
                                  .write_ns     = 1000000000,
                                  .read_p50_ns  = 950,
                                  .read_p99_ns  = 45600,
                                  .write_p50_ns = 7890000,
                                  .write_p99_ns = 12000000000,
                                  .errors       = 3,
                                  .corrupt      = 2};
    return s;
}

static const usm__spill_holder holders[] = {{"matrix", 2u << 20, 5, false},
                                            {NULL, 1u << 20, 1, true}};

static const char *describe(usm_text_format format, size_t cap)
{
    static char     text[8192];
    usm_spill_stats s = some_stats();
    usm__out        o = {.text = text, .cap = cap}, none = {0};

    memset(text, 'x', sizeof text);
    usm__spill_text(&s, holders, 2, format, &o);
    usm__spill_text(&s, holders, 2, format, &none);
    CHECK_INT(o.used, none.used); /* all is counted, whatever fits */
    CHECK_INT(text[cap], 'x');
    return text;
}

static void text_names_figures_tiers_and_holders(void)
{
    const char *text = describe(USM_TEXT, 8000);

    CHECK_STR(text,
              "buffers in memory\n"
              "  limit          256 MiB     blocks of 1 MiB, 2048 in all\n"
              "  resident       200 MiB     peak 256 MiB; not yet stored elsewhere 1.5 MiB; "
              "pinned 3 MiB\n"
              "  misses         17          accesses waited 1.2 s\n"
              "  prefetched     100         used 90, wasted 5\n"
              "  evicted        11          clean, 12 stored; all zero, kept nowhere: 13\n"
              "  copies         2           blocks with fewer 7; repaired 5; lost 1\n"
              "tier mpi\n"
              "  used           0 B         of 1 GiB\n"
              "  read           0 B         in 0 transfers\n"
              "  written        0 B         in 0 transfers\n"
              "  codecs         4 MiB       became 1 MiB\n"
              "tier file:/a\"b\n"
              "  used           5 MiB       of what there is\n"
              "  read           1 MiB       in 1 transfers, 2 MiB/s; half within 950 ns, 99 % "
              "within 45.6 us\n"
              "  written        2 MiB       in 2 transfers, 2 MiB/s; half within 7.8 ms, 99 % "
              "within 12.0 s\n"
              "  failed         3           transfers; wrong bytes came back 2 times\n"
              "pinned by\n"
              "  2 MiB              5 pins  matrix\n"
              "  1 MiB              1 pins  (no name), kept by USM_BUFFER_PIN\n");
}

static void json_has_every_figure(void)
{
    const char *json = describe(USM_JSON, 8000);

    CHECK_IN("{\"limit\":268435456,\"resident\":209715200,", json);
    CHECK_IN(",\"wait_ns\":1234567890,", json);
    CHECK_IN(",\"device_evictions\":0,\"copies\":2,\"copies_missing\":7,\"copies_repaired\":5,"
             "\"blocks_lost\":1,\"tiers\":[{\"name\":\"mpi\",\"used\":0,\"capacity\":1073741824,",
             json);
    CHECK_IN(",\"encoded_in\":4194304,\"encoded_out\":1048576},{\"name\":\"file:/a\\\"b\",", json);
    CHECK_IN("\"capacity\":null,", json);
    CHECK_IN(",\"read_rate\":2097152,\"write_rate\":2097152,", json);
    CHECK_IN(",\"write_p99_ns\":12000000000,\"errors\":3,\"corrupt\":2,", json);
    CHECK_IN("],\"holders\":[{\"name\":\"matrix\",\"pinned\":2097152,\"pins\":5,\"kept\":false},"
             "{\"name\":\"\",\"pinned\":1048576,\"pins\":1,\"kept\":true}]}",
             json);
    CHECK_STR(json + strlen(json) - 3, "}]}");
}

static void what_does_not_fit_is_counted(void)
{
    CHECK_INT(strlen(describe(USM_TEXT, 20)), 19);
    CHECK_INT(strlen(describe(USM_JSON, 20)), 19);
}

static const plain_case cases[] = {
    CASE(text_names_figures_tiers_and_holders),
    CASE(json_has_every_figure),
    CASE(what_does_not_fit_is_counted),
    {NULL, NULL},
};

int main(int argc, char **argv)
{
    return plain_main(argc, argv, cases);
}
