/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Allocation in the C++ face: SYCL's functions, owners, pools, the allocator and the memory
 * resource of the standard library; each case is a sentence.  Runs on the host's device. */
#include "check.hpp"

#include <usm/usm.hpp>

#include <cstdint>
#include <deque>
#include <list>
#include <map>
#include <memory_resource>
#include <new>
#include <numeric>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

namespace
{

using check::thrown;
template <class T> using shared = usm::allocator<T, USM_SHARED>;
template <class T> using host   = usm::allocator<T, USM_HOST>;
using shared_vector             = std::vector<int, shared<int>>;

void memory_comes_by_type_and_count()
{
    usm::queue q;

    for (usm_kind kind : {USM_HOST, USM_DEVICE, USM_SHARED}) {
        double *p = usm::malloc<double>(100, q, kind);

        EXPECT(p != nullptr && usm::get_pointer_type(p + 99, q.context()) == kind);
        EXPECT(usm_usable_size(p) >= 800);
        EXPECT(usm::get_pointer_device(p) == q.device());
        usm::free(p, q.context());
        EXPECT(usm::get_pointer_type(p) == USM_UNKNOWN);
        EXPECT(thrown([&] { usm::free(p); }) == USM_E_DOUBLE_FREE);
    }
    int *h = usm::malloc_host<int>(1, q), *d = usm::malloc_device<int>(1, q),
        *s = usm::malloc_shared<int>(1, q);
    EXPECT(usm::get_pointer_type(h) == USM_HOST && usm::get_pointer_type(d) == USM_DEVICE &&
           usm::get_pointer_type(s) == USM_SHARED);
    usm::free(h);
    usm::free(d);
    usm::free(s);
    usm::free(nullptr);
    EXPECT(usm::malloc_shared<double>(SIZE_MAX / 4, q) == nullptr);
    EXPECT(usm::malloc_shared<double>(SIZE_MAX / 16, q) == nullptr);
    struct alignas(256) wide {
        char bytes[256];
    };
    wide *w = usm::malloc_shared<wide>(3, q);
    EXPECT(reinterpret_cast<std::uintptr_t>(w) % 256 == 0);
    usm::free(w);
    int local = 0;
    EXPECT(thrown([&] { usm::free(&local); }) == USM_E_INVALID_POINTER);
    EXPECT(thrown([&] { (void)usm::get_pointer_device(&local); }) == USM_E_INVALID_POINTER);
}

struct tracked {
    static inline int live = 0;

    explicit tracked(int x) : value(x)
    {
        if (x < 0)
            throw std::runtime_error("no negative ones");
        live++;
    }
    tracked(const tracked &)            = delete;
    tracked &operator=(const tracked &) = delete;
    ~tracked()
    {
        live--;
    }
    int value;
};

void objects_have_owners()
{
    const usm_pool_stats before = usm::default_pool(usm::default_context(), {}, USM_SHARED).stats();
    {
        auto a = usm::make_unique<tracked>(7);
        auto b = usm::make_unique<tracked, USM_HOST>(8);
        auto c = usm::make_unique<int[]>(1000);

        EXPECT(tracked::live == 2 && a->value == 7 && b->value == 8);
        EXPECT(usm::get_pointer_type(a.get()) == USM_SHARED);
        EXPECT(usm::get_pointer_type(b.get()) == USM_HOST);
        EXPECT(std::accumulate(c.get(), c.get() + 1000, 0) == 0);
        auto moved = std::move(a);
        EXPECT(a == nullptr && tracked::live == 2);
        usm::object_ptr<const int> constant = usm::make_unique<const int>(3);
        EXPECT(*constant == 3);
        bool threw = false;
        try {
            (void)usm::make_unique<tracked>(-1);
        } catch (const std::runtime_error &) {
            threw = true;
        }
        EXPECT(threw && tracked::live == 2);
    }
    EXPECT(tracked::live == 0);
    EXPECT(usm::default_pool(usm::default_context(), {}, USM_SHARED).stats().live == before.live);
    EXPECT(thrown([] { (void)usm::make_unique<char[]>(SIZE_MAX / 2); }) != USM_OK);
    EXPECT(thrown([] { (void)usm::make_unique<double[]>(SIZE_MAX / 2); }) == USM_E_SIZE);
}

void pools_are_owned_and_borrowed()
{
    usm::queue    q;
    usm_pool_desc desc = USM_POOL_DESC_INIT;

    desc.name = "slab";
    usm::pool     a(q, USM_SHARED, desc), b(q.context(), q.device(), USM_DEVICE);
    usm::pool_ref r = a;
    void         *p = a.malloc(1000), *d = b.aligned_alloc(4096, 10);

    EXPECT(p != nullptr && usm::get_pointer_type(p) == USM_SHARED);
    EXPECT(d != nullptr && reinterpret_cast<std::uintptr_t>(d) % 4096 == 0);
    EXPECT(a.kind() == USM_SHARED && a.context() == q.context() && a.device() == q.device());
    EXPECT(a.stats().live >= 1000 && r == a && r != b);
    r.free(p);
    b.free(d);
    EXPECT(a.stats().live == 0);
    b = std::move(a);
    EXPECT(b == r && a.get() == nullptr);
    r.trim_to(0);
    EXPECT(b.stats().reserved == 0);
    usm::pool c = usm::pool::adopt(b.release());
    EXPECT(b.get() == nullptr && c == r);
    EXPECT(usm::default_pool(q.context(), q.device(), USM_HOST).kind() == USM_HOST);
    desc.name = "none of that name";
    EXPECT(thrown([&] { usm::pool none(q, USM_HOST, desc); }) == USM_E_NO_BACKEND);
}

/* What sycl::usm_allocator promises. */
void allocators_are_equal_as_sycls_are()
{
    usm::context other;
    usm::queue   q, elsewhere(other);

    EXPECT(shared<int>() == shared<int>(q) && shared<int>(q) == shared<double>(q));
    EXPECT(shared<int>(q) == shared<int>(q.context(), q.device()));
    EXPECT(shared<int>({}, {}) == shared<int>() &&
           shared<int>(other, {}) == shared<int>(elsewhere));
    EXPECT(!(shared<int>(q) == host<int>(q)) && shared<int>(q) != host<double>(q));
    EXPECT(shared<int>(q) != shared<int>(elsewhere));
    EXPECT((usm::allocator<int, USM_HOST, 64>(q) != host<int>(q)));
    EXPECT(shared<int>(shared<double>(elsewhere)).context() == other);
    using traits = std::allocator_traits<shared<int>>;
    static_assert(std::is_same_v<traits::rebind_alloc<double>, shared<double>>);
    static_assert(traits::propagate_on_container_copy_assignment::value &&
                  traits::propagate_on_container_move_assignment::value &&
                  traits::propagate_on_container_swap::value && !traits::is_always_equal::value);
    static_assert(std::is_convertible_v<const usm::queue &, shared<int>>);
    static_assert(std::is_nothrow_copy_constructible_v<shared<int>>);
    usm::allocator<char, USM_SHARED, 4096> pages(q);
    char                                  *p = pages.allocate(1);
    EXPECT(reinterpret_cast<std::uintptr_t>(p) % 4096 == 0);
    pages.deallocate(p, 1);
}

void containers_hold_memory_of_a_device()
{
    usm::context  other;
    usm::queue    q(other);
    shared_vector v(1000, 1, q), w;

    v.insert(v.begin() + 500, 3000, 2);
    EXPECT(std::accumulate(v.begin(), v.end(), 0) == 7000);
    EXPECT(usm::get_pointer_type(v.data(), other) == USM_SHARED);
    EXPECT(w.get_allocator() != v.get_allocator());
    w = v;
    EXPECT(w.get_allocator() == v.get_allocator() && w == v && w.data() != v.data());
    int          *raw = v.data();
    shared_vector u;
    u = std::move(v);
    EXPECT(u.data() == raw && u.get_allocator().context() == other);
    shared_vector x(10, 3);
    std::swap(x, u);
    EXPECT(x.data() == raw && u.get_allocator().context() == usm::default_context());

    std::list<std::string, host<std::string>> l = {"a", "list", "of", "texts"};
    std::map<int, int, std::less<>, shared<std::pair<const int, int>>> m;
    std::basic_string<char, std::char_traits<char>, host<char>>        text(100, 'x');
    std::unordered_map<int, double, std::hash<int>, std::equal_to<>,
                       shared<std::pair<const int, double>>>
                               u_map;
    std::deque<int, host<int>> d;
    auto                       pointer = std::allocate_shared<int>(shared<int>(), 5);
    for (int i = 0; i < 100; i++) {
        m[i]     = i;
        u_map[i] = i;
        d.push_front(i);
    }
    EXPECT(l.back() == "texts" && m.size() == 100 && u_map.at(99) > 98 && d[0] == 99);
    EXPECT(usm::get_pointer_type(text.data()) == USM_HOST && *pointer == 5);
    EXPECT(usm::get_pointer_type(pointer.get()) == USM_SHARED);
    EXPECT(usm::get_pointer_type(&m.begin()->second) == USM_SHARED);
    q.fill(x.data(), 9, x.size()).wait(); /* commands reach it */
    EXPECT(x[3999] == 9);
}

template <class F> bool throws_bad_alloc(F &&fn)
{
    try {
        fn();
    } catch (const std::bad_alloc &) {
        return true;
    }
    return false;
}

void containers_that_get_no_memory_throw_bad_alloc()
{
    shared<char> a;

    EXPECT(throws_bad_alloc([&] { (void)a.allocate(SIZE_MAX / 2); }));
    EXPECT(throws_bad_alloc([&] { (void)shared<double>().allocate(SIZE_MAX / 2); }));
    try {
        (void)a.allocate(SIZE_MAX / 2);
    } catch (const usm::bad_alloc &e) {
        EXPECT(e.status() != USM_OK && std::string(e.what()) == usm_status_name(e.status()));
    }
    usm_context_desc desc = USM_CONTEXT_DESC_INIT;
    desc.host_limit       = 16 << 20;
    usm::context           small(desc);
    usm::pool              pool(small, {}, USM_HOST);
    usm::pool_resource     mem(pool);
    std::pmr::vector<char> v(&mem);
    EXPECT(throws_bad_alloc([&] { v.resize(64 << 20); }));
    v.resize(1 << 20);
    EXPECT(v.size() == 1 << 20);
    EXPECT(thrown([&] { (void)mem.allocate(100, std::size_t(4) << 20); }) == USM_E_ALIGNMENT);
}

void a_pool_is_a_memory_resource()
{
    usm::queue         q;
    usm::pool          pool(q, USM_SHARED), another(q, USM_SHARED);
    usm::pool_resource mem(pool), same(pool), other(another);
    {
        std::pmr::vector<int>                v(1000, 5, &mem);
        std::pmr::list<int>                  l(v.begin(), v.end(), &same);
        std::pmr::map<int, std::pmr::string> m(&mem);

        m[1] = "a text that is longer than what a string keeps in itself";
        EXPECT(usm::get_pointer_type(v.data()) == USM_SHARED);
        EXPECT(usm::get_pointer_type(&l.back()) == USM_SHARED);
        EXPECT(usm::get_pointer_type(m[1].data()) == USM_SHARED);
        EXPECT(pool.stats().live >= 1000 * sizeof(int) * 2 && another.stats().live == 0);
        std::pmr::vector<int> w(&other);
        w = v; /* its own resource stays */
        EXPECT(another.stats().live >= 4000);
        std::pmr::vector<int> moved(std::move(v), &same); /* equal: nothing is copied */
        EXPECT(moved.size() == 1000 && v.empty());
    }
    EXPECT(pool.stats().live == 0 && another.stats().live == 0);
    EXPECT(mem == same && mem != other && mem.pool() == pool);
    EXPECT(!mem.is_equal(*std::pmr::new_delete_resource()));
    for (std::size_t align = 1; align <= std::size_t(2) << 20; align *= 2) {
        void *p = mem.allocate(24, align);

        EXPECT(reinterpret_cast<std::uintptr_t>(p) % align == 0);
        mem.deallocate(p, 24, align);
    }
    usm::pool closed(q, USM_DEVICE);
    EXPECT(thrown([&] { usm::pool_resource none(closed); }) == USM_E_KIND);
    EXPECT(pool.stats().live == 0);
}

void any_thread_allocates_and_any_frees()
{
    usm::queue         q;
    usm::pool          pool(q, USM_HOST);
    usm::pool_resource mem(pool);
    {
        std::vector<std::thread> threads;
        for (std::size_t t = 0; t < 4; t++)
            threads.emplace_back([&mem, t] {
                for (std::size_t i = 1; i < 300; i++) {
                    std::pmr::vector<std::size_t> v(i * 3, t, &mem);
                    shared_vector                 s(i, 1);
                    if (v.back() != t || s[i - 1] != 1)
                        check::failures++;
                }
            });
        for (std::thread &t : threads)
            t.join();
    }
    EXPECT(pool.stats().live == 0);
}

} // namespace

int cases_of_memory()
{
    return check::run(memory_comes_by_type_and_count, objects_have_owners,
                      pools_are_owned_and_borrowed, allocators_are_equal_as_sycls_are,
                      containers_hold_memory_of_a_device,
                      containers_that_get_no_memory_throw_bad_alloc, a_pool_is_a_memory_resource,
                      any_thread_allocates_and_any_frees);
}
