/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* What usm-top makes of two samples and more: what grows, how busy devices are; and of pages whose
 * figures are absurd.  No process is looked at. */
#include "../plain.h"

#include "top.h"

#include <math.h>

static top_process process;
static uint64_t    busier_by_ns; /* in each sample, the device */
static char        text[1 << 20];

static void begin(unsigned grows_after)
{
    memset(&process, 0, sizeof process);
    busier_by_ns              = 0;
    process.grows_after       = grows_after;
    process.is_sampled        = true;
    process.now.ntags         = 1;
    process.now.ndevices      = 1;
    process.now.nqueues       = 1;
    process.now.pools[0].kind = 1;
    atomic_store(&process.now.pools[0].serial, 1);
    strcpy(process.now.tags[0].name, "mesh");
    strcpy(process.now.devices[0].term, "host:0");
    strcpy(process.now.devices[0].name, "a processor");
}

/* The next sample, a tenth of a second later. */
static void sample(uint64_t tag_live, uint64_t pool_live)
{
    process.before = process.now;
    process.now.samples++;
    process.now.sampled_ns += 100000000;
    process.now.devices[0].busy_ns += busier_by_ns;
    process.now.tags[0].live  = tag_live;
    process.now.pools[0].live = pool_live;
    top_follow(&process);
    top_sum(&process);
}

static const char *details(unsigned width)
{
    usm__out o = {.text = text, .cap = sizeof text};

    top_put_details(&o, &process, width);
    CHECK(o.used < sizeof text);
    return text;
}

static const char *row(unsigned width)
{
    usm__out o = {.text = text, .cap = sizeof text};

    top_put_row(&o, &process, width);
    return text;
}

/* ---- what grows -------------------------------------------------------------------------------- */

static void what_rose_in_each_of_the_last_samples_grows(void)
{
    begin(3);
    for (uint64_t i = 1; i <= 3; i++) {
        CHECK(!process.tags[0].is_growing);
        sample(1000 * i, 5);
    }
    CHECK(!process.tags[0].is_growing); /* the first sample is no rise */
    sample(4000, 5);
    CHECK(process.tags[0].is_growing);
    CHECK_INT(process.tags[0].rises, 3);
    CHECK_INT(process.tags[0].grown, 3000);
    CHECK(!process.pools[0].is_growing);
    CHECK_IN("grows: +2.9K in 3 samples", details(120));
    CHECK_IN("grows: mesh", row(200));
}

static void one_sample_without_a_rise_ends_it(void)
{
    begin(2);
    for (uint64_t i = 1; i <= 4; i++)
        sample(1000 * i, 10 * i);
    CHECK(process.tags[0].is_growing && process.pools[0].is_growing);
    sample(4000, 39);
    CHECK(!process.tags[0].is_growing && !process.pools[0].is_growing);
    CHECK_INT(process.tags[0].grown, 0);
    sample(5000, 40);
    CHECK(!process.tags[0].is_growing && !process.pools[0].is_growing);
    sample(6000, 41);
    CHECK(process.tags[0].is_growing && process.pools[0].is_growing);
    CHECK(strstr(details(120), "grows: +2B in 2 samples") != NULL);
}

static void a_tag_is_followed_to_another_place(void)
{
    begin(2);
    for (uint64_t i = 1; i <= 3; i++)
        sample(1000 * i, 5);
    CHECK(process.tags[0].is_growing);
    process.now.ntags = 2;
    strcpy(process.now.tags[1].name, "mesh");
    process.now.tags[1].live = 4000;
    strcpy(process.now.tags[0].name, "new");
    sample(70000, 5);
    CHECK(!process.tags[0].is_growing);
    CHECK_INT(process.tags[0].rises, 0);
    CHECK(process.tags[1].is_growing);
    CHECK_INT(process.tags[1].rises, 3);
}

static void a_new_pool_in_an_old_place_does_not_grow(void)
{
    begin(2);
    for (uint64_t i = 1; i <= 3; i++)
        sample(1, 1000 * i);
    CHECK(process.pools[0].is_growing);
    CHECK_IN("grows: slab", (strcpy(process.now.pools[0].name, "slab"), row(200)));
    atomic_store(&process.now.pools[0].serial, 2);
    sample(1, 9000);
    CHECK(!process.pools[0].is_growing);
}

/* ---- devices and queues --------------------------------------------------------------------- */

static void use_is_the_part_of_the_time_between_two_samples(void)
{
    begin(3);
    sample(1, 1);
    CHECK(process.sums.use[0] < 0); /* of one sample nothing is known */
    CHECK_IN("use -,", details(120));
    busier_by_ns                 = 25000000;
    process.now.devices[0].depth = process.now.queues[0].depth = 7;
    process.now.queues[0].depth_peak                           = 14;
    sample(1, 1);
    CHECK_INT(lround(100 * process.sums.use[0]), 25);
    CHECK_INT(process.sums.depth, 7);
    CHECK_IN("use 25%, 7 in flight of", details(120));
    CHECK_IN("||||||||||         '] 7 in flight, mo", details(60));
    CHECK_IN(" 7  25% ", row(120));
    busier_by_ns = 900000000; /* it says more than can be */
    sample(1, 1);
    CHECK_INT(lround(100 * process.sums.use[0]), 100);
}

static void in_forty_columns_the_figures_are_seen(void)
{
    const char *line;

    begin(3);
    process.now.queues[0].depth = process.now.queues[0].depth_peak = 123;
    sample(1, 1);
    (void)details(40);
    CHECK_IN("host:0   [||||||||||] 123 in flight", text);
    for (line = text; *line != '\0'; line += strcspn(line, "\n") + 1)
        CHECK(strcspn(line, "\n") <= 40);
}

static void the_depth_of_a_shared_queue_is_not_known(void)
{
    usm__json   j = {.out = {.text = text, .cap = sizeof text}, .form = USM__JSON_INDENTED};
    top_model   m = {.n = 1, .list = {&process}};
    const char *metrics;

    begin(3);
    process.now.queues[0].depth = process.now.queues[0].depth_peak = USM__MONITOR_UNKNOWN;
    sample(1, 1);
    CHECK_IN("] ? in flight, most ?", details(120));
    top_put_json(&j, &m);
    CHECK_IN("\"depth\": null", text);
    j.out.used = 0;
    top_put_openmetrics(&j.out, &m);
    metrics = text;
    CHECK_IN("usm_queue_commands_total{", metrics);
    CHECK(!strstr(metrics, "usm_queue_depth{"));
    CHECK_IN(
        "usm_device_busy_seconds_total{pid=\"0\",program=\"\",device=\"host:0\"} 0.000000000\n",
        metrics);
}

/* ---- absurd pages ------------------------------------------------------------------------------- */

/* Every number is the largest there is: lines are no longer than the terminal is wide, and figures are
 * numbers. */
static void figures_that_cannot_be_are_shown_within_bounds(void)
{
    char      why[USM__MONITOR_WHY];
    top_model m = {.n = 1, .list = {&process}};
    usm__json j = {.out = {.text = text, .cap = sizeof text}};

    begin(1);
    memset((char *)&process.now + offsetof(usm__monitor_page, pid), 0xff,
           sizeof process.now - offsetof(usm__monitor_page, pid));
    memcpy(process.now.magic, USM__MONITOR_MAGIC, sizeof process.now.magic);
    process.now.version = USM__MONITOR_VERSION;
    process.now.size    = sizeof process.now;
    CHECK(usm__monitor_check(&process.now, sizeof process.now, why));
    CHECK_INT(process.now.nqueues, USM__MONITOR_QUEUES);
    top_follow(&process);
    top_sum(&process);
    process.before            = (usm__monitor_page){.samples = 1};
    process.before.sampled_ns = process.now.sampled_ns - 1;
    top_follow(&process);
    top_sum(&process);
    CHECK(process.sums.read_rate + process.sums.written_rate < (double)INT64_MAX);
    CHECK_INT(process.sums.depth, (uint64_t)USM__MONITOR_DEVICES * UINT32_MAX);
    for (unsigned width = 1; width <= 200; width += 13) {
        const char *line = details(width);

        CHECK(!strstr(line, "nan") && !strstr(line, "inf") && !strstr(line, "-1"));
        for (; *line != '\0'; line += strcspn(line, "\n") + 1)
            CHECK(strcspn(line, "\n") <= width);
    }
    top_put_json(&j, &m);
    CHECK(j.out.used < sizeof text && strstr(text, "18446744073709551615"));
}

static const plain_case cases[] = {
    CASE(what_rose_in_each_of_the_last_samples_grows),
    CASE(one_sample_without_a_rise_ends_it),
    CASE(a_tag_is_followed_to_another_place),
    CASE(a_new_pool_in_an_old_place_does_not_grow),
    CASE(use_is_the_part_of_the_time_between_two_samples),
    CASE(in_forty_columns_the_figures_are_seen),
    CASE(the_depth_of_a_shared_queue_is_not_known),
    CASE(figures_that_cannot_be_are_shown_within_bounds),
    {NULL, NULL},
};

int main(int argc, char **argv)
{
    return plain_main(argc, argv, cases);
}
