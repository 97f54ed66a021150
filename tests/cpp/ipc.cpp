/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Memory and events of other processes in the C++ face; each case is a sentence.  Runs on the
 * host's device; the other process is forked before the library is used, and ends by itself. */
#include "check.hpp"

#include <usm/usm.hpp>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <sys/wait.h>
#include <unistd.h>
#include <utility>
#include <vector>

namespace
{

using check::thrown;

static_assert(!std::is_copy_constructible_v<usm::ipc_memory> &&
              std::is_nothrow_move_constructible_v<usm::ipc_memory> &&
              std::is_nothrow_move_assignable_v<usm::ipc_memory>);
static_assert(!std::is_copy_constructible_v<usm::ipc_export> &&
              std::is_nothrow_move_constructible_v<usm::ipc_export>);
static_assert(std::is_nothrow_move_constructible_v<usm::ipc_event> &&
              !std::is_copy_constructible_v<usm::ipc_event>);

usm::pool exporting(const usm::queue_ref &q)
{
    usm_pool_desc desc = USM_POOL_DESC_INIT;

    desc.export_mode = USM_POOL_EXPORT_RW;
    return usm::pool(q, USM_HOST, desc);
}

/* What travels between the two. */
struct message {
    usm_ipc_handle memory, event;
};

struct other {
    pid_t pid;
    int   to, from;
};

template <class T> bool send(int fd, const T &what)
{
    return write(fd, &what, sizeof what) == static_cast<ssize_t>(sizeof what);
}
template <class T> bool receive(int fd, T &what)
{
    return read(fd, &what, sizeof what) == static_cast<ssize_t>(sizeof what);
}

/* The other process: adds one to what it is given, and signals. */
int serve(int in, int out)
{
    message m = {};

    if (!receive(in, m))
        return 3;
    try {
        usm::ipc_memory memory(m.memory);
        usm::ipc_memory again(m.memory);
        usm::ipc_event  event(m.event);
        int            *x = memory.as<int>();

        EXPECT(again.get() == x && memory.info().is_writable && !memory.info().is_ours);
        EXPECT(memory.info().owner == getppid() && memory.info().size >= 400);
        again = std::move(memory);
        EXPECT(memory.get() == nullptr);
        for (int i = 0; i < 100; i++)
            x[i]++;
        event.signal();
        EXPECT(send(out, 'd'));
        char closed = 0;
        EXPECT(receive(in, closed)); /* the owner has put its handle */
        EXPECT(thrown([&] { usm::ipc_memory late(m.memory); }) == USM_E_STALE);
    } catch (const std::exception &e) {
        std::fprintf(stderr, "the other process: %s\n", e.what());
        return 1;
    }
    return check::failures == 0 ? 0 : 1;
}

other start()
{
    int there[2], back[2];

    if (pipe(there) != 0 || pipe(back) != 0)
        std::exit(2);
    pid_t pid = fork();
    if (pid == 0) {
        (void)alarm(60);
        close(there[1]);
        close(back[0]);
        int rc = serve(there[0], back[1]);
        usm_shutdown();
        std::exit(rc);
    }
    close(there[0]);
    close(back[1]);
    return {pid, there[1], back[0]};
}

other peer = {};

void another_process_writes_through_a_handle()
{
    usm::queue      q;
    usm::pool       pool = exporting(q);
    int            *x    = static_cast<int *>(pool.malloc(400));
    usm::ipc_event  event;
    usm::ipc_export out(x);
    char            done = 0;

    for (int i = 0; i < 100; i++)
        x[i] = i;
    EXPECT(send(peer.to, message{out.handle(), event.handle()}));
    EXPECT(receive(peer.from, done) && done == 'd');
    EXPECT(event.wait_for(10000) && event.is_complete());
    EXPECT(x[0] == 1 && x[99] == 100);
    {
        usm::ipc_export moved = std::move(out);
    } /* the handle is put */
    EXPECT(send(peer.to, 'p'));
    int status = -1;
    EXPECT(waitpid(peer.pid, &status, 0) == peer.pid && WIFEXITED(status) &&
           WEXITSTATUS(status) == 0);
    pool.free(x);
}

void in_one_process_the_block_itself_is_opened()
{
    usm::queue     q;
    usm::pool      pool = exporting(q);
    char          *p    = static_cast<char *>(pool.malloc(1000));
    usm_ipc_handle kept = {};
    {
        usm::ipc_export out(p + 10);
        usm::ipc_memory in(out.handle());

        EXPECT(in.get() == p + 10 && in.info().is_ours);
        usm::ipc_memory moved = std::move(in);
        EXPECT(in.get() == nullptr && moved.as<char>() == p + 10);
        usm::ipc_export second(p);
        kept = second.release();
        EXPECT(usm_ipc_close(moved.release(), nullptr) == USM_OK);
    }
    usm::ipc_memory in(kept);
    EXPECT(in.get() == p);
    in = usm::ipc_memory(kept);
    EXPECT(usm_ipc_put(&kept, nullptr) == USM_OK);
    EXPECT(thrown([&] { usm::ipc_memory late(kept); }) == USM_E_STALE);
    usm_ipc_handle damaged = kept;
    damaged.bytes[40] ^= 1;
    EXPECT(thrown([&] { usm::ipc_memory bad(damaged); }) == USM_E_HANDLE);
    void *closed = usm_alloc_host(10);
    EXPECT(thrown([&] { usm::ipc_export none(closed); }) == USM_E_NOT_EXPORTABLE);
    usm_free(closed);
    usm_ipc_close(in.release(), nullptr);
    pool.free(p);
}

void nothing_stays_behind()
{
    usm_ipc_stats stats = USM_IPC_STATS_INIT;

    EXPECT(usm_ipc_get_stats(&stats) == USM_OK);
    EXPECT(stats.handles == 0 && stats.opened == 0 && stats.deferred == 0);
}

void events_order_queues()
{
    usm::queue     q;
    usm::ipc_event event;
    int            x    = 0;
    usm::event     gate = usm::event::create();

    q.barrier({gate});
    q.fill(&x, 4, 1);
    event.record(q);
    EXPECT(!event.is_complete() && !event.wait_for(1));
    usm::queue second;
    int        y    = 0;
    usm::event held = event.wait(second);
    usm::event last = second.memcpy(&y, &x, sizeof x);
    EXPECT(!held.is_complete());
    gate.signal();
    event.wait();
    last.wait();
    EXPECT(y == 4);
    usm::ipc_event moved = std::move(event);
    EXPECT(event.get() == nullptr && moved.is_complete());
}

void a_channel_of_one_meets_itself()
{
    const std::string      name = "usm-cpp-" + std::to_string(getpid());
    usm::ipc_channel       channel(name, 0, 1);
    const std::vector<int> all = channel.gather(42);

    EXPECT(all.size() == 1 && all[0] == 42 && channel.size() == 1 && channel.is_alive(0));
    channel.barrier();
    usm::ipc_channel moved = std::move(channel);
    moved.barrier();
    usm_ipc_channel_desc alone  = USM_IPC_CHANNEL_DESC_INIT;
    const std::string    lonely = name + "-alone";
    alone.name                  = lonely.c_str();
    alone.size                  = 2;
    alone.timeout_ms            = 50;
    EXPECT(thrown([&] { usm::ipc_channel never(alone); }) == USM_E_PEER);
}

} // namespace

int cases_of_ipc()
{
    (void)std::signal(SIGPIPE, SIG_IGN);
    (void)alarm(100);
    peer = start();
    return check::run(another_process_writes_through_a_handle,
                      in_one_process_the_block_itself_is_opened, nothing_stays_behind,
                      events_order_queues, a_channel_of_one_meets_itself);
}
