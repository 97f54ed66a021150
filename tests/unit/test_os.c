/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* What base/os.h promises: that each call works, and that each can be made to fail. */
#include "plain.h"

#include "base/fault.h"
#include "base/os.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>

#define PAGE ((size_t)4096)

/* --- heap and pages ------------------------------------------------------- */

static void heap_memory_is_zero_and_size_0_is_a_block(void)
{
    unsigned char *p       = usm__heap_alloc(1000);
    void          *nothing = usm__heap_alloc(0);

    CHECK(p != NULL && nothing != NULL);
    for (int i = 0; i < 1000; i++)
        CHECK(p[i] == 0);
    p = usm__heap_realloc(p, 0);
    CHECK(p != NULL);
    usm__heap_free(p);
    usm__heap_free(nothing);
    usm__heap_free(NULL);
}

static void the_three_heap_calls_count_as_one_name(void)
{
    char *p = usm__heap_strdup("text");

    CHECK_STR(p, "text");
    for (uint64_t n = 1; n <= 3; n++) {
        CHECK(usm__fault_arm("heap.alloc", n, false, USM_OK));
        void *a = usm__heap_alloc(1);
        void *b = usm__heap_strdup("x");
        void *c = usm__heap_realloc(p, 10);

        CHECK((a == NULL) == (n == 1) && (b == NULL) == (n == 2) && (c == NULL) == (n == 3));
        p = c != NULL ? c : p; /* a realloc that fails leaves the block */
        usm__heap_free(a);
        usm__heap_free(b);
        usm__fault_disarm_all();
    }
    CHECK_STR(p, "text");
    usm__heap_free(p);
}

static void pages_are_zero_and_can_be_protected(void)
{
    char *p = usm__os_map(2 * PAGE, PROT_READ | PROT_WRITE);

    CHECK(p != NULL && p[0] == 0 && p[2 * PAGE - 1] == 0);
    p[0] = 1;
    CHECK_INT(usm__os_protect(p, PAGE, PROT_READ), 0);
    CHECK_INT(usm__os_protect(p, PAGE, PROT_READ | PROT_WRITE), 0);
    p[0] = 2;
    CHECK_INT(usm__os_unmap(p, 2 * PAGE), 0);
    errno = 0;
    CHECK(usm__os_map(0, PROT_READ) == NULL && errno == EINVAL);
}

static void a_sparse_table_costs_what_is_touched(void)
{
    size_t        size = (size_t)1 << 35; /* valgrind maps no more than 2^37 in all */
    char         *p    = usm__os_map_noreserve(size);
    unsigned char held = 0;

    CHECK(p != NULL);
    CHECK_INT(mincore(p, PAGE, &held), 0);
    CHECK_INT(held & 1, 0);
    p[size - 1] = 1;
    CHECK_INT(mincore(p + size - PAGE, PAGE, &held), 0);
    CHECK_INT(held & 1, 1);
    CHECK_INT(usm__os_unmap(p, size), 0);
}

static void a_memfd_mapped_twice_is_one_memory(void)
{
    int   fd = usm__os_memfd("usm-test", PAGE);
    char *a, *b, *place;

    CHECK(fd >= 0);
    CHECK((fcntl(fd, F_GETFD) & FD_CLOEXEC) != 0);
    place = usm__os_map(PAGE, PROT_NONE);
    a     = usm__os_map_fd(NULL, PAGE, PROT_READ | PROT_WRITE, fd);
    b     = usm__os_map_fd(place, PAGE, PROT_READ, fd);
    CHECK(a != NULL && b == place);
    a[17] = 42;
    CHECK_INT(b[17], 42);
    CHECK_INT(usm__os_unmap(a, PAGE), 0);
    CHECK_INT(usm__os_unmap(b, PAGE), 0);
    CHECK_INT(usm__os_close(fd), 0);
    CHECK_INT(usm__os_memfd("usm-test", SIZE_MAX), -1);
}

static int open_files(void)
{
    int n = 0;

    for (int fd = 0; fd < 256; fd++)
        n += fcntl(fd, F_GETFD) >= 0;
    return n;
}

static void every_call_that_can_fail_can_be_made_to(void)
{
    char   why[100] = "";
    char  *p        = usm__os_map(PAGE, PROT_READ);
    int    files    = open_files();
    size_t size     = 77;

    CHECK(p != NULL);
    CHECK(usm__fault_arm("os.*", 1, true, USM_OK));
    errno = 0;
    CHECK(usm__os_map(PAGE, PROT_READ) == NULL && errno == ENOMEM);
    CHECK(usm__os_map_noreserve(PAGE) == NULL);
    CHECK(usm__os_map_for_life(PAGE) == NULL);
    CHECK(usm__os_map_fd(NULL, PAGE, PROT_READ, 0) == NULL);
    CHECK_INT(usm__os_protect(p, PAGE, PROT_NONE), -1);
    CHECK_INT(usm__os_unmap(p, PAGE), -1);
    CHECK_INT(p[0], 0); /* neither was done */
    CHECK_INT(usm__os_memfd("x", PAGE), -1);
    CHECK_INT(usm__os_thread(NULL, NULL, "x"), EAGAIN);
    CHECK(usm__os_read_file("/proc/self/stat", SIZE_MAX, &size) == NULL);
    CHECK_INT(size, 77);
    CHECK_INT(usm__os_write_file(plain_path("no"), "x", 1), -1);
    CHECK(usm__os_dlopen("libm.so.6", why, sizeof(why)) == NULL);
    CHECK_IN("libm.so.6", why);
    usm__fault_disarm_all();
    CHECK(usm__fault_arm("os.ftruncate", 1, false, USM_OK));
    CHECK_INT(usm__os_memfd("x", PAGE), -1);
    usm__fault_disarm_all();
    CHECK_INT(open_files(), files);
    CHECK_INT(usm__os_unmap(p, PAGE), 0);
}

/* --- threads, time, processors -------------------------------------------- */

typedef struct visit {
    atomic_bool done;
    char        name[16];
    sigset_t    blocked;
} visit;

static void look_around(void *arg)
{
    visit *v = arg;

    (void)pthread_getname_np(pthread_self(), v->name, sizeof(v->name));
    (void)pthread_sigmask(SIG_BLOCK, NULL, &v->blocked);
    atomic_store(&v->done, true);
}

static void a_thread_is_named_and_blocks_signals_that_are_not_its_own(void)
{
    visit    v;
    sigset_t before, after;

    atomic_init(&v.done, false);
    (void)pthread_sigmask(SIG_BLOCK, NULL, &before);
    CHECK_INT(usm__os_thread(look_around, &v, "usm-a-very-long-name"), 0);
    while (!atomic_load(&v.done))
        usm__os_sleep_ns(100000);
    (void)pthread_sigmask(SIG_BLOCK, NULL, &after);
    CHECK_STR(v.name, "usm-a-very-long");
    CHECK(sigismember(&v.blocked, SIGINT) == 1 && sigismember(&v.blocked, SIGUSR1) == 1);
    CHECK(sigismember(&v.blocked, SIGSEGV) == 0 && sigismember(&v.blocked, SIGBUS) == 0);
    CHECK_INT(sigismember(&after, SIGUSR1), sigismember(&before, SIGUSR1));
}

static void a_thread_that_cannot_start_leaks_nothing(void)
{
    CHECK(usm__fault_arm("heap.alloc", 1, false, USM_OK));
    CHECK_INT(usm__os_thread(look_around, NULL, "x"), ENOMEM);
    usm__fault_disarm_all();
}

static void sleeping_takes_at_least_its_time(void)
{
    uint64_t before = usm__os_now_ns();

    usm__os_sleep_ns(2000000);
    CHECK(usm__os_now_ns() - before >= 2000000);
}

static void there_is_a_processor(void)
{
    long configured = sysconf(_SC_NPROCESSORS_CONF);

    CHECK(usm__os_cpu_count() >= 1);
    CHECK((long)usm__os_cpu_count() <= configured);
}

/* --- files ---------------------------------------------------------------- */

static int files_in(const char *folder)
{
    DIR *d = opendir(folder);
    int  n = 0;

    CHECK(d != NULL);
    for (struct dirent *e = readdir(d); e != NULL; e = readdir(d))
        n += e->d_name[0] != '.';
    (void)closedir(d);
    return n;
}

static void a_file_is_read_whole_with_a_zero_behind(void)
{
    size_t size = 0;
    char  *text;
    char   big[20001];

    memset(big, 'b', 20000);
    big[20000] = '\0';
    plain_write(plain_path("big"), big);
    text = usm__os_read_file(plain_path("big"), SIZE_MAX, &size);
    CHECK_INT(size, 20000);
    CHECK_STR(text, big);
    usm__heap_free(text);
    text = usm__os_read_file("/proc/self/maps", SIZE_MAX, &size); /* says that its size is 0 */
    CHECK(text != NULL && size > 100 && strlen(text) == size);
    usm__heap_free(text);
    plain_write(plain_path("empty"), "");
    text = usm__os_read_file(plain_path("empty"), SIZE_MAX, &size);
    CHECK_STR(text, "");
    CHECK_INT(size, 0);
    usm__heap_free(text);
}

static void reading_what_is_no_file_says_why(void)
{
    size_t size;

    errno = 0;
    CHECK(usm__os_read_file(plain_path("absent"), SIZE_MAX, &size) == NULL);
    CHECK_INT(errno, ENOENT);
    CHECK(usm__os_read_file("/proc", SIZE_MAX, &size) == NULL);
    CHECK_INT(errno, EISDIR);
}

/* Reading /dev/zero does not end, and opening a pipe waits for its other end. */
static void devices_and_pipes_are_not_read(void)
{
    const char *pipe = plain_path("pipe");
    size_t      size;

    CHECK_INT(mkfifo(pipe, 0600), 0);
    CHECK(usm__os_read_file("/dev/zero", SIZE_MAX, &size) == NULL);
    CHECK_INT(errno, EINVAL);
    CHECK(usm__os_read_file(pipe, SIZE_MAX, &size) == NULL);
    CHECK_INT(errno, EINVAL);
}

static void more_than_the_bound_is_not_read(void)
{
    const char *path = plain_path("bound");
    size_t      size = 0;
    void       *text;

    plain_write(path, "12345");
    text = usm__os_read_file(path, 5, &size);
    CHECK_STR(text, "12345");
    usm__heap_free(text);
    CHECK(usm__os_read_file(path, 4, &size) == NULL);
    CHECK_INT(errno, EFBIG);
    CHECK_INT(truncate(path, (off_t)1 << 40), 0); /* all of it holes */
    CHECK(usm__os_read_file(path, 1 << 20, &size) == NULL);
    CHECK_INT(errno, EFBIG);
    CHECK(usm__os_read_file("/proc/self/maps", 100, &size) == NULL); /* says that it has 0 */
    CHECK_INT(errno, EFBIG);
}

static void a_read_without_memory_leaks_nothing(void)
{
    size_t size  = 0;
    int    files = open_files();
    void  *p     = NULL;

    for (uint64_t n = 1; p == NULL; n++) { /* maps grows the block several times */
        CHECK(n < 20);
        CHECK(usm__fault_arm("heap.alloc", n, false, USM_OK));
        p = usm__os_read_file("/proc/self/maps", SIZE_MAX, &size);
        CHECK((p == NULL) == (usm__fault_fired() == 1));
        CHECK(p != NULL || errno == ENOMEM);
        usm__fault_disarm_all();
    }
    usm__heap_free(p);
    CHECK_INT(open_files(), files);
}

static void a_file_is_written_into_new_private_folders(void)
{
    const char *path = plain_path("a/b/c/file");
    char        text[16];
    struct stat st;

    CHECK_INT(usm__os_write_file(path, "first", 5), 0);
    CHECK_STR(plain_read(path, text, sizeof(text)), "first");
    CHECK_INT(usm__os_write_file(path, "2nd", 3), 0);
    CHECK_STR(plain_read(path, text, sizeof(text)), "2nd");
    CHECK_INT(stat(plain_path("a/b"), &st), 0);
    CHECK_INT(st.st_mode & 0777, 0700);
    CHECK_INT(stat(path, &st), 0);
    CHECK_INT(st.st_mode & 0077, 0);
    CHECK_INT(files_in(plain_path("a/b/c")), 1);
}

static void a_write_that_fails_leaves_the_old_file_and_nothing_aside(void)
{
    static const char *const points[] = {"os.write_file", "os.write", "os.rename"};
    const char              *path     = plain_path("cache/file");
    int                      files    = open_files();
    char                     text[16];

    CHECK_INT(usm__os_write_file(path, "old", 3), 0);
    for (size_t i = 0; i < 3; i++) {
        CHECK(usm__fault_arm(points[i], 1, false, USM_OK));
        CHECK_INT(usm__os_write_file(path, "new", 3), -1);
        CHECK_INT(usm__fault_fired(), 1);
        usm__fault_disarm_all();
        CHECK_STR(plain_read(path, text, sizeof(text)), "old");
        CHECK_INT(files_in(plain_path("cache")), 1);
    }
    CHECK_INT(open_files(), files);
}

static void a_place_that_cannot_be_written_says_why(void)
{
    char name[5000];

    plain_write(plain_path("plain"), "a file");
    CHECK_INT(usm__os_write_file(plain_path("plain/below"), "x", 1), -1);
    CHECK_INT(errno, ENOTDIR);
    CHECK_INT(usm__os_write_file("/proc/usm/file", "x", 1), -1);
    memset(name, 'n', sizeof(name) - 1);
    name[0]                = '/';
    name[sizeof(name) - 1] = '\0';
    CHECK_INT(usm__os_write_file(name, "x", 1), -1);
    CHECK_INT(errno, ENAMETOOLONG);
}

/* --- memory and control groups -------------------------------------------- */

static void memory_figures_are_sane(void)
{
    uint64_t total = usm__os_memory_total(), free = usm__os_memory_free();
    uint64_t ram = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);

    CHECK(total > (16u << 20) && total <= ram);
    CHECK(free > 0 && free <= total);
}

/* A file below a tree that stands for /sys/fs/cgroup, or its list. */
static void put(const char *name, const char *text)
{
    CHECK_INT(usm__os_write_file(plain_path(name), text, strlen(text)), 0);
}

static void ask(const char *tree, uint64_t *limit, uint64_t *free)
{
    char list[64];

    (void)snprintf(list, sizeof(list), "%s/list", tree);
    usm__os_cgroup_memory(plain_path(list), plain_path(tree), limit, free);
}

static void the_smallest_limit_up_to_the_root_holds(void)
{
    uint64_t limit = 0, free = 0;

    put("v2/list", "0::/job/step\n");
    put("v2/job/step/memory.max", "max\n");
    put("v2/job/step/memory.current", "1000\n");
    put("v2/job/memory.max", "5000000\n");
    put("v2/job/memory.current", "3000000\n");
    put("v2/job/memory.stat", "anon 5\nfile 7\ninactive_file 500000\nactive_file 9\n");
    put("v2/memory.max", "7000000\n");
    ask("v2", &limit, &free);
    CHECK_INT(limit, 5000000);
    CHECK_INT(free, 2500000); /* what the page cache can give back counts as free */
}

static void version_1_and_mixed_trees_are_read(void)
{
    uint64_t limit = 0, free = 0;

    put("v1/list", "5:cpu,cpuacct:/x\n4:hugetlb,memory:/docker/abc\n0::/\n");
    put("v1/memory/memory.limit_in_bytes", "8000000\n"); /* our group is the mount's root */
    put("v1/memory/memory.usage_in_bytes", "9000000\n");
    ask("v1", &limit, &free);
    CHECK_INT(limit, 8000000);
    CHECK_INT(free, 0);
    put("v1/unified/memory.max", "6000000\n");
    ask("v1", &limit, &free);
    CHECK_INT(limit, 6000000);
}

static void no_group_or_a_broken_one_means_no_limit(void)
{
    uint64_t limit = 0, free = 0;

    ask("absent", &limit, &free);
    CHECK(limit == UINT64_MAX && free == UINT64_MAX);
    put("odd/list", "\n:\n::\n0:\n4:memory\nx\n0::/../../..\n");
    put("odd/memory.max", "-1\n");
    ask("odd", &limit, &free);
    CHECK(limit == UINT64_MAX && free == UINT64_MAX);
}

static unsigned cpus(const char *tree)
{
    char list[64];

    (void)snprintf(list, sizeof(list), "%s/list", tree);
    return usm__os_cgroup_cpus(plain_path(list), plain_path(tree));
}

static void the_smallest_quota_of_processor_time_holds(void)
{
    put("q2/list", "0::/job/step\n");
    put("q2/job/step/cpu.max", "max 100000\n");
    put("q2/job/cpu.max", "250000 100000\n");
    put("q2/cpu.max", "800000 100000\n");
    CHECK_INT(cpus("q2"), 3); /* two and a half: rounded up */
    put("q1/list", "5:cpu,cpuacct:/x\n4:hugetlb,memory:/x\n");
    put("q1/cpu/x/cpu.cfs_quota_us", "50000\n");
    put("q1/cpu/x/cpu.cfs_period_us", "100000\n");
    CHECK_INT(cpus("q1"), 1);
    put("q1/cpu/x/cpu.cfs_quota_us", "-1\n");
    CHECK_INT(cpus("q1"), 0);
    put("q0/list", "0::/x\n");
    put("q0/x/cpu.max", "0 0\n");
    put("q0/cpu.max", "many\n");
    CHECK_INT(cpus("q0"), 0);
    CHECK_INT(cpus("absent"), 0);
}

/* --- modules -------------------------------------------------------------- */

static void a_module_is_loaded_or_the_reason_told(void)
{
    char  why[200] = "";
    void *module   = usm__os_dlopen("libm.so.6", why, sizeof(why));

    CHECK(module != NULL);
    CHECK(usm__os_dlsym(module, "cos") != NULL);
    CHECK(usm__os_dlsym(module, "no_such_symbol") == NULL);
    usm__os_dlclose(module);
    CHECK(usm__os_dlopen("/no/such/module.so", why, sizeof(why)) == NULL);
    CHECK_IN("/no/such/module.so", why);
}

static void modules_get_the_same_calls(void)
{
    void *p = usm__os_api.map(PAGE, PROT_READ);

    CHECK(p != NULL);
    CHECK(usm__fault_arm("os.mprotect", 1, false, USM_OK));
    CHECK_INT(usm__os_api.protect(p, PAGE, PROT_NONE), -1);
    usm__fault_disarm_all();
    CHECK_INT(usm__os_api.unmap(p, PAGE), 0);
    CHECK(usm__os_api.map_fd != NULL && usm__os_api.memfd != NULL);
    CHECK(usm__os_api.close != NULL && usm__os_api.thread != NULL);
}

static const plain_case cases[] = {
    CASE(heap_memory_is_zero_and_size_0_is_a_block),
    CASE(the_three_heap_calls_count_as_one_name),
    CASE(pages_are_zero_and_can_be_protected),
    CASE(a_sparse_table_costs_what_is_touched),
    CASE(a_memfd_mapped_twice_is_one_memory),
    CASE(every_call_that_can_fail_can_be_made_to),
    CASE(a_thread_is_named_and_blocks_signals_that_are_not_its_own),
    CASE(a_thread_that_cannot_start_leaks_nothing),
    CASE(sleeping_takes_at_least_its_time),
    CASE(there_is_a_processor),
    CASE(a_file_is_read_whole_with_a_zero_behind),
    CASE(reading_what_is_no_file_says_why),
    CASE(devices_and_pipes_are_not_read),
    CASE(more_than_the_bound_is_not_read),
    CASE(a_read_without_memory_leaks_nothing),
    CASE(a_file_is_written_into_new_private_folders),
    CASE(a_write_that_fails_leaves_the_old_file_and_nothing_aside),
    CASE(a_place_that_cannot_be_written_says_why),
    CASE(memory_figures_are_sane),
    CASE(the_smallest_limit_up_to_the_root_holds),
    CASE(version_1_and_mixed_trees_are_read),
    CASE(no_group_or_a_broken_one_means_no_limit),
    CASE(the_smallest_quota_of_processor_time_holds),
    CASE(a_module_is_loaded_or_the_reason_told),
    CASE(modules_get_the_same_calls),
    {NULL, NULL},
};

int main(int argc, char **argv)
{
    return plain_main(argc, argv, cases);
}
