/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Policies one by one, the knapsack against all subsets, where watts come from.  How good the
 * policies are is simulated in policy_sim.c. */
#include "base/settings.h"
#include "base/settings_check.h"
#include "offload/schedule.h"
#include "offload/watts.h"
#include "plain.h"

#include <sys/stat.h>
#include <usm/status.h>

#define MEMBERS 4

static usm_policy_member members[MEMBERS];
static double            numbers[1];
static usm_policy_state  state;

/* Four measured members of 100, 200, 300 and 400 items a second, before 10,000 indices. */
static void reset(void)
{
    for (uint32_t i = 0; i < MEMBERS; i++)
        members[i] = (usm_policy_member){.speed   = 100 * (i + 1),
                                         .weight  = i + 1,
                                         .watts   = 10 * (i + 1),
                                         .chunks  = 5,
                                         .is_well = true};
    state = (usm_policy_state){.struct_size = sizeof(state),
                               .total       = 10000,
                               .remaining   = 10000,
                               .depth       = 1,
                               .nmembers    = MEMBERS,
                               .members     = members,
                               .numbers     = numbers};
}

static uint64_t ask(const char *name, uint32_t member)
{
    usm_policy_fn fn = usm__chunk_policy_find(name);

    CHECK(fn != NULL);
    return fn(&state, member);
}

static void all_names_are_found(void)
{
    char  names[128];
    char *rest = names;

    (void)snprintf(names, sizeof names, "%s", usm__chunk_policy_names());
    for (char *name = strtok_r(names, ", ", &rest); name != NULL;
         name       = strtok_r(NULL, ", ", &rest)) {
        CHECK(usm__chunk_policy_find(name) != NULL);
        CHECK_INT(usm__settings_set("policy", name), USM_OK); /* base has a list of its own */
    }
    CHECK(usm__chunk_policy_find("Adaptive") == NULL);
    CHECK(usm__chunk_policy_find("") == NULL);
    CHECK_INT(usm__settings_set("policy", "quick"), USM_E_SETTING);
    CHECK_IN(usm__chunk_policy_names(), usm_last_error());
    CHECK_INT(usm__settings_set("policy", NULL), USM_OK);
    CHECK_STR(usm__setting_text("policy"), "adaptive");
}

static void adaptive_takes_half_of_a_members_share(void)
{
    reset();
    CHECK_INT(ask("adaptive", 0), 500);
    CHECK_INT(ask("adaptive", 3), 2000);
    state.depth = 2;
    CHECK_INT(ask("adaptive", 3), 1000);
    members[2].is_well = false; /* its share is the others' */
    CHECK_INT(ask("adaptive", 3), 1428);
}

static void adaptive_probes_twice_before_it_trusts(void)
{
    reset();
    members[0].speed = 0, members[0].chunks = 0;
    CHECK_INT(ask("adaptive", 0), 4);
    members[0].flying = 4;
    CHECK_INT(ask("adaptive", 0), 0); /* one probe at a time */
    members[0].flying = 0, members[0].speed = 100, members[0].chunks = 1;
    CHECK_INT(ask("adaptive", 0), 7);
    members[0].flying = 7;
    CHECK_INT(ask("adaptive", 0), 0);
    members[0].flying = 0, members[0].chunks = 2;
    CHECK_INT(ask("adaptive", 0), 500);
    for (uint32_t i = 0; i < MEMBERS; i++)
        members[i].speed = 0;
    CHECK(ask("adaptive", 0) > 0);
}

static void adaptive_minds_the_cost_of_chunks(void)
{
    reset();
    state.remaining = 1000; /* a second of all */
    state.depth     = 4;
    CHECK_INT(ask("adaptive", 3), 50);
    members[3].cost = 0.0015;
    CHECK_INT(ask("adaptive", 3), 60); /* 100 times the cost */
    members[3].cost = 0.01;
    CHECK_INT(ask("adaptive", 3), 80); /* but no more than a fifth of the time left */
    members[3].cost = 0.1;
    CHECK_INT(ask("adaptive", 3), 400); /* not worth cutting any more */
    state.remaining = 1;
    members[3].cost = 0;
    CHECK_INT(ask("adaptive", 3), 1); /* and never nothing */
}

static void static_shares_by_weight_once(void)
{
    reset();
    for (uint32_t i = 0; i < MEMBERS; i++)
        members[i].chunks = 0;
    CHECK_INT(ask("static", 0), 1000);
    CHECK_INT(ask("static", 3), 4000);
    members[0].flying = 1000;
    state.remaining   = 9000;
    CHECK_INT(ask("static", 0), 0);
    CHECK_INT(ask("static", 3), 4000); /* of what is left, among those who have yet to begin */
    members[0].flying = 0, members[0].chunks = 1;
    CHECK_INT(ask("static", 0), 0); /* others have yet to take theirs */
    for (uint32_t i = 0; i < MEMBERS; i++)
        members[i].chunks = 1;
    state.remaining    = 900; /* came back */
    members[3].is_well = false;
    CHECK_INT(ask("static", 2), 450);
    members[2].weight = 0;
    CHECK_INT(ask("static", 2), 0);
}

static void fixed_and_guided_are_what_they_say(void)
{
    reset();
    CHECK_INT(ask("fixed", 0), 156);
    numbers[0]     = 33;
    state.nnumbers = 1;
    CHECK_INT(ask("fixed", 2), 33);
    CHECK_INT(ask("guided", 3), 2000);
    state.remaining = 1;
    CHECK_INT(ask("guided", 0), 1);
}

static void the_fastest_takes_all(void)
{
    reset();
    CHECK_INT(ask("fastest", 2), 0);
    CHECK_INT(ask("fastest", 3), 5000);
    members[3].is_well = false;
    CHECK_INT(ask("fastest", 2), 5000);
    members[1].speed = 0;
    CHECK_INT(ask("fastest", 1), 4); /* who knows */
}

static void energy_keeps_the_cap(void)
{
    reset();
    state.nnumbers   = 1;
    numbers[0]       = 60; /* 20 + 40 W do 700 a second, 10 + 20 + 30 W only 600 */
    members[3].speed = 500;
    CHECK_INT(ask("energy", 0), 0);
    CHECK_INT(ask("energy", 2), 0);
    CHECK(ask("energy", 1) > 0);
    CHECK(ask("energy", 3) > 0);
    members[2].flying = 10; /* which still draws 30 W */
    CHECK_INT(ask("energy", 3), 0);
    members[2].flying = 0;
    members[0].speed  = 0; /* it probes first, and others wait for it */
    CHECK_INT(ask("energy", 3), 0);
    CHECK_INT(ask("energy", 0), 4);
    members[0].watts = 0; /* nobody knows what it draws: it stays out */
    CHECK_INT(ask("energy", 0), 0);
    CHECK(ask("energy", 3) > 0);
}

static void launches_that_no_policy_could_do_are_refused(void)
{
    const double         none[] = {0, 0}, weights[] = {1, -1}, watts[] = {0, 50};
    double               number = 0;
    usm__schedule_params p      = {.nworkers = 2, .policy = usm__chunk_policy_find("energy")};

    CHECK_INT(usm__chunk_policy_check(&p), USM_E_INVALID);
    CHECK_IN("cap", usm_last_error());
    number    = 40;
    p.numbers = &number, p.nnumbers = 1;
    CHECK_INT(usm__chunk_policy_check(&p), USM_E_INVALID);
    CHECK_IN("other ranks", usm_last_error());
    p.watts = none;
    CHECK_INT(usm__chunk_policy_check(&p), USM_E_INVALID);
    CHECK_IN("USM_WATTS", usm_last_error());
    p.watts = watts;
    CHECK_INT(usm__chunk_policy_check(&p), USM_E_INVALID);
    CHECK_IN("50 W", usm_last_error());
    number = 50;
    CHECK_INT(usm__chunk_policy_check(&p), USM_OK);
    CHECK(!usm__chunk_policy_takes(&p, 0)); /* its watts are not known */
    CHECK(usm__chunk_policy_takes(&p, 1));
    number = 49;
    CHECK(!usm__chunk_policy_takes(&p, 1));
    p.nworkers = 65;
    p.watts    = NULL;
    CHECK_INT(usm__chunk_policy_check(&p), USM_E_INVALID);
    p.nworkers = 2;
    p.policy   = usm__chunk_policy_find("fixed");
    number     = 0.5;
    CHECK_INT(usm__chunk_policy_check(&p), USM_E_INVALID);
    number    = 1;
    p.weights = weights;
    CHECK_INT(usm__chunk_policy_check(&p), USM_E_INVALID);
    CHECK_IN("weight 1", usm_last_error());
    p.weights = none;
    CHECK_INT(usm__chunk_policy_check(&p), USM_E_INVALID);
    p.weights = NULL;
    CHECK_INT(usm__chunk_policy_check(&p), USM_OK);
}

/* --- the knapsack ---------------------------------------------------------------------------- */

static uint32_t random_below(uint32_t n)
{
    static uint64_t x = 88172645463325252u;

    x ^= x << 13;
    x ^= x >> 7;
    x ^= x << 17;
    return (uint32_t)(x % n);
}

static double sum_of(uint64_t set, size_t n, const double *values)
{
    double sum = 0;

    for (size_t i = 0; i < n; i++)
        if ((set >> i & 1) != 0)
            sum += values[i];
    return sum;
}

static double best_of_all(size_t n, const double *value, const double *watts, double cap)
{
    double best = 0;

    for (uint64_t set = 0; set < 1ull << n; set++)
        if (sum_of(set, n, watts) <= cap + 1e-6 && sum_of(set, n, value) > best)
            best = sum_of(set, n, value);
    return best;
}

static void it_is_the_best_of_all_subsets(void)
{
    for (int round = 0; round < 500; round++) {
        double   value[16], watts[16], cap;
        size_t   n    = random_below(17 - (round % 8 != 0) * 5);
        int      kind = round % 4;
        uint64_t set;

        for (size_t i = 0; i < n; i++) {
            watts[i] = kind == 3 ? 10 * (1 + random_below(4)) : random_below(3000) / 10.0;
            value[i] = kind == 1 ? watts[i] + 10 : random_below(1000); /* hard, or any */
        }
        cap = random_below(20000) / 10.0;
        set = usm__knapsack(n, value, watts, cap);
        CHECK(set >> n == 0);
        CHECK(sum_of(set, n, watts) <= cap + 1e-6);
        CHECK(sum_of(set, n, value) > best_of_all(n, value, watts, cap) - 1e-6);
    }
}

static void hard_ones_of_64_items_are_exact_too(void)
{
    double value[64], watts[64];

    for (int i = 0; i < 64; i++) {
        watts[i] = 100 + 2 * (double)random_below(150); /* even: an odd cap leaves one watt */
        value[i] = watts[i];
    }
    CHECK(sum_of(usm__knapsack(64, value, watts, 6001), 64, watts) == 6000);
    CHECK(usm__knapsack(64, value, watts, 1e9) == UINT64_MAX);
    CHECK(usm__knapsack(64, value, watts, 0) == 0);
}

static void odd_items_stay_out(void)
{
    const double value[] = {1, 0, -1, 5, 2}, watts[] = {0, 1, 1, 100, 10.04};

    CHECK_INT(usm__knapsack(5, value, watts, 50), 1 | 16);
    CHECK_INT(usm__knapsack(5, value, watts, 10), 1); /* 10.04 W counts as 10.1 */
    CHECK_INT(usm__knapsack(5, value, watts, -1), 0);
    CHECK_INT(usm__knapsack(0, value, watts, 50), 0);
}

/* --- watts ----------------------------------------------------------------------------------- */

static double watts_of(const char *device, const char *source)
{
    double      watts = -1;
    const char *by    = NULL;

    CHECK_INT(usm__watts_of(device, &watts, &by), USM_OK);
    CHECK_STR(by, source);
    return watts;
}

static void the_table_says_what_devices_draw(void)
{
    CHECK_INT(usm__settings_set("watts", "*=5, host=65, opencl:0.0=150.5,3/opencl:0.0=140"),
              USM_OK);
    CHECK(watts_of("host:0", "USM_WATTS") == 65);
    CHECK(watts_of("opencl:0.0", "USM_WATTS") == 150.5);
    CHECK(watts_of("2/opencl:0.0", "USM_WATTS") == 150.5);
    CHECK(watts_of("3/opencl:0.0", "USM_WATTS") == 140);
    CHECK(watts_of("level_zero:0", "USM_WATTS") == 5);
    CHECK_INT(usm__settings_set("watts", "opencl=1"), USM_OK);
    CHECK(watts_of("level_zero:0", "unknown") == 0);
    CHECK_INT(usm__settings_set("watts", NULL), USM_OK);
    CHECK(watts_of("level_zero:0", "unknown") == 0);
}

static void a_file_is_a_table(void)
{
    const char *path  = plain_path("watts");
    double      watts = -1;
    const char *by    = "";

    plain_write(path, "# measured at the wall\nopencl:0.0 = 220 # under load\n\nhost=1\n");
    CHECK_INT(usm__settings_set("watts", path), USM_OK);
    CHECK(watts_of("opencl:0.0", "USM_WATTS") == 220);
    plain_write(path, "opencl:0.0=220\nhost 65\n");
    CHECK_INT(usm__watts_of("opencl:0.0", &watts, &by), USM_E_SETTING);
    CHECK_IN("entry 2, \"host 65\"", usm_last_error());
    CHECK(watts == -1);
    CHECK_INT(usm__settings_set("watts", "/nowhere/watts"), USM_OK);
    CHECK_INT(usm__watts_of("opencl:0.0", &watts, &by), USM_E_SETTING);
    CHECK_IN("/nowhere/watts", usm_last_error());
    CHECK_INT(usm__settings_set("watts", NULL), USM_OK);
}

/* Neither is read for ever, nor into all memory. */
static void a_table_is_a_file_of_some_lines(void)
{
    const char *large = plain_path("large"), *pipe = plain_path("pipe");
    const char *paths[] = {"/dev/zero", pipe, large};
    double      watts   = -1;
    const char *by      = "";

    CHECK_INT(mkfifo(pipe, 0600), 0);
    plain_write(large, "");
    CHECK_INT(truncate(large, (off_t)1 << 40), 0);
    for (size_t i = 0; i < 3; i++) {
        CHECK_INT(usm__settings_set("watts", paths[i]), USM_OK);
        CHECK_INT(usm__watts_of("opencl:0.0", &watts, &by), USM_E_SETTING);
        CHECK_IN(paths[i], usm_last_error());
        CHECK_IN(i < 2 ? "it is not a regular file" : "File too large", usm_last_error());
    }
    CHECK_INT(usm__settings_set("watts", NULL), USM_OK);
}

static void a_path_begins_as_one_or_has_no_sign(void)
{
    CHECK(!usm__settings_is_watts_path("3/host:0=5"));
    CHECK(!usm__settings_is_watts_path(""));
    CHECK(usm__settings_is_watts_path("/etc/watts=1"));
    CHECK(usm__settings_is_watts_path("./a=b"));
    CHECK(usm__settings_is_watts_path("../a=b"));
    CHECK(usm__settings_is_watts_path("table"));
}

static void lists_that_are_wrong_are_refused(void)
{
    static const char *const wrong[] = {"host=",    "=5",         "host=-1",         "host=1e3",
                                        "host=5,,", "host=1.2.3", "host=5;opencl=6", "host=."};

    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
        CHECK_INT(usm__settings_set("watts", wrong[i]), USM_E_SETTING);
}

static void put(const char *zone, const char *file, const char *text)
{
    char name[128];

    (void)snprintf(name, sizeof name, "intel-rapl:%s/%s", zone, file);
    plain_write(plain_path(name), text);
}

static void counters_are_summed_over_packages(void)
{
    usm__powercap before, after;

    CHECK(!usm__powercap_read(plain_path("none"), 0, &before));
    CHECK(mkdir(plain_path("intel-rapl:0"), 0700) == 0 &&
          mkdir(plain_path("intel-rapl:1"), 0700) == 0 &&
          mkdir(plain_path("intel-rapl:2"), 0700) == 0);
    put("0", "name", "package-0\n"), put("1", "name", "psys\n"), put("2", "name", "package-1\n");
    for (int i = 0; i < 3; i++)
        put(i == 0 ? "0" : i == 1 ? "1" : "2", "max_energy_range_uj", "1000000\n");
    put("0", "energy_uj", "100000\n"), put("1", "energy_uj", "1\n"),
        put("2", "energy_uj", "990000\n");
    CHECK(usm__powercap_read(plain_path("."), 1000000000, &before));
    CHECK_INT(before.n, 2);
    put("0", "energy_uj", "600000\n"), put("2", "energy_uj", "20000\n"); /* the second began anew */
    CHECK(usm__powercap_read(plain_path("."), 1100000000, &after));
    CHECK(usm__powercap_watts(&before, &after) > 5.299 &&
          usm__powercap_watts(&before, &after) < 5.301);
    CHECK(usm__powercap_watts(&after, &after) == 0);
    CHECK(usm__powercap_watts(&after, &before) == 0);
}

static const plain_case cases[] = {
    CASE(all_names_are_found),
    CASE(adaptive_takes_half_of_a_members_share),
    CASE(adaptive_probes_twice_before_it_trusts),
    CASE(adaptive_minds_the_cost_of_chunks),
    CASE(static_shares_by_weight_once),
    CASE(fixed_and_guided_are_what_they_say),
    CASE(the_fastest_takes_all),
    CASE(energy_keeps_the_cap),
    CASE(launches_that_no_policy_could_do_are_refused),
    CASE(it_is_the_best_of_all_subsets),
    CASE(hard_ones_of_64_items_are_exact_too),
    CASE(odd_items_stay_out),
    CASE(the_table_says_what_devices_draw),
    CASE(a_file_is_a_table),
    CASE(a_table_is_a_file_of_some_lines),
    CASE(a_path_begins_as_one_or_has_no_sign),
    CASE(lists_that_are_wrong_are_refused),
    CASE(counters_are_summed_over_packages),
    {NULL, NULL},
};

int main(int argc, char **argv)
{
    return plain_main(argc, argv, cases);
}
