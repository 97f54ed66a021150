/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The program cache on disk: what is kept and found, broken files, folders that cannot be written,
 * many processes at once.
 *
 * Without a runtime (USM_TEST_RUNTIME "none" or unset) over a backend that compiles nothing, whose
 * counters tell where a program came from.  With an OpenCL runtime the same race with its compiler:
 * there the results of a kernel tell whether every process got the right program. */
#include "base/fault.h"
#include "fake_backend.h"
#include "program/disk_cache.h"
#include "program/program.h"

#include <dirent.h>
#include <fcntl.h>
#include <plain.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <usm/usm.h>

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))
#define HEADER_SIZE  48 /* of a file, as disk_cache.c tells */
#define OK(call)     cache_ok((call), __FILE__, __LINE__)

static void cache_ok(usm_status s, const char *file, int line)
{
    if (s != USM_OK) {
        printf("# %s: %s\n", usm_status_name(s), usm_last_error());
        plain_fail(file, line, "success");
    }
}

/* --- a folder of this program's own --------------------------------------------------------- */

static char folder[512];

/* A new, empty cache folder. */
static void new_folder(void)
{
    static int n;
    char       name[32];

    (void)snprintf(name, sizeof name, "cache%d/of/usm", n++);
    (void)snprintf(folder, sizeof folder, "%s", plain_path(name));
    OK(usm_config_set("cache_dir", folder));
}

static bool is_file(const char *name, const char *suffix)
{
    size_t n = strlen(name), s = strlen(suffix);

    return name[0] != '.' && n >= s && strcmp(name + n - s, suffix) == 0;
}

/* How many files end so; `path` (may be NULL) gets one of them. */
static int count_files(const char *suffix, char *path, size_t size)
{
    DIR           *dir = opendir(folder);
    struct dirent *entry;
    int            n = 0;

    while (dir && (entry = readdir(dir)) != NULL) {
        if (!is_file(entry->d_name, suffix))
            continue;
        n++;
        if (path)
            (void)snprintf(path, size, "%s/%.255s", folder, entry->d_name);
    }
    if (dir)
        (void)closedir(dir);
    return n;
}

static void write_bytes(const char *path, const void *data, size_t size)
{
    FILE *f = fopen(path, "we");

    CHECK(f != NULL);
    CHECK_INT(fwrite(data, 1, size, f), size);
    CHECK_INT(fclose(f), 0);
}

static size_t read_bytes(const char *path, void *data, size_t size)
{
    FILE  *f = fopen(path, "re");
    size_t n;

    CHECK(f != NULL);
    n = fread(data, 1, size, f);
    CHECK_INT(fclose(f), 0);
    return n;
}

/* --- programs of the fake backend ----------------------------------------------------------- */

static usm_context *fake_context(void)
{
    usm_context_desc desc = USM_CONTEXT_DESC_INIT;
    usm_device      *dev  = NULL;
    size_t           n    = 0;
    usm_context     *ctx  = NULL;

    OK(usm_select_devices("fake:0", &dev, 1, &n));
    desc.ndevices = 1;
    desc.devices  = &dev;
    OK(usm_context_create(&desc, &ctx));
    return ctx;
}

/* Makes the program in a context of its own and looks at its kernel. */
static void use_program(const char *text, const char *options)
{
    usm_context     *ctx     = fake_context();
    usm_image        image   = fake_text(text);
    usm_program_desc desc    = USM_PROGRAM_DESC_INIT;
    usm_program     *program = NULL;
    usm_kernel      *k       = NULL;
    usm_image_type   type    = 0;

    desc.images  = &image;
    desc.nimages = 1;
    desc.options = options;
    OK(usm_program_create(ctx, &desc, &program));
    OK(usm_program_get_image(program, NULL, &type));
    CHECK_INT(type, USM_IMAGE_OPENCL_C); /* wherever it came from */
    OK(usm_kernel_create(program, "k", &k));
    CHECK_INT(k->nargs, 2);
    usm_kernel_destroy(k);
    usm_program_destroy(program);
    usm_context_destroy(ctx);
    CHECK_INT(fake_alive(), 0);
}

#define TEXT "kernel k(PV)"

/* How TEXT was come by: `built` and `loaded` say how often the backend was asked. */
static void use_and_count(int built, int loaded)
{
    int before_built = fake.builds[USM_IMAGE_OPENCL_C], before = fake.builds[USM_IMAGE_BINARY];

    use_program(TEXT, NULL);
    CHECK_INT(fake.builds[USM_IMAGE_OPENCL_C] - before_built, built);
    CHECK_INT(fake.builds[USM_IMAGE_BINARY] - before, loaded);
}

/* --- keeping and finding -------------------------------------------------------------------- */

static void a_program_is_built_once_and_found_again(void)
{
    struct stat st;
    char        path[1024];

    new_folder();
    use_and_count(1, 0);
    CHECK_INT(count_files("", path, sizeof path), 1);
    CHECK_INT(strlen(strrchr(path, '/') + 1), 36);
    CHECK_IN(".bin", path);
    use_and_count(0, 1);
    use_and_count(0, 1);
    CHECK_INT(stat(folder, &st), 0);
    CHECK_INT(st.st_mode & 0777, 0700); /* what it made is the user's alone */
}

static void what_the_result_depends_on_is_in_the_key(void)
{
    new_folder();
    use_program(TEXT, NULL);
    use_program(TEXT, "-DN=4");
    use_program(TEXT, "-DN=5");
    use_program(TEXT "\nkernel other()", NULL);
    CHECK_INT(count_files(".bin", NULL, 0), 4);
    use_program(TEXT, "");
    CHECK_INT(count_files(".bin", NULL, 0), 4); /* no options are empty options */
}

static void a_binary_that_the_driver_refuses_is_built_anew(void)
{
    int text;

    new_folder();
    use_program(TEXT, NULL);
    CHECK(usm_config_set("no_such_setting", "1") != USM_OK);
    fake.refuse_binaries = true;
    text                 = fake.builds[USM_IMAGE_OPENCL_C];
    use_program(TEXT, NULL);
    fake.refuse_binaries = false;
    CHECK_IN("no_such_setting", usm_last_error()); /* the driver's story is not the caller's */
    CHECK_INT(fake.builds[USM_IMAGE_OPENCL_C], text + 1);
    CHECK_INT(count_files("", NULL, 0), 1);
    use_and_count(0, 1);
}

static void a_driver_without_binaries_leaves_no_file(void)
{
    new_folder();
    fake.no_binaries = true;
    use_and_count(1, 0);
    use_and_count(1, 0);
    fake.no_binaries = false;
    CHECK_INT(count_files("", NULL, 0), 0);
}

static void off_means_no_file(void)
{
    new_folder();
    OK(usm_config_set("cache_dir", "off"));
    use_and_count(1, 0);
    use_and_count(1, 0);
    CHECK_INT(count_files("", NULL, 0), 0);
    CHECK(access("off", F_OK) != 0);
}

/* --- broken files --------------------------------------------------------------------------- */

/* TEXT is built, its file right again afterwards. */
static void is_repaired(const char *path, const void *whole, size_t size)
{
    unsigned char now[512];

    use_and_count(1, 0);
    CHECK_INT(read_bytes(path, now, sizeof now), size);
    CHECK(memcmp(now, whole, size) == 0);
    CHECK_INT(count_files("", NULL, 0), 1);
}

static void a_file_cut_anywhere_is_replaced(void)
{
    unsigned char whole[512];
    char          path[1024];
    size_t        size;

    new_folder();
    use_program(TEXT, NULL);
    CHECK_INT(count_files(".bin", path, sizeof path), 1);
    size = read_bytes(path, whole, sizeof whole);
    CHECK(size > HEADER_SIZE && size < sizeof whole);
    for (size_t n = 0; n < size; n++) {
        write_bytes(path, whole, n);
        is_repaired(path, whole, size);
    }
    whole[size] = 'x';
    write_bytes(path, whole, size + 1); /* too long */
    is_repaired(path, whole, size);
}

static void a_file_with_any_wrong_byte_is_replaced(void)
{
    unsigned char whole[512], broken[512];
    char          path[1024];
    size_t        size;

    new_folder();
    use_program(TEXT, NULL);
    CHECK_INT(count_files(".bin", path, sizeof path), 1);
    size = read_bytes(path, whole, sizeof whole);
    for (size_t i = 0; i < size; i++) {
        memcpy(broken, whole, size);
        broken[i] ^= 0x10;
        write_bytes(path, broken, size);
        is_repaired(path, whole, size);
    }
}

static void another_programs_file_under_our_name_is_replaced(void)
{
    unsigned char whole[512], other[512];
    char          path[1024], other_path[1024];
    size_t        size, other_size;

    new_folder();
    use_program(TEXT "\nkernel other()", NULL);
    CHECK_INT(count_files(".bin", other_path, sizeof other_path), 1);
    other_size = read_bytes(other_path, other, sizeof other);
    CHECK_INT(unlink(other_path), 0);
    use_program(TEXT, NULL);
    CHECK_INT(count_files(".bin", path, sizeof path), 1);
    size = read_bytes(path, whole, sizeof whole);
    write_bytes(path, other, other_size);
    is_repaired(path, whole, size);
}

static void a_folder_in_a_files_place_is_no_harm(void)
{
    char path[1024];

    new_folder();
    use_program(TEXT, NULL);
    CHECK_INT(count_files(".bin", path, sizeof path), 1);
    CHECK_INT(unlink(path), 0);
    CHECK_INT(mkdir(path, 0700), 0);
    use_and_count(1, 0);
    CHECK_INT(count_files("", NULL, 0), 1); /* nothing is left beside it */
}

/* --- where nothing can be written ----------------------------------------------------------- */

static void a_folder_that_cannot_be_made_or_written_is_no_harm(void)
{
    const char *file = plain_path("a_file");
    char        under[600];

    OK(usm_config_set("cache_dir", "/proc/self/no/such"));
    use_and_count(1, 0);
    plain_write(file, "x");
    OK(usm_config_set("cache_dir", file));
    use_and_count(1, 0);
    (void)snprintf(under, sizeof under, "%s/under", file);
    OK(usm_config_set("cache_dir", under));
    use_and_count(1, 0);
    new_folder();
    use_program(TEXT, NULL);
    CHECK_INT(chmod(folder, 0500), 0); /* no hindrance for root, to whom this says little */
    use_program(TEXT "\nkernel other()", NULL);
    use_and_count(0, 1);
    CHECK_INT(chmod(folder, 0700), 0);
}

/* A file may have 20 bytes: writing stops in the middle, as on a full disk. */
static void use_with_full_disk(void)
{
    struct rlimit limit = {20, 20};

    CHECK(signal(SIGXFSZ, SIG_IGN) != SIG_ERR);
    CHECK_INT(setrlimit(RLIMIT_FSIZE, &limit), 0);
    use_and_count(1, 0);
    CHECK_INT(count_files("", NULL, 0), 0);
}

static void a_full_disk_is_no_harm(void)
{
    new_folder();
    CHECK_INT(plain_child(use_with_full_disk, NULL), 0);
    CHECK_INT(count_files("", NULL, 0), 0);
    use_and_count(1, 0);
    use_and_count(0, 1);
}

static void failures_of_the_cache_are_not_failures_of_the_program(void)
{
    static const char *const points[] = {"os.read_file", "os.write_file", "os.write", "os.rename",
                                         "program_binary"};

    new_folder();
    for (size_t i = 0; i < COUNT(points); i++) {
        CHECK(usm_config_set("no_such_setting", "1") != USM_OK);
        CHECK(usm__fault_arm(points[i], 1, true, USM_OK));
        use_program(TEXT, NULL);
        CHECK_INT(usm__fault_fired(), 0); /* benign: a sweep would take them for bugs */
        usm__fault_disarm_all();
        CHECK_IN("no_such_setting", usm_last_error()); /* and no message is left */
    }
}

static void resolve_in_child(void)
{
    char at[512];

    OK(usm_config_set("cache_dir", NULL));
    CHECK_INT(unsetenv("USM_CACHE_DIR"), 0);
    CHECK_INT(setenv("HOME", "/home/somebody", 1), 0);
    CHECK_INT(setenv("XDG_CACHE_HOME", "/xdg", 1), 0);
    CHECK(usm__disk_cache_folder(at, sizeof at));
    CHECK_STR(at, "/xdg/usm");
    CHECK_INT(setenv("XDG_CACHE_HOME", "relative", 1), 0); /* the XDG rules: to be ignored */
    CHECK(usm__disk_cache_folder(at, sizeof at));
    CHECK_STR(at, "/home/somebody/.cache/usm");
    CHECK(!usm__disk_cache_folder(at, 10));
    CHECK_INT(unsetenv("XDG_CACHE_HOME"), 0);
    CHECK_INT(unsetenv("HOME"), 0);
    CHECK(!usm__disk_cache_folder(at, sizeof at));
    use_and_count(1, 0);
    OK(usm_config_set("cache_dir", "/set"));
    CHECK(usm__disk_cache_folder(at, sizeof at));
    CHECK_STR(at, "/set");
    OK(usm_config_set("cache_dir", "OFF"));
    CHECK(!usm__disk_cache_folder(at, sizeof at));
}

static void the_folder_is_the_users_cache_unless_set(void)
{
    CHECK_INT(plain_child(resolve_in_child, NULL), 0);
}

/* --- a bound -------------------------------------------------------------------------------- */

/* A file of ours that was last written `age` seconds ago. */
static void old_file(const char *name, long age)
{
    char            path[1024];
    struct timespec times[2] = {{time(NULL) - age, 0}, {time(NULL) - age, 0}};

    (void)snprintf(path, sizeof path, "%s/%s", folder, name);
    write_bytes(path, "old", 3);
    CHECK_INT(utimensat(AT_FDCWD, path, times, 0), 0);
}

static bool exists(const char *name)
{
    char path[1024];

    (void)snprintf(path, sizeof path, "%s/%s", folder, name);
    return access(path, F_OK) == 0;
}

static void the_oldest_files_go_when_there_are_too_many(void)
{
    char name[64];

    new_folder();
    use_program(TEXT, NULL);
    for (int i = 0; i < USM__DISK_CACHE_FILES + 1; i++) {
        (void)snprintf(name, sizeof name, "%032x.bin", i);
        old_file(name, 1000 + i);
    }
    old_file("notes.bin", 1 << 20);
    old_file("00000000000000000000000000000000.txt", 1 << 20);
    old_file("0123456789abcdef0123456789abcdef.bin.Ab3dE6", 7200); /* of one that died */
    old_file("0123456789abcdef0123456789abcdef.bin.Ab3dE7", 10);
    use_program(TEXT, "-DMORE");
    CHECK_INT(count_files(".bin", NULL, 0), USM__DISK_CACHE_FILES + 1); /* and notes.bin */
    (void)snprintf(name, sizeof name, "%032x.bin", USM__DISK_CACHE_FILES);
    CHECK(!exists(name));
    (void)snprintf(name, sizeof name, "%032x.bin", USM__DISK_CACHE_FILES - 3);
    CHECK(exists(name));
    CHECK(exists("notes.bin"));
    CHECK(exists("00000000000000000000000000000000.txt"));
    CHECK(!exists("0123456789abcdef0123456789abcdef.bin.Ab3dE6"));
    CHECK(exists("0123456789abcdef0123456789abcdef.bin.Ab3dE7"));
    use_and_count(0, 1);
}

/* --- many processes ------------------------------------------------------------------------- */

#define PROCESSES 64

/* PoCL reads and writes its own cache of kernels without a lock (issues 430 and 1480 of pocl/pocl), and
 * compiles kernels when they are launched too.  So each process gets one of its own, empty. */
static void own_driver_cache(void)
{
    char name[32];

    (void)snprintf(name, sizeof name, "pocl.%d", (int)getpid());
    CHECK_INT(setenv("POCL_CACHE_DIR", plain_path(name), 1), 0);
}

/* Starts n children that run `fn` at the same moment; all must come back well. */
static void start_at_once(size_t n, void (*fn)(void))
{
    pid_t pids[PROCESSES];
    int   gate[2], status;
    char  byte;

    (void)fflush(NULL);
    CHECK_INT(pipe(gate), 0);
    for (size_t i = 0; i < n; i++) {
        pids[i] = fork();
        CHECK(pids[i] >= 0);
        if (pids[i] == 0) {
            plain.in_child = true;
            (void)alarm(240);
            own_driver_cache();
            (void)close(gate[1]);
            (void)!read(gate[0], &byte, 1); /* until the parent closes its end */
            fn();
            (void)fflush(NULL);
            _exit(0);
        }
    }
    (void)close(gate[0]);
    (void)close(gate[1]);
    for (size_t i = 0; i < n; i++) {
        CHECK(waitpid(pids[i], &status, 0) == pids[i]);
        CHECK_INT(status, 0);
    }
}

static atomic_int *builds; /* of all processes */

static void use_slowly(void)
{
    int before = fake.builds[USM_IMAGE_OPENCL_C];

    fake.build_ms = 5;
    use_program(TEXT, NULL);
    use_program(TEXT, "-DN=4");
    *builds += fake.builds[USM_IMAGE_OPENCL_C] - before;
}

static void many_processes_start_at_once(void)
{
    builds = mmap(NULL, sizeof *builds, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(builds != MAP_FAILED);
    new_folder();
    start_at_once(PROCESSES, use_slowly);
    CHECK_INT(count_files("", NULL, 0), 2); /* and nothing half-written */
    CHECK_INT(*builds, 2);                  /* one process builds, the others wait */
    use_and_count(0, 1);
    start_at_once(PROCESSES, use_slowly);
    CHECK_INT(count_files("", NULL, 0), 2);
    CHECK_INT(*builds, 2);
    CHECK_INT(munmap(builds, sizeof *builds), 0);
}

/* --- the same with a compiler --------------------------------------------------------------- */

#define DEVICE_ITEMS 1000

/* Different enough from everything else that no driver's own cache has it. */
static const char device_text[] = "kernel void usm_test_cache(global int *out, int n, int seed)\n"
                                  "{\n"
                                  "    size_t i = get_global_id(0);\n"
                                  "    if (i < (size_t)n)\n"
                                  "        out[i] = (int)i * STEP + seed;\n"
                                  "}\n";

static int device_seed;

static void run_on_device(usm_queue *q, usm_kernel *k, int *out)
{
    int        n      = DEVICE_ITEMS;
    usm_arg    args[] = {USM_ARG_PTR(out), USM_ARG_VAL(n), USM_ARG_VAL(device_seed)};
    usm_launch launch = USM_LAUNCH_INIT;
    int        back[DEVICE_ITEMS];

    launch.kernel    = k;
    launch.args      = args;
    launch.nargs     = 3;
    launch.global[0] = DEVICE_ITEMS;
    /* What is known of arguments is known of a cached program too. */
    launch.nargs = 2;
    CHECK_INT(usm_queue_submit(q, &launch, 0, NULL, NULL), USM_E_ARGUMENTS);
    launch.nargs = 3;
    args[1].kind = USM_ARG_LOCAL;
    CHECK_INT(usm_queue_submit(q, &launch, 0, NULL, NULL), USM_E_ARGUMENTS);
    args[1].kind = USM_ARG_VALUE;
    OK(usm_queue_submit(q, &launch, 0, NULL, NULL));
    OK(usm_queue_wait(q));
    OK(usm_copy(back, out, sizeof back));
    for (int i = 0; i < DEVICE_ITEMS; i++)
        CHECK_INT(back[i], i * 7 + device_seed);
}

static void compute_on_device(void)
{
    usm_queue       *q       = usm_default_queue();
    usm_image        image   = {USM_IMAGE_OPENCL_C, device_text, sizeof device_text};
    usm_program_desc desc    = USM_PROGRAM_DESC_INIT;
    usm_program     *program = NULL;
    usm_kernel      *k       = NULL;
    int             *out     = usm_alloc_device(DEVICE_ITEMS * sizeof *out);

    CHECK(q != NULL && out != NULL);
    device_seed  = (int)getpid();
    desc.images  = &image;
    desc.nimages = 1;
    desc.options = "-DSTEP=7";
    OK(usm_program_create(usm_queue_get_context(q), &desc, &program));
    OK(usm_kernel_create(program, "usm_test_cache", &k));
    run_on_device(q, k, out);
    usm_kernel_destroy(k);
    usm_program_destroy(program);
    usm_free(out);
    usm_shutdown();
}

static void corrupt(const char *path)
{
    unsigned char byte = 0;
    FILE         *f    = fopen(path, "r+be");

    CHECK(f != NULL);
    CHECK_INT(fseek(f, HEADER_SIZE + 100, SEEK_SET), 0);
    CHECK_INT(fread(&byte, 1, 1, f), 1);
    byte ^= 0xff;
    CHECK_INT(fseek(f, HEADER_SIZE + 100, SEEK_SET), 0);
    CHECK_INT(fwrite(&byte, 1, 1, f), 1);
    CHECK_INT(fclose(f), 0);
}

/* A real driver takes memory and threads: fewer than with the fake. */
static void many_processes_compile_on_a_device_at_once(void)
{
    size_t n = getenv("USM_TEST_LONG") ? 16 : 6;
    char   path[1024];

    new_folder();
    start_at_once(n, compute_on_device);
    CHECK_INT(count_files("", path, sizeof path), 1);
    start_at_once(n, compute_on_device); /* all of them from the file */
    corrupt(path);
    start_at_once(n, compute_on_device);
    CHECK_INT(count_files("", path, sizeof path), 1);
    OK(usm_config_set("cache_dir", "/proc/self/no/such"));
    start_at_once(2, compute_on_device);
}

static const plain_case cases[] = {CASE(a_program_is_built_once_and_found_again),
                                   CASE(what_the_result_depends_on_is_in_the_key),
                                   CASE(a_binary_that_the_driver_refuses_is_built_anew),
                                   CASE(a_driver_without_binaries_leaves_no_file),
                                   CASE(off_means_no_file),
                                   CASE(a_file_cut_anywhere_is_replaced),
                                   CASE(a_file_with_any_wrong_byte_is_replaced),
                                   CASE(another_programs_file_under_our_name_is_replaced),
                                   CASE(a_folder_in_a_files_place_is_no_harm),
                                   CASE(a_folder_that_cannot_be_made_or_written_is_no_harm),
                                   CASE(a_full_disk_is_no_harm),
                                   CASE(failures_of_the_cache_are_not_failures_of_the_program),
                                   CASE(the_folder_is_the_users_cache_unless_set),
                                   CASE(the_oldest_files_go_when_there_are_too_many),
                                   CASE(many_processes_start_at_once),
                                   {NULL, NULL}};

static const plain_case device_cases[] = {CASE(many_processes_compile_on_a_device_at_once),
                                          {NULL, NULL}};

int main(int argc, char **argv)
{
    const char *runtime = getenv("USM_TEST_RUNTIME");

    usm__registry_add_backend("fake", fake_backend_entry);
    if (runtime && strcmp(runtime, "none") != 0)
        return plain_main(argc, argv, device_cases);
    return plain_main(argc, argv, cases);
}
