/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* What the SYCL programs of this folder share: named checks, one line of output each, and the one
 * device they run on.  Not here: anything about libusm; native.cpp alone knows it.
 *
 *   ok       the check passed
 *   absent   the device does not offer what it needs; with --all that is a failure, unless the
 *            variable USM_TEST_MAY_LACK names the check
 *   FAILED   with the place and the reason
 *
 * Exit status: 0 all passed or absent, 1 one failed.  With names as arguments only those run.  A
 * program that hangs is ended by SIGALRM. */
#ifndef USM_TESTS_SYCL_CHECK_HPP
#define USM_TESTS_SYCL_CHECK_HPP

#include <sycl/sycl.hpp>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <string>
#include <unistd.h>
#include <vector>

namespace check
{

struct failure {
    std::string why;
};
struct absence {
    std::string why;
};
struct named {
    const char *name;
    void (*run)();
};

inline void expect(bool is_true, const char *what, const char *file, int line)
{
    if (!is_true)
        throw failure{std::string(file) + ":" + std::to_string(line) + ": " + what};
}

#define CHECK(function)                                                                            \
    check::named                                                                                   \
    {                                                                                              \
#function, function                                                                        \
    }
#define EXPECT(condition) check::expect((condition), #condition, __FILE__, __LINE__)

/* Ends the check when the device lacks what it needs. */
inline void needs(bool is_there, const char *what)
{
    if (!is_there)
        throw absence{what};
}

inline void needs(const sycl::device &device, sycl::aspect aspect, const char *what)
{
    needs(device.has(aspect), what);
}

/* The first device that the selector leaves. */
inline sycl::device device()
{
    const auto all = sycl::device::get_devices();
    if (all.empty())
        throw failure{"SYCL lists no device"};
    return all[0];
}

inline const char *run_one(void (*run)(), std::string &why)
{
    try {
        run();
        return "ok";
    } catch (const absence &a) {
        why = a.why;
        return "absent";
    } catch (const failure &f) {
        why = f.why;
    } catch (const std::exception &e) {
        why = std::string("threw: ") + e.what();
    }
    return "FAILED";
}

inline bool may_lack(const char *name)
{
    const char *names = std::getenv("USM_TEST_MAY_LACK");
    return names != nullptr && std::strstr(names, name) != nullptr;
}

inline int run_all(int argc, char **argv, const std::vector<named> &checks)
{
    std::vector<std::string> wanted(argv + 1, argv + argc);
    bool                     absent_fails = false;
    int                      failed = 0, ran = 0;

    if (!wanted.empty() && wanted.front() == "--all") {
        absent_fails = true;
        wanted.erase(wanted.begin());
    }
    for (const named &c : checks) {
        bool skip = !wanted.empty();
        for (const std::string &name : wanted)
            skip = skip && name != c.name;
        if (skip)
            continue;
        std::string why;
        (void)alarm(60);
        const std::string verdict = run_one(c.run, why);
        std::printf("%-7s %s%s%s\n", verdict.c_str(), c.name, why.empty() ? "" : ": ", why.c_str());
        (void)std::fflush(stdout);
        ran++;
        if (verdict == "FAILED" || (verdict == "absent" && absent_fails && !may_lack(c.name)))
            failed++;
    }
    std::printf("%d checks, %d failed\n", ran, failed);
    return failed > 0 || ran == 0;
}

/* Bytes that differ from place to place. */
inline std::vector<unsigned char> noise(std::size_t n, unsigned seed = 1)
{
    std::vector<unsigned char> bytes(n);
    std::uint32_t              x = seed * 2654435761u + 1;
    for (unsigned char &b : bytes) {
        x = x * 1664525u + 1013904223u;
        b = static_cast<unsigned char>(x >> 24);
    }
    return bytes;
}

} // namespace check
#endif
