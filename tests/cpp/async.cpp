/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Stream-ordered allocation in the C++ face; each case is a sentence.  Runs on the host's device.
 */
#include "check.hpp"

#include <usm/usm.hpp>

#include <utility>
#include <vector>

namespace
{

using check::thrown;

std::uint64_t used(const usm::pool_ref &pool)
{
    return pool.attribute(USM_POOL_USED_CURRENT);
}

void a_block_is_usable_by_later_commands_and_free_when_they_have_ended()
{
    usm::queue       q;
    std::vector<int> out(1000);
    int             *p = static_cast<int *>(usm::async_malloc(q, USM_DEVICE, 4000));

    EXPECT(usm::get_pointer_type(p) == USM_DEVICE);
    q.fill(p, 3, 1000);
    q.memcpy(out.data(), p, 4000);
    usm::async_free(q, p);
    q.wait();
    EXPECT(out[0] == 3 && out[999] == 3);
    EXPECT(thrown([&] { usm::async_free(q, p); }) == USM_E_DOUBLE_FREE);
    EXPECT(thrown([&] { usm::async_free(q, &out); }) == USM_E_INVALID_POINTER);
    usm::async_free(q, nullptr);
}

void a_pool_is_named()
{
    usm::queue    q;
    usm_pool_desc desc = USM_POOL_DESC_INIT;
    desc.threshold     = 1 << 20;
    usm::pool pool(q, USM_SHARED, desc);

    EXPECT(pool.attribute(USM_POOL_THRESHOLD) == 1 << 20);
    pool.set_attribute(USM_POOL_THRESHOLD, 2 << 20);
    EXPECT(pool.attribute(USM_POOL_THRESHOLD) == 2 << 20);
    EXPECT(thrown([&] { pool.set_attribute(USM_POOL_MAXIMUM_SIZE, 1); }) == USM_E_INVALID);
    void *p = usm::async_malloc_from_pool(q, 100000, pool);
    EXPECT(used(pool) >= 100000 && usm::get_pointer_type(p) == USM_SHARED);
    usm::async_free(q, p);
    EXPECT(used(pool) == 0);
    q.wait();
}

void dependencies_order_a_queue_that_has_no_order()
{
    usm::queue       q(USM_QUEUE_OUT_OF_ORDER);
    std::vector<int> out(100, 0);
    usm::event       gate = usm::event::create(), made;
    int             *p    = static_cast<int *>(usm::async_malloc(q, USM_DEVICE, 400, gate, &made));

    usm::event filled = q.fill(p, 5, 100, made);
    usm::event copied = q.memcpy(out.data(), p, 400, filled);
    usm::event freed  = usm::async_free(q, p, {copied});
    EXPECT(!freed.is_complete() && out[0] == 0);
    gate.signal();
    freed.wait();
    q.wait();
    EXPECT(out[99] == 5);
}

void an_owner_frees_in_the_order_of_its_queue()
{
    usm::queue q;
    usm::event gate = usm::event::create(q.context());
    int        last = 0;
    const int *was  = nullptr;
    {
        usm::async_ptr<int[]> a = usm::async_alloc<int>(q, 1000, USM_SHARED);
        usm::async_ptr<int[]> b = std::move(a);

        was = b.get();
        EXPECT(a == nullptr && was != nullptr);
        q.barrier({gate});
        q.fill(b.get(), 8, 1000);
        q.memcpy(&last, b.get() + 999, sizeof last);
    } /* the commands have not run */
    EXPECT(last == 0 && usm::get_pointer_type(was) == USM_UNKNOWN);
    gate.signal();
    q.wait();
    EXPECT(last == 8);
}

void no_memory_is_an_exception()
{
    usm::queue q;

    EXPECT(thrown([&] { (void)usm::async_malloc(q, USM_DEVICE, SIZE_MAX / 2); }) != USM_OK);
    EXPECT(thrown([&] { (void)usm::async_alloc<double>(q, SIZE_MAX / 2); }) == USM_E_SIZE);
    EXPECT(thrown([&] { (void)usm::async_malloc(q, USM_UNKNOWN, 1); }) == USM_E_KIND);
}

} // namespace

int cases_of_async()
{
    return check::run(a_block_is_usable_by_later_commands_and_free_when_they_have_ended,
                      a_pool_is_named, dependencies_order_a_queue_that_has_no_order,
                      an_owner_frees_in_the_order_of_its_queue, no_memory_is_an_exception);
}
