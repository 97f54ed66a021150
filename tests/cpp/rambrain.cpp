/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* What usm/rambrain.hpp promises to programs written for Rambrain; each case is a sentence. */
#include "check.hpp"

#include <usm/rambrain.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <future>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <sys/resource.h>

namespace
{

using namespace rambrain;

constexpr std::size_t row_size = 8192; /* doubles: 64 KiB */

template <class F> bool is_refused(F &&fn)
{
    try {
        fn();
    } catch (const memoryException &) {
        return true;
    }
    return false;
}

/* Eight times the limit, so that most of it is in files; rows are exchanged by all threads. */
void rows_outgrow_memory_in_four_threads()
{
    constexpr std::size_t           nrows = 512, nthreads = 4;
    managedFileSwap                 swap(64 * mib, "rambrainswap-%d-%d");
    cyclicManagedMemory             manager(&swap, 4 * mib);
    std::vector<managedPtr<double>> rows;
    std::vector<std::thread>        threads;
    std::atomic<int>                wrong{0};

    for (std::size_t i = 0; i < nrows; i++)
        rows.emplace_back(row_size, double(i));
    EXPECT(manager.getUsedMemory() == 4 * mib && manager.getSwappedMemory() == 28 * mib);
    for (std::size_t t = 0; t < nthreads; t++)
        threads.emplace_back([&, t] {
            for (std::size_t k = 0; k < nrows; k++) {
                std::size_t         at   = (k * 37 + t) % nrows;
                managedPtr<double> &mine = rows[at];

                if (at % nthreads == t) {
                    ADHERETOLOC(double, mine, x);
                    x[row_size - 1] += 1;
                } else {
                    ADHERETOLOCCONST(double, mine, x);
                    wrong += x[0] != double(at);
                }
            }
        });
    for (std::thread &thread : threads)
        thread.join();
    EXPECT(wrong == 0);
    for (std::size_t i = 0; i < nrows; i++) {
        const adhereTo<double> a(rows[i]);
        const double          *x = a;

        wrong += x[0] != double(i) || x[row_size - 1] != double(i + 1);
    }
    EXPECT(wrong == 0);
    EXPECT(manager.checkCycle());
    EXPECT(manager.getTotalSwappedOutBytes() > 0);
    rows.clear(); /* with most of the content on disk */
    EXPECT(manager.getUsedMemory() == 0 && swap.getUsedSwap() == 0);
}

void an_adherence_says_what_it_does()
{
    managedDummySwap    swap(kib);
    cyclicManagedMemory manager(&swap, kib);
    managedPtr<int>     p(4, 7), none(0);

    EXPECT(p.chunk->status == MEM_ALLOCATED);
    {
        ADHERETOLOCCONST(int, p, x);
        EXPECT(x[3] == 7);
    }
    adhereTo<int> a(p), empty(none);
    EXPECT(!a.loadedReadable && !a.loadedWritable);
    const int *r = a;
    EXPECT(p.chunk->status == MEM_ALLOCATED_INUSE_READ);
    int *w = a;
    EXPECT(p.chunk->status == MEM_ALLOCATED_INUSE_WRITE && r == w);
    EXPECT(static_cast<int *>(empty) == nullptr);
    adhereTo<int> b = a;
    EXPECT(static_cast<int *>(b) == w);
    managedPtr<int> other(1);
    EXPECT(is_refused([&] { p = other; }));
    EXPECT(p.size() == 4 && w[0] == 7);
}

struct tallied {
    explicit tallied(int v) : value(v)
    {
        if (++live == limit)
            throw std::runtime_error("one too many");
    }
    tallied(const tallied &)            = delete;
    tallied &operator=(const tallied &) = delete;
    ~tallied()
    {
        live--;
    }
    int               value;
    static inline int live = 0, limit = -1;
};

void elements_are_constructed_and_destroyed()
{
    managedDummySwap    swap(mib);
    cyclicManagedMemory manager(&swap, mib);
    {
        managedPtr<tallied> p(5, 3), copy(p);
        ADHERETOLOC(tallied, copy, x);
        EXPECT(tallied::live == 5 && x[4].value == 3);
    }
    EXPECT(tallied::live == 0);
    tallied::limit = 3;
    bool is_thrown = false;
    try {
        managedPtr<tallied> p(5, 3);
    } catch (const std::runtime_error &) {
        is_thrown = true;
    }
    tallied::live -= 1; /* the one whose constructor threw */
    tallied::limit = -1;
    EXPECT(is_thrown && tallied::live == 0 && manager.getUsedMemory() == 0);
}

void dimensions_share_their_rows()
{
    managedDummySwap    swap(mib);
    cyclicManagedMemory manager(&swap, mib);
    managedPtr<int, 3>  cube(3, 4, 5);
    managedPtr<int, 3>  same(cube);

    for (unsigned i = 0; i < 3; i++)
        for (unsigned j = 0; j < 4; j++) {
            adhereTo<int> a(cube[i][j]);
            int          *x = a;

            for (unsigned k = 0; k < 5; k++)
                x[k] = int(i * 20 + j * 5 + k);
        }
    const adhereTo<int> a(same[2][3]);
    const int          *x = a;
    EXPECT(x[4] == 59);
}

void limits_are_kept_and_change()
{
    managedDummySwap    swap(80);
    cyclicManagedMemory manager(&swap, 80);
    managedPtr<double>  a(10, 1.0), b(10, 2.0);

    EXPECT(is_refused([] { managedPtr<double> c(10); }));
    EXPECT(is_refused([] { managedPtr<double> c(11); }));
    EXPECT(manager.setMemoryLimit(1000));
    EXPECT(manager.getUsedMemory() == 160 && swap.getUsedSwap() == 0);
    ADHERETOLOCCONST(double, b, x);
    EXPECT(x[9] == 2.0);
    EXPECT(!manager.setMemoryLimit(2000));
}

/* Files that may not grow: the objects cannot be copied to less memory than they take. */
void a_limit_that_cannot_be_met_changes_nothing()
{
    managedDummySwap             swap(0);
    cyclicManagedMemory          manager(&swap, 8 * mib);
    std::vector<managedPtr<int>> rows;
    rlimit                       usual{}, low{};
    int                          wrong = 0;

    for (int i = 0; i < 24; i++)
        rows.emplace_back(256 * kib / sizeof(int), i);
    (void)std::signal(SIGXFSZ, SIG_IGN);
    (void)getrlimit(RLIMIT_FSIZE, &usual);
    low          = usual;
    low.rlim_cur = 3 * mib;
    (void)setrlimit(RLIMIT_FSIZE, &low);
    EXPECT(is_refused([&] { (void)manager.setMemoryLimit(2 * mib); }));
    (void)setrlimit(RLIMIT_FSIZE, &usual);
    EXPECT(manager.getMemoryLimit() == 8 * mib && manager.checkCycle());
    for (int i = 0; i < 24; i++) {
        managedPtr<int> &row = rows[std::size_t(i)];

        ADHERETOLOC(int, row, x);
        wrong += x[0] != i;
    }
    EXPECT(wrong == 0 && manager.getUsedMemory() == 6 * mib);
}

/* What stays pinned of small objects must not hold all blocks, of which each has many objects. */
void small_objects_far_apart_leave_room()
{
    constexpr std::size_t        n = 2048;
    managedFileSwap              swap(16 * mib, "rambrainswap-%d-%d");
    cyclicManagedMemory          manager(&swap, 4 * mib);
    std::vector<managedPtr<int>> objects;
    int                          wrong = 0;

    for (std::size_t i = 0; i < n; i++)
        objects.emplace_back(8 * kib / sizeof(int), int(i));
    for (std::size_t k = 0; k < n; k++) {
        std::size_t      at     = k * 997 % n;
        managedPtr<int> &object = objects[at];

        ADHERETOLOC(int, object, x);
        wrong += x[2047] != int(at);
    }
    EXPECT(wrong == 0);
}

/* Each second object is in use: they are half of the memory, and parts of all blocks. */
void half_of_memory_can_be_in_use_wherever_it_is()
{
    constexpr std::size_t          n = 1024, length = 8 * kib / sizeof(int);
    managedFileSwap                swap(16 * mib, "rambrainswap-%d-%d");
    cyclicManagedMemory            manager(&swap, 4 * mib);
    std::vector<managedPtr<int>>   objects;
    std::vector<std::future<bool>> threads;

    for (std::size_t i = 0; i < n; i++)
        objects.emplace_back(length, int(i));
    for (std::size_t t = 0; t < 2; t++)
        threads.push_back(std::async(std::launch::async, [&objects, t] {
            std::vector<std::unique_ptr<adhereTo<int>>> in_use;
            bool                                        is_right = true;

            for (std::size_t i = t * n / 2; i < (t + 1) * n / 2; i += 4) {
                in_use.push_back(std::make_unique<adhereTo<int>>(objects[i]));
                static_cast<int *>(*in_use.back())[length - 1] += 1;
            }
            for (std::size_t k = 0; k < in_use.size(); k++)
                is_right &= in_use[k]->get()[0] == int(t * n / 2 + k * 4);
            return is_right;
        }));
    for (std::future<bool> &thread : threads)
        EXPECT(thread.get());
    for (std::size_t i = 0; i < n; i++) {
        const adhereTo<int> a(objects[i]);
        const int          *x = a;

        EXPECT(x[0] == int(i) && x[length - 1] == int(i) + (i % 4 == 0));
    }
    EXPECT(manager.checkCycle());
}

/* Objects of a quarter of the memory, and how long to wait for what others hold. */
struct quarters {
    explicit quarters(const char *wait_ms = "30")
    {
        (void)usm_config_set("spill_wait", wait_ms);
        for (int i = 0; i < 8; i++)
            rows.emplace_back(mib / sizeof(int), i);
    }
    ~quarters()
    {
        rows.clear();
        (void)usm_config_set("spill_wait", nullptr);
    }
    managedFileSwap              swap{16 * mib, "rambrainswap-%d-%d"};
    cyclicManagedMemory          manager{&swap, 4 * mib};
    std::vector<managedPtr<int>> rows;
};

/* A thread has all memory for a while, another one waits for some of it. */
void wait_for_the_other(quarters &q)
{
    std::promise<void> all_held;
    std::thread        holder([&] {
        std::vector<adhereTo<int>> held(q.rows.begin(), q.rows.begin() + 4);

        for (adhereTo<int> &each : held)
            (void)static_cast<int *>(each);
        all_held.set_value();
        std::this_thread::sleep_for(std::chrono::milliseconds(200));
    });

    all_held.get_future().wait();
    {
        const adhereTo<int> a(q.rows[4]);
        const int          *x = a;

        EXPECT(x[0] == 4);
    }
    holder.join();
}

void a_thread_waits_as_long_as_others_can_leave()
{
    quarters q;

    wait_for_the_other(q);
}

/* Not only when the wait of an hour has ended. */
void what_others_leave_is_free_at_once()
{
    quarters q("3600000");

    wait_for_the_other(q);
}

/* Two threads of which each has half of the memory and waits for the other's: how many fail. */
int refused_of_two(quarters &q)
{
    std::vector<std::future<bool>> threads;
    std::atomic<int>               ready{0};

    for (std::size_t t = 0; t < 2; t++)
        threads.push_back(std::async(std::launch::async, [&q, &ready, t] {
            const auto first      = q.rows.begin() + std::ptrdiff_t(4 * t);
            const bool has_failed = is_refused([&] {
                std::vector<adhereTo<int>> own(first, first + 2);

                for (adhereTo<int> &each : own)
                    (void)static_cast<int *>(each);
                for (ready++; ready < 2;)
                    std::this_thread::yield();
                std::vector<adhereTo<int>> more(first + 2, first + 4);
                for (adhereTo<int> &each : more)
                    (void)static_cast<int *>(each);
            });

            ready = 2; /* the other one does not wait for who failed before */
            return has_failed;
        }));
    return threads[0].get() + threads[1].get();
}

/* A thread alone, and two that wait for each other: one of them gets what the other had.  A third one
 * holds the manager's lock most of the time, so that much happens between a thread's failure and its
 * turn to look. */
void who_would_wait_forever_fails()
{
    quarters                     q("1");
    std::vector<managedPtr<int>> many(20000);
    std::atomic<bool>            is_over{false};
    int                          both_failed = 0;

    EXPECT(is_refused([&] {
        std::vector<adhereTo<int>> all(q.rows.begin(), q.rows.end());

        for (adhereTo<int> &each : all)
            (void)static_cast<int *>(each);
    }));
    std::thread slow([&] {
        for (; !is_over; std::this_thread::sleep_for(std::chrono::microseconds(20)))
            (void)q.manager.checkCycle();
    });
    for (int i = 0; i < 50; i++)
        both_failed += refused_of_two(q) == 2;
    is_over = true;
    slow.join();
    EXPECT(both_failed == 0);
    EXPECT(q.manager.checkCycle());
}

void the_configuration_file_is_read()
{
    const char   *folder = std::getenv("TMPDIR");
    std::string   path   = std::string(folder ? folder : "/tmp") + "/usm-rambrain.conf";
    configReader  reader;
    std::ofstream out(path);

    out << "[" << reader.getApplicationName() << "]\nswapMemory = 1.5 kB # mine\n\n"
        << "[default]\nmemory = 5GB\nswapMemory=7\nunknown = 1\n[another]\nmemory = 1\n";
    out.close();
    reader.setCustomConfigPath(path);
    EXPECT(reader.getConfig().memory.value == 5 * gig);
    EXPECT(reader.getConfig().swapMemory.value == 1536);
    EXPECT(reader.getConfig().policy.value == swapPolicy::autoextendable);
    (void)std::remove(path.c_str());
}

void managers_replace_each_other()
{
    managedMemory *first = managedMemory::defaultManager;
    {
        dummyManagedMemory none;
        EXPECT(managedMemory::defaultManager == &none);
        EXPECT(is_refused([] { managedPtr<int> p(1); }));
    }
    EXPECT(first && managedMemory::defaultManager == first);
}

int cases_of_rambrain()
{
    return check::run(rows_outgrow_memory_in_four_threads, an_adherence_says_what_it_does,
                      elements_are_constructed_and_destroyed, dimensions_share_their_rows,
                      limits_are_kept_and_change, a_limit_that_cannot_be_met_changes_nothing,
 small_objects_far_apart_leave_room,
                      half_of_memory_can_be_in_use_wherever_it_is,
                      a_thread_waits_as_long_as_others_can_leave, what_others_leave_is_free_at_once, who_would_wait_forever_fails,
                      the_configuration_file_is_read, managers_replace_each_other);
}

} // namespace
