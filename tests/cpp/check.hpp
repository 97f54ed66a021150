/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* What the programs of this folder share: expectations that are counted, and the status that a
 * function throws.  Each program is a main() that calls cases, whose names are sentences, and ends
 * with finish(). */
#ifndef USM_TESTS_CPP_CHECK_HPP
#define USM_TESTS_CPP_CHECK_HPP

#include <usm/error.hpp>

#include <atomic>
#include <cstdio>
#include <exception>
#include <new>

namespace check
{

inline std::atomic<int> checks{0}, failures{0};

inline void expect(bool ok, const char *what, const char *file, int line)
{
    checks++;
    if (ok)
        return;
    failures++;
    std::fprintf(stderr, "%s:%d: not so: %s (%s)\n", file, line, what, usm_last_error());
}
#define EXPECT(...) check::expect((__VA_ARGS__), #__VA_ARGS__, __FILE__, __LINE__)

/* The status that `fn` throws; USM_OK when it does not. */
template <class F> usm_status thrown(F &&fn)
{
    try {
        fn();
    } catch (const usm::error &e) {
        return e.status();
    } catch (const usm::bad_alloc &e) {
        return e.status();
    }
    return USM_OK;
}

/* Runs all of them, and is what main() returns. */
template <class... F> int run(F... cases)
{
    const auto one = [](auto *fn) {
        try {
            fn();
        } catch (const std::exception &e) {
            std::fprintf(stderr, "an exception that nobody expected: %s\n", e.what());
            failures++;
        }
    };
    (one(cases), ...);
    std::printf("%d checks passed, %d failed\n", checks - failures, failures.load());
    return failures == 0 && checks > 0 ? 0 : 1;
}

} // namespace check
#endif
