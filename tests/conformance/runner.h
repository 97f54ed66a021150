/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The runner of the conformance suite: tests of many files, in one process as long as none dies.
 *
 *     Test(free, null_is_nothing) { CHECK_OK(usm_free_ctx(NULL, NULL)); }
 *
 * Test() registers a test before main().  The parent process uses neither libusm nor a driver: it
 * forks one child, which runs all tests one after the other, so that the driver starts once and
 * leak checkers see the whole suite.  A test that fails ends the child, because it leaves threads,
 * commands and locks behind; so does one that crashes or hangs.  The parent says which test that
 * was and forks a child that goes on with the next.
 *
 * TestAlone() is for a test that needs a process in which nothing was read or started before: one
 * of the start and end of the library, or one that sets settings or variables.  It has a child of
 * its own, forked after the others.
 *
 * Not here: the record and the checks (common.h). */
#ifndef USM_TESTS_CONFORMANCE_RUNNER_H
#define USM_TESTS_CONFORMANCE_RUNNER_H

#include <stdbool.h>

typedef struct test_case {
    const char *suite, *name;
    void (*run)(void);
    bool              alone;
    struct test_case *next; /* in the order of registration */
} test_case;

#define Test(suite, name)      TEST_REGISTERED(suite, name, false)
#define TestAlone(suite, name) TEST_REGISTERED(suite, name, true)

#define TEST_REGISTERED(suite_, name_, alone_)                                                     \
    static void                              test_##suite_##_##name_(void);                        \
    __attribute__((constructor)) static void add_##suite_##_##name_(void)                          \
    {                                                                                              \
        static test_case t = {#suite_, #name_, test_##suite_##_##name_, alone_, NULL};             \
        test_add(&t);                                                                              \
    }                                                                                              \
    static void test_##suite_##_##name_(void)

/* `t` stays in the list of tests, which is in the order of the files on the linker's command line
 * and of the tests in a file. */
void test_add(test_case *t);

/* The test that runs in this process; NULL in the parent. */
const test_case *test_current(void);

/* Ends the test, and this process, as failed.  A process that the test forked ends with status 1.
 */
void test_fail(const char *file, int line, const char *format, ...)
    __attribute__((noreturn, format(printf, 3, 4)));
/* Ends the test as skipped.  pre: called on the thread of the test. */
void test_skip(const char *reason) __attribute__((noreturn));

/* The runner calls them, common.c has them: the beginning of the record, and the end of a test in
 * it
 * ("PASSED", "FAILED", "SKIPPED"). */
void record_begin(void);
void record_end(const test_case *t, const char *status, const char *reason);

#endif
