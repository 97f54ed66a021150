/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* What usm/usm.hpp promises of buffers, and of blocks that have owners; each case is a sentence. */
#include "check.hpp"

#include <usm/usm.hpp>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <numeric>
#include <string>
#include <thread>
#include <unistd.h>

namespace
{

using check::thrown;

void own_memory_keeps_what_is_written()
{
    usm::buffer<int> buf(1000);

    EXPECT(buf.size() == 1000);
    {
        usm::host_access a(buf, usm::write | usm::no_init);

        EXPECT(a.size() == 1000);
        std::iota(a.begin(), a.end(), 7);
    }
    int sum = 0;

    for (int x : usm::host_access(buf, 10, 3, usm::read))
        sum += x;
    EXPECT(sum == 17 + 18 + 19);
}

void readers_see_const_elements()
{
    usm::buffer<double>                         buf(8);
    usm::host_access<double, USM_WRITE_NO_INIT> w(buf, usm::write | usm::no_init);

    std::fill(w.begin(), w.end(), 2.5);
    w.end_access();
    EXPECT(!w.is_open());

    usm::host_access r(buf, usm::read);

    static_assert(std::is_same_v<decltype(r.data()), const double *>);
    static_assert(std::is_same_v<decltype(w.data()), double *>);
    static_assert(!std::is_copy_constructible_v<decltype(r)>);
    static_assert(std::is_nothrow_move_constructible_v<decltype(r)>);
    EXPECT(r[7] == 2.5);
    EXPECT(std::accumulate(std::begin(r), std::end(r), 0.0) == 20.0);
    bool out_of_range = false;

    try {
        (void)r.at(8);
    } catch (const std::out_of_range &) {
        out_of_range = true;
    }
    EXPECT(out_of_range);
}

void user_memory_is_used_in_place()
{
    std::vector<float> v(100, 1.0f);
    {
        usm::buffer      buf(v.data(), v.size());
        usm::host_access a(buf, 50, usm::all, usm::read_write);

        EXPECT(a.data() == v.data() + 50);
        EXPECT(a.size() == 50);
        a[0] += 1.0f;
    }
    EXPECT(v[50] == 2.0f && v[49] == 1.0f && v[51] == 1.0f);
}

void const_memory_is_not_written()
{
    const std::vector<int> v = {1, 2, 3};
    {
        usm::buffer      buf(v);
        usm::host_access a(buf, usm::read_write);

        EXPECT(a[2] == 3);
        a[2] = 9;
    }
    EXPECT(v[2] == 3);
}

void a_vector_that_goes_is_copied()
{
    usm::buffer buf(std::vector<int>{4, 5, 6});

    EXPECT(usm::host_access(buf, usm::read)[1] == 5);
}

void a_vector_that_stays_gets_the_final_content()
{
    std::vector<int> v(10, 1);
    std::vector<int> copy(10);
    {
        usm::buffer<int> buf(v);

        std::fill_n(usm::host_access(buf, usm::write).begin(), 10, 3);
        buf.set_final_data(copy.data());
    }
    EXPECT(copy[9] == 3);
}

void sub_buffers_share_bytes()
{
    usm::buffer<int> buf(100);

    std::iota(usm::host_access(buf, usm::write | usm::no_init).begin(),
              usm::host_access(buf, usm::write).end(), 0);
    usm::buffer<int> part = buf.sub(40, 20);

    EXPECT(part.size() == 20);
    usm::host_access(part, usm::read_write)[5] = -1;
    EXPECT(usm::host_access(buf, usm::read)[45] == -1);
    EXPECT(usm::host_access(part, usm::read)[6] == 46);
}

void moving_moves_the_owner()
{
    usm::buffer<int> a(10), b(20);
    usm_buffer      *raw = a.get();

    b = std::move(a);
    EXPECT(b.get() == raw && a.get() == nullptr);

    usm::host_access first(b, usm::write | usm::no_init);
    usm::host_access second = std::move(first);

    EXPECT(second.is_open() && !first.is_open());
    second[0]                = 1;
    usm::buffer<int> adopted = usm::buffer<int>::adopt(usm_buffer_new(nullptr, 16));
    EXPECT(adopted.size() == 4);
}

void several_are_opened_at_once()
{
    usm::buffer<int>    a(10);
    usm::buffer<double> b(10);

    std::fill_n(usm::host_access(a, usm::write | usm::no_init).begin(), 10, 4);
    {
        auto [in, out] =
            usm::access_many(a.range(usm::read), b.range(0, 5, usm::write | usm::no_init));

        static_assert(std::is_same_v<decltype(in.data()), const int *>);
        EXPECT(in.size() == 10 && out.size() == 5);
        out[4] = in[4] * 0.5;
    }
    EXPECT(usm::host_access(b, usm::read)[4] == 2.0);

    std::vector<usm::range<int, USM_READ>> list = {a.range(0, 2, usm::read),
                                                   a.range(8, 2, usm::read)};
    usm::announce(list);
    auto both = usm::access_many(list);

    EXPECT(both.size() == 2 && both[1][1] == 4);
    EXPECT(both[1].data() - both[0].data() == 8);
    both.clear();
    usm::announce(); /* withdraws it */
}

void failures_are_exceptions_with_their_status()
{
    usm::buffer<int> buf(10);

    EXPECT(thrown([&] { usm::host_access a(buf, 5, 6, usm::read); }) == USM_E_INVALID);
    EXPECT(thrown([&] { (void)buf.sub(0, 11); }) != USM_OK);
    EXPECT(thrown([] { usm::buffer<int> none(0); }) == USM_E_INVALID);
    EXPECT(thrown([] { usm::buffer<double> huge(SIZE_MAX / 2); }) == USM_E_SIZE);
    EXPECT(thrown([] { (void)usm::buffer<int>::open("/nonexistent-folder/file", usm::read); }) ==
           USM_E_IO);
    EXPECT(thrown([&] { buf.commit(); }) == USM_E_NOT_SUPPORTED);
    try {
        (void)buf.range(11, 1, usm::read);
        EXPECT(false);
    } catch (const std::runtime_error &e) {
        EXPECT(std::strstr(e.what(), "USM_E_INVALID") == e.what());
        EXPECT(std::strstr(e.what(), "a buffer of 10") != nullptr);
    }
}

void a_buffer_lives_in_a_file()
{
    const char *tmp  = std::getenv("TMPDIR");
    std::string path = std::string(tmp != nullptr ? tmp : "/tmp") + "/usm-hpp-XXXXXX";
    int         fd   = mkstemp(path.data());

    EXPECT(fd >= 0);
    close(fd);
    {
        auto buf = usm::buffer<int>::open(path, usm::read_write | usm::no_init, 0, 5000);

        std::iota(usm::host_access(buf, usm::write).begin(),
                  usm::host_access(buf, usm::write).end(), 1);
        buf.commit();
        usm::host_access(buf, usm::write)[0] = 77; /* not committed: dropped */
    }
    {
        auto buf = usm::buffer<int>::open(path, usm::read);

        EXPECT(buf.size() == 5000);
        EXPECT(usm::host_access(buf, usm::read)[0] == 1);
        EXPECT(usm::host_access(buf, usm::read)[4999] == 5000);
        EXPECT(thrown([&] { usm::host_access a(buf, usm::write); }) == USM_E_READ_ONLY);
    }
    unlink(path.c_str());
    unlink((path + ".usm-journal").c_str());
}

/* Squares; throws where it is told to. */
class squares : public usm::home
{
  public:
    explicit squares(int *closed, bool throws) : closed_(closed), throws_(throws)
    {
    }
    ~squares() override
    {
        ++*closed_;
    }
    void read(std::uint64_t offset, void *data, std::size_t size) override
    {
        auto *out = static_cast<std::uint64_t *>(data);

        if (throws_)
            throw std::runtime_error("the well is dry");
        for (std::size_t i = 0; i < size / 8; i++)
            out[i] = (offset / 8 + i) * (offset / 8 + i);
    }

  private:
    int *closed_;
    bool throws_;
};

void a_home_is_a_class_whose_exceptions_become_failures()
{
    int closed = 0;
    {
        usm::buffer<std::uint64_t> good(std::make_unique<squares>(&closed, false), 100000, false);
        usm::buffer<std::uint64_t> bad(std::make_unique<squares>(&closed, true), 1000, false);

        EXPECT(usm::host_access(good, usm::read)[90000] == 8100000000u);
        EXPECT(thrown([&] { usm::host_access a(good, usm::write); }) == USM_E_READ_ONLY);
        try {
            usm::host_access a(bad, usm::read);
            EXPECT(false);
        } catch (const usm::error &e) {
            EXPECT(e.status() == USM_E_IO);
            EXPECT(std::strstr(e.what(), "the well is dry") != nullptr);
        }
        EXPECT(closed == 0);
    }
    EXPECT(closed == 2);
}

extern "C" void add_one(const usm_range *range, void *const *args);

void add_one(const usm_range *range, void *const *args)
{
    int *x = *static_cast<int *const *>(args[0]);

    for (std::size_t i = range->begin[0]; i < range->end[0]; i++)
        x[i]++;
}

void commands_take_accessors()
{
    usm_queue       *q = usm_default_queue();
    usm::buffer<int> a(1000), b(1000);

    EXPECT(q != nullptr);
    usm::fill(q, usm::accessor(a, usm::write | usm::no_init), 5);
    usm::copy(q, usm::accessor(b, 0, 500, usm::write), usm::accessor(a, 500, 500, usm::read));
    usm::fill(q, usm::accessor(b, 500, 500, usm::write), 6);

    static const usm_native_kernel natives[] = {{"add_one", add_one, 1, nullptr}};
    usm_image                      image     = {USM_IMAGE_NATIVE, natives, sizeof natives};
    usm_program_desc               desc      = USM_PROGRAM_DESC_INIT;
    usm_program                   *program;
    usm_kernel                    *kernel;

    desc.images  = &image;
    desc.nimages = 1;
    usm::check(usm_program_create(usm_queue_get_context(q), &desc, &program));
    usm::check(usm_kernel_create(program, "add_one", &kernel));

    usm::accessor part(b, 100, 600, usm::read_write);
    usm_arg       args[] = {part.arg()};
    usm_launch    launch = USM_LAUNCH_INIT;

    launch.kernel    = kernel;
    launch.global[0] = 600;
    launch.nargs     = 1;
    launch.args      = args;
    usm::check(usm_queue_submit(q, &launch, 0, nullptr, nullptr));

    usm::host_access r(b, usm::read); /* waits for all of them */

    EXPECT(r[99] == 5 && r[100] == 6 && r[499] == 6 && r[500] == 7 && r[699] == 7 && r[700] == 6);
    r.end_access();
    usm_kernel_destroy(kernel);
    usm_program_destroy(program);
}

void blocks_have_owners()
{
    usm::unique_ptr<int[]> p = usm::alloc<int>(10, USM_SHARED);

    p[9] = 1;
    EXPECT(usm_get_pointer_type(p.get(), nullptr) == USM_SHARED);
    int *raw = p.get();

    p.reset();
    EXPECT(usm_get_pointer_type(raw, nullptr) == USM_UNKNOWN);
    EXPECT(thrown([] { (void)usm::alloc<char>(SIZE_MAX / 2, USM_SHARED); }) != USM_OK);
}

} // namespace

int cases_of_buffers()
{
    return check::run(own_memory_keeps_what_is_written, readers_see_const_elements,
                      user_memory_is_used_in_place, const_memory_is_not_written,
                      a_vector_that_goes_is_copied, a_vector_that_stays_gets_the_final_content,
                      sub_buffers_share_bytes, moving_moves_the_owner, several_are_opened_at_once,
                      failures_are_exceptions_with_their_status, a_buffer_lives_in_a_file,
                      a_home_is_a_class_whose_exceptions_become_failures, commands_take_accessors,
                      blocks_have_owners);
}
