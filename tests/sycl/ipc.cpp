/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Device memory of one process in another.  The second process is this program started anew with
 * --peer and two pipes: a driver does not survive fork(). */
#include "check.hpp"

#include <sycl/ext/oneapi/experimental/ipc_memory.hpp>

#include <sys/prctl.h>
#include <sys/wait.h>

namespace
{

using namespace check;
namespace ipc = sycl::ext::oneapi::experimental::ipc;

constexpr std::size_t size = 300000;
const char           *program;

bool give(int fd, const void *p, std::size_t n)
{
    return write(fd, p, n) == static_cast<ssize_t>(n);
}

bool take(int fd, void *p, std::size_t n)
{
    for (std::size_t got = 0; got < n;) {
        const ssize_t k = read(fd, static_cast<char *>(p) + got, n - got);
        if (k <= 0)
            return false;
        got += static_cast<std::size_t>(k);
    }
    return true;
}

/* The other process: reads what it finds, writes something else there. */
int peer(int in, int out)
{
    std::size_t n = 0;
    if (!take(in, &n, sizeof(n)) || n > 4096)
        return 1;
    ipc::handle_data_t data(n);
    if (!take(in, data.data(), n))
        return 1;
    sycl::queue                q(device(), sycl::property::queue::in_order());
    std::vector<unsigned char> seen(size);
    const auto                 answer = noise(size, 2);
    void                      *p      = ipc::memory::open(data, q.get_context(), q.get_device());
    q.memcpy(seen.data(), p, size);
    q.memcpy(p, answer.data(), size).wait_and_throw();
    ipc::memory::close(p, q.get_context());
    return give(out, seen.data(), size) ? 0 : 1;
}

struct child {
    pid_t pid;
    int   to, from;
};

child start_peer()
{
    int to[2], from[2];
    EXPECT(pipe(to) == 0 && pipe(from) == 0);
    const pid_t pid = fork();
    if (pid == 0) {
        (void)close(to[1]);
        (void)close(from[0]);
        (void)execl("/proc/self/exe", program, "--peer", std::to_string(to[0]).c_str(),
                    std::to_string(from[1]).c_str(), static_cast<char *>(nullptr));
        _exit(127);
    }
    EXPECT(pid > 0);
    (void)close(to[0]);
    (void)close(from[1]);
    return {pid, to[1], from[0]};
}

void another_process_reads_and_writes()
{
    sycl::queue q(device(), sycl::property::queue::in_order());
    needs(q.get_device(), sycl::aspect::ext_oneapi_ipc_memory, "no inter-process memory");
    const auto                 in = noise(size, 1);
    std::vector<unsigned char> seen(size), out(size);
    void                      *p = sycl::malloc_device(size, q);
    EXPECT(p != nullptr);
    q.memcpy(p, in.data(), size).wait_and_throw();
    /* The other one takes a file descriptor out of this process. */
    (void)prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0);
    ipc::handle              handle = ipc::memory::get(p, q.get_context());
    const ipc::handle_data_t data   = handle.data();
    const std::size_t        n      = data.size();
    const child              c      = start_peer();
    EXPECT(give(c.to, &n, sizeof(n)) && give(c.to, data.data(), n));
    const bool answered = take(c.from, seen.data(), size);
    int        status   = -1;
    EXPECT(waitpid(c.pid, &status, 0) == c.pid);
    (void)close(c.to);
    (void)close(c.from);
    EXPECT(status == 0);
    EXPECT(answered && seen == in);
    q.memcpy(out.data(), p, size).wait_and_throw();
    ipc::memory::put(handle, q.get_context());
    sycl::free(p, q);
    EXPECT(out == noise(size, 2));
}

void a_handle_of_the_wrong_length_is_refused()
{
    sycl::queue q(device());
    needs(q.get_device(), sycl::aspect::ext_oneapi_ipc_memory, "no inter-process memory");
    bool threw = false;
    try {
        (void)ipc::memory::open(ipc::handle_data_t(3), q.get_context(), q.get_device());
    } catch (const sycl::exception &e) {
        threw = e.code() == sycl::errc::invalid;
    }
    EXPECT(threw);
}

} // namespace

int main(int argc, char **argv)
{
    program = argv[0];
    if (argc == 4 && std::strcmp(argv[1], "--peer") == 0) {
        try {
            (void)alarm(50);
            return peer(std::atoi(argv[2]), std::atoi(argv[3]));
        } catch (const std::exception &e) {
            std::fprintf(stderr, "the other process: %s\n", e.what());
            return 1;
        }
    }
    return run_all(argc, argv,
                   {
                       CHECK(another_process_reads_and_writes),
                       CHECK(a_handle_of_the_wrong_length_is_refused),
                   });
}
