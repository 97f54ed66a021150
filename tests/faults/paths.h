/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The fault sweep: which call of a run fails.
 *
 * Most calls that scenarios make fail on a path that another scenario has taken before.  By default
 * the sweep fails each path once for each kind of failure: the name of the call and the return
 * addresses from there up to the scenario, which does not belong to the path.  A path that one run
 * takes again fails at its 1st, 2nd, 4th, 8th ... time, for the clean-up of the second element is
 * not that of the first.  With USM_SWEEP_WHOLE set (sweep --whole) every single call fails.
 *
 * What has failed is kept in memory that the processes of the sweep share.  Thread-safe. */
#ifndef USM_TESTS_FAULTS_PATHS_H
#define USM_TESTS_FAULTS_PATHS_H

#include <stdbool.h>
#include <stdint.h>
#include <usm/status.h>

struct state;

/* The process of all scenarios calls this first, so that those of single ones share the record. */
void paths_share(void);
bool paths_are_shared(void);
/* From now on failures of this kind; is_coarse: only a few return addresses tell paths apart, and
 * what a run takes again does not fail, for a kind whose runs are dear. */
void paths_begin(unsigned kind, bool is_coarse);
/* From now on the call fails that `n` stands for: the n-th, or in the default mode, for any n but
 * 0, the first one whose path has not failed yet.  `onwards`: and every call after it. */
void paths_arm(uint64_t n, bool onwards);
/* In the default mode: the same call fails as in the last run. */
void paths_arm_again(bool onwards);
/* Runs a scenario: paths end here. */
usm_status paths_run(usm_status (*act)(struct state *s), struct state *s);
void       paths_disarm(void);
/* Whether the call `name` shall fail.  The sweep's hooks ask this for each call that could. */
bool paths_hit(const char *name);
/* How many calls have failed since they were armed. */
uint64_t paths_fired(void);
/* Since paths_begin(): most calls of one run, and how many new paths they took. */
uint64_t paths_calls(void);
uint64_t paths_found(void);

#endif
