/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Options, progress and figures of launches over a team (team.h). */
#include "team.h"

#include "arguments.h"
#include "clock.h"
#include "job.h"
#include "progress.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

const char team_options_help[] =
    "  --team            split it over all devices that the selector names\n"
    "  --policy NAME     who gets how much: adaptive, static, fixed, guided, fastest\n"
    "                    (USM_POLICY, else adaptive)\n"
    "  --chunks N        in N pieces of one size\n"
    "  --ranks           over the devices of all ranks: mpirun -n 2 of the program for this MPI\n"
    "  --ranks=socket:FOLDER,rank=R,size=N\n"
    "                    the same without MPI, by N processes that meet in a folder\n";

enum team_option team_option_parse(struct team_options *o, const char *program,
                                   const char *argument, const char *next, int *used)
{
    const char *value;

    *used = 1;
    if (strcmp(argument, "--team") == 0) {
        o->is_on = true;
    } else if (strcmp(argument, "--ranks") == 0) {
        o->ranks = "";
    } else if (strncmp(argument, "--ranks=", 8) == 0) {
        o->ranks = argument + 8;
    } else if ((value = argument_value("--policy", argument, next, used)) != NULL) {
        o->policy = value;
    } else if ((value = argument_value("--chunks", argument, next, used)) != NULL) {
        if (argument_number(value, 1, INT32_MAX, &o->chunks))
            return TEAM_OPTION_TAKEN;
        fprintf(stderr, "%s: --chunks wants a number from 1 to %" PRId32 ", not \"%s\"\n", program,
                INT32_MAX, value);
        return TEAM_OPTION_WRONG;
    } else {
        return TEAM_OPTION_OTHER;
    }
    return TEAM_OPTION_TAKEN;
}

bool team_options_fit(const struct team_options *o, const char *program)
{
    const char *wrong = NULL;

    if (o->policy && o->chunks > 0)
        wrong = "--chunks is a policy of its own; give one of --chunks and --policy";
    else if ((o->policy || o->chunks > 0) && !o->is_on && !o->ranks)
        wrong = "--chunks and --policy are for --team and --ranks";
    else if (o->ranks && *o->ranks && strncmp(o->ranks, "socket:", 7) != 0)
        wrong = "--ranks= wants socket:FOLDER,rank=R,size=N";
#ifndef SAMPLE_HAS_MPI
    else if (o->ranks && *o->ranks == '\0')
        wrong = "this program has no MPI: take the one for yours (its name ends in _openmpi or "
                "_mpich), or --ranks=socket:FOLDER,rank=R,size=N";
#endif
    if (wrong)
        fprintf(stderr, "%s: %s\n", program, wrong);
    return !wrong;
}

static usm_status failed(const char *program)
{
    fprintf(stderr, "%s: making the team: %s (%s)\n", program, usm_last_error(),
            usm_status_name(usm_last_status()));
    return usm_last_status();
}

static void read_members(struct team_course *c)
{
    for (uint32_t i = 0; i < c->nmembers; i++) {
        c->members[i].info = (usm_team_member){.struct_size = sizeof c->members[i].info};
        if (usm_team_get_member(c->team, i, &c->members[i].info) != USM_OK)
            c->members[i].info.state = USM_MEMBER_LOST;
    }
}

usm_status team_course_open(struct team_course *c, const char *program)
{
    usm_team_desc desc = USM_TEAM_DESC_INIT;

    desc.ranks = c->options->ranks != NULL;
    if (usm_team_create(&desc, &c->team) != USM_OK)
        return failed(program);
    c->start_s  = clock_now_s();
    c->nmembers = usm_team_size(c->team);
    c->members  = calloc(c->nmembers, sizeof *c->members);
    if (c->members) {
        read_members(c);
        return USM_OK;
    }
    c->nmembers = 0;
    fprintf(stderr, "%s: out of memory\n", program);
    return USM_E_NO_MEMORY;
}

/* Who has left looks like one that is lost, and home, whose figures are printed, asks who was: so
 * it goes first. */
static void wait_for_home(struct team_course *c)
{
    const struct timespec moment = {.tv_nsec = 5000000};

    for (int i = 0; i < 400 && c->members[0].info.state != USM_MEMBER_LOST; i++) {
        nanosleep(&moment, NULL);
        read_members(c);
    }
}

bool team_course_close(struct team_course *c)
{
    bool is_whole = true;

    read_members(c);
    if (c->nmembers > 0 && !job_is_home())
        wait_for_home(c);
    for (uint32_t i = 0; i < c->nmembers; i++)
        is_whole = is_whole && c->members[i].info.state != USM_MEMBER_LOST;
    usm_team_destroy(c->team);
    c->team = NULL;
    return is_whole;
}

void team_course_fini(struct team_course *c)
{
    free(c->members);
}

static double units_of(const struct team_course *c, uint32_t member)
{
    const struct team_member *m = &c->members[member];

    return m->done + m->share * c->fraction * (double)c->units;
}

double team_course_share(const struct team_course *c, uint32_t member)
{
    double all = 0.0;

    for (uint32_t i = 0; i < c->nmembers; i++)
        all += units_of(c, i);
    return all > 0.0 ? units_of(c, member) / all : 0.0;
}

static void show_shares(const struct team_course *c)
{
    char   text[PROGRESS_TAIL] = "";
    size_t used                = 0;

    for (uint32_t i = 0; i < c->nmembers && used < sizeof text; i++)
        used += (size_t)snprintf(text + used, sizeof text - used, "  %s %.0f %%",
                                 c->members[i].info.name, 100.0 * team_course_share(c, i));
    progress_set_tail(text);
}

/* Called by a thread of libusm, one call at a time. */
static bool on_progress(const usm_progress *progress, void *user)
{
    struct team_course *c = user;

    c->fraction = progress->fraction;
    for (uint32_t i = 0; i < c->nmembers && i < progress->nmembers; i++)
        c->members[i].share = progress->shares[i];
    if (c->show) {
        show_shares(c);
        c->show(c->before + (uint64_t)(c->fraction * (double)c->units), c->total, c->start_s);
    }
    return true;
}

void team_course_set(struct team_course *c, usm_parallel_desc *d, uint64_t extent, uint64_t units)
{
    const uint64_t chunks = (uint64_t)c->options->chunks;
    uint64_t       each;

    c->units         = units;
    c->fraction      = 0.0;
    d->progress      = on_progress;
    d->progress_user = c;
    d->policy.name   = c->options->policy;
    if (chunks == 0)
        return;
    each               = (extent + chunks - 1) / chunks;
    c->chunk           = (double)each;
    d->policy.name     = "fixed";
    d->policy.numbers  = &c->chunk;
    d->policy.nnumbers = 1;
}

void team_course_add(struct team_course *c, const usm_parallel_stats *stats)
{
    for (uint32_t i = 0; i < c->nmembers; i++) {
        c->members[i].done  = units_of(c, i);
        c->members[i].share = 0.0;
    }
    c->before += c->units;
    c->sum.chunks += stats->chunks;
    c->sum.rescheduled += stats->rescheduled;
    c->sum.duplicated += stats->duplicated;
    c->sum.bytes_in += stats->bytes_in;
    c->sum.bytes_out += stats->bytes_out;
}

void team_course_print(const struct team_course *c)
{
    static const char *const states[] = {"", "", "  set aside", "  lost"};

    for (uint32_t i = 0; i < c->nmembers; i++) {
        const usm_team_member *info = &c->members[i].info;

        printf("%s%-14s %5.1f %%%s\n", i == 0 ? "team     " : "         ", info->name,
               100.0 * team_course_share(c, i), states[info->state]);
    }
    printf("chunks   %" PRIu64 ", rescheduled %" PRIu64 ", duplicated %" PRIu64 "\n", c->sum.chunks,
           c->sum.rescheduled, c->sum.duplicated);
}

void team_course_print_json(const struct team_course *c)
{
    printf("\"members\":[");
    for (uint32_t i = 0; i < c->nmembers; i++)
        printf("%s{\"device\":\"%s\",\"share\":%.6f}", i == 0 ? "" : ",", c->members[i].info.name,
               team_course_share(c, i));
    printf("],\"chunks\":%" PRIu64 ",\"rescheduled\":%" PRIu64 ",\"duplicated\":%" PRIu64,
           c->sum.chunks, c->sum.rescheduled, c->sum.duplicated);
}
