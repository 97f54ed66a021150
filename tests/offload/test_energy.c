/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The policy "energy" over devices whose watts a table says (USM_WATTS, set by main()): who does
 * not fit under the cap takes nothing, and the result is the same.  And the joules of launches. */
#include "plain.h"
#include "split.h"

#include "offload/meter.h"

#include <sys/stat.h>

enum { N = 5040 };

static uint32_t data[N];

static usm_status launch(usm_team *team, double cap)
{
    usm_split_arg     arg = USM_SPLIT_IN(data, 4);
    usm_parallel_desc d   = USM_PARALLEL_DESC_INIT;
    usm_status        st  = split_create(team, "twice", &d.kernel);

    CHECK_INT(st, USM_OK);
    arg.mode         = USM_READ_WRITE;
    d.flags          = USM_PARALLEL_SNAPSHOT;
    d.global[0]      = N;
    d.max_chunk      = 100;
    d.nargs          = 1;
    d.args           = &arg;
    d.policy.name    = "energy";
    d.policy.numbers = &cap, d.policy.nnumbers = 1;
    for (uint32_t i = 0; i < N; i++)
        data[i] = i;
    st = usm_parallel(team, &d, NULL);
    usm_team_kernel_destroy(d.kernel);
    for (uint32_t i = 0; st == USM_OK && i < N; i++)
        CHECK_INT(data[i], 2 * i + 1);
    return st;
}

static uint64_t chunks_of(usm_team *team, uint32_t index)
{
    usm_team_member m = {.struct_size = sizeof m};

    CHECK_INT(usm_team_get_member(team, index, &m), USM_OK);
    return m.chunks;
}

static void a_device_under_the_cap_does_it_all(void)
{
    usm_team *team;

    CHECK_INT(usm_team_create(NULL, &team), USM_OK);
    CHECK_INT(launch(team, 60), USM_OK);
    CHECK_INT(launch(team, 5), USM_E_INVALID); /* nobody fits */
    CHECK_IN("5", usm_last_error());
    usm_team_destroy(team);
}

static void who_is_over_the_cap_takes_nothing(void)
{
    const char   *name = getenv("USM_TEST_RUNTIME");
    usm_team_desc desc = USM_TEAM_DESC_INIT;
    usm_device   *list[2];
    usm_team     *team;
    uint64_t      before;
    size_t        n;

    if (!name || strcmp(name, "pocl") != 0)
        return; /* one device */
    CHECK_INT(usm_select_devices("opencl:*", &list[0], 1, &n), USM_OK);
    CHECK_INT(usm_select_devices("host:*", &list[1], 1, &n), USM_OK);
    desc.ndevices = 2;
    desc.devices  = list;
    CHECK_INT(usm_team_create(&desc, &team), USM_OK);
    CHECK_INT(launch(team, 35), USM_OK); /* the host draws 50 */
    CHECK(chunks_of(team, 0) > 0);
    CHECK_INT(chunks_of(team, 1), 0);
    before = chunks_of(team, 0);
    CHECK_INT(launch(team, 80), USM_OK); /* both fit */
    CHECK(chunks_of(team, 0) > before);
    CHECK(chunks_of(team, 1) > 0);
    usm_team_destroy(team);
}

/* The host alone has code, and draws more than the cap, under which the other one is. */
static void nobody_over_the_cap_steps_in(void)
{
    static const usm_native_kernel natives[] = {{"twice", split_twice, 1, NULL}};
    const char                    *name      = getenv("USM_TEST_RUNTIME");
    const double                   cap       = 35;
    usm_image                      image     = {USM_IMAGE_NATIVE, natives, sizeof natives};
    usm_split_arg                  arg       = USM_SPLIT_IN(data, 4);
    usm_program_desc               p         = USM_PROGRAM_DESC_INIT;
    usm_parallel_desc              d         = USM_PARALLEL_DESC_INIT;
    usm_team_desc                  who = {.struct_size = sizeof who, .selector = "opencl:*;host:*"};
    usm_team                      *team;

    if (!name || strcmp(name, "pocl") != 0)
        return; /* one device */
    p.images = &image, p.nimages = 1;
    CHECK_INT(usm_team_create(&who, &team), USM_OK);
    CHECK_INT(usm_team_size(team), 2);
    CHECK_INT(usm_team_kernel_create(team, &p, "twice", &d.kernel), USM_OK);
    arg.mode      = USM_READ_WRITE;
    d.flags       = USM_PARALLEL_SNAPSHOT;
    d.global[0]   = N;
    d.nargs       = 1;
    d.args        = &arg;
    d.policy.name = "energy", d.policy.numbers = &cap, d.policy.nnumbers = 1;
    CHECK_INT(usm_parallel(team, &d, NULL), USM_E_NO_DEVICE);
    CHECK_IN("left out by the policy", usm_last_error());
    CHECK_INT(chunks_of(team, 0) + chunks_of(team, 1), 0);
    usm_team_kernel_destroy(d.kernel);
    usm_team_destroy(team);
}

/* ---- joules: a folder stands for /sys/class/powercap ---- */

static void put_counter(const char *file, const char *text)
{
    char name[64];

    (void)snprintf(name, sizeof name, "powercap/intel-rapl:0/%s", file);
    plain_write(plain_path(name), text);
}

/* A kernel while which the package draws 4 J. */
static void draw(const usm_range *range, void *const *args)
{
    (void)range;
    (void)args;
    put_counter("energy_uj", "5000000\n");
}

static void lose_counter(const usm_range *range, void *const *args)
{
    (void)range;
    (void)args;
    put_counter("energy_uj", "");
}

static void make_counter(void)
{
    (void)mkdir(plain_path("powercap"), 0700);
    (void)mkdir(plain_path("powercap/intel-rapl:0"), 0700);
    put_counter("name", "package-0\n");
    put_counter("max_energy_range_uj", "65532610987\n");
    put_counter("energy_uj", "1000000\n");
}

/* Two launches of one index on the host; state: what the meter then says. */
static double joules_of_host(usm_native_fn fn, usm__meter_state *state)
{
    const usm_native_kernel natives[] = {{"draw", fn, 0, NULL}};
    const usm_image         image     = {USM_IMAGE_NATIVE, natives, sizeof natives};
    usm_team_desc           who       = USM_TEAM_DESC_INIT;
    usm_program_desc        p         = USM_PROGRAM_DESC_INIT;
    usm_parallel_desc       d         = USM_PARALLEL_DESC_INIT;
    usm_team_member         m         = {.struct_size = sizeof m};
    usm_team               *team;

    p.images = &image, p.nimages = 1;
    who.selector = "host:*";
    who.energy   = true;
    make_counter();
    CHECK_INT(usm_team_create(&who, &team), USM_OK);
    usm__meter_set_folder(team->meter, plain_path("powercap"));
    CHECK_INT(usm_team_kernel_create(team, &p, "draw", &d.kernel), USM_OK);
    d.global[0] = 1;
    CHECK_INT(usm_parallel(team, &d, NULL), USM_OK);
    CHECK_INT(usm_parallel(team, &d, NULL), USM_OK); /* draws nothing more */
    CHECK_INT(usm_team_get_member(team, 0, &m), USM_OK);
    usm__meter_get(team->meter, state);
    usm_team_kernel_destroy(d.kernel);
    usm_team_destroy(team);
    return m.joules;
}

static void the_host_has_its_share_of_the_counter(void)
{
    usm__meter_state state;
    double           joules = joules_of_host(draw, &state);

    CHECK_INT(state.packages, 1);
    CHECK(!state.is_partial);
    CHECK(joules > 0); /* USM_WATTS speaks of the host, too: the counter comes first */
    CHECK(joules + state.idle > 3.999999 && joules + state.idle < 4.000001);
}

static void a_counter_is_lost_in_the_middle(void)
{
    usm__meter_state state;

    CHECK(joules_of_host(lose_counter, &state) >= 0);
    CHECK(state.is_partial);
    CHECK(state.idle < 1e-9);
}

static void nobody_reads_what_nobody_asked_for(void)
{
    usm_team_member m = {.struct_size = sizeof m};
    usm_team       *team;

    CHECK_INT(usm_team_create(NULL, &team), USM_OK);
    CHECK(team->meter == NULL);
    CHECK_INT(launch(team, 60), USM_OK);
    CHECK_INT(usm_team_get_member(team, 0, &m), USM_OK);
    CHECK(m.joules == 0);
    usm_team_destroy(team);
}

/* Without counters each device draws what USM_WATTS says while it is busy. */
static void watts_of_the_table_count_without_counters(void)
{
    usm_team_desc   who = USM_TEAM_DESC_INIT;
    usm_team_member m   = {.struct_size = sizeof m};
    usm_team       *team;

    who.energy = true;
    CHECK_INT(usm_team_create(&who, &team), USM_OK);
    usm__meter_set_folder(team->meter, plain_path("none"));
    CHECK_INT(launch(team, 60), USM_OK);
    CHECK_INT(usm_team_get_member(team, 0, &m), USM_OK);
    CHECK(m.joules > 0);
    usm_team_destroy(team);
}

static const plain_case cases[] = {CASE(a_device_under_the_cap_does_it_all),
                                   CASE(who_is_over_the_cap_takes_nothing),
                                   CASE(nobody_over_the_cap_steps_in),
                                   CASE(the_host_has_its_share_of_the_counter),
                                   CASE(a_counter_is_lost_in_the_middle),
                                   CASE(nobody_reads_what_nobody_asked_for),
                                   CASE(watts_of_the_table_count_without_counters),
                                   {NULL, NULL}};

int main(int argc, char **argv)
{
    (void)setenv("USM_WATTS", "host=50,*=30", 1);
    return plain_main(argc, argv, cases);
}
