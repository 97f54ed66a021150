/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Runs a fuzzer's LLVMFuzzerTestOneInput() over files and folders of files (not
 * deeper), with any compiler: replays what libFuzzer found, and keeps the seeds
 * of tests/fuzz/corpus passing where there is no libFuzzer.  Link it with any
 * fuzz_*.c of this folder. */
#include <dirent.h>
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int inputs;

static int complain(const char *path)
{
    (void)fprintf(stderr, "%s: %s\n", path, strerror(errno));
    return -1;
}

/* The buffer is exactly as long as the data, so that reading past it is found. */
static int run_bytes(FILE *file, const char *path, size_t size)
{
    uint8_t *data = malloc(size ? size : 1);
    int      rc   = -1;

    if (data == NULL || fread(data, 1, size, file) != size) {
        (void)complain(path);
    } else {
        (void)LLVMFuzzerTestOneInput(data, size);
        inputs++;
        rc = 0;
    }
    free(data);
    return rc;
}

static int run_file(const char *path, size_t size)
{
    FILE *file = fopen(path, "rbe");
    int   rc;

    if (file == NULL)
        return complain(path);
    rc = run_bytes(file, path, size);
    (void)fclose(file);
    return rc;
}

static int run_folder(const char *path)
{
    DIR           *folder = opendir(path);
    struct dirent *entry;
    struct stat    st;
    char           name[4096];
    int            rc = 0;

    if (folder == NULL)
        return complain(path);
    /* NOLINTNEXTLINE(concurrency-mt-unsafe): there is one thread */
    while (rc == 0 && (entry = readdir(folder)) != NULL) {
        (void)snprintf(name, sizeof(name), "%s/%s", path, entry->d_name);
        if (stat(name, &st) == 0 && S_ISREG(st.st_mode))
            rc = run_file(name, (size_t)st.st_size);
    }
    (void)closedir(folder);
    return rc;
}

int main(int argc, char **argv)
{
    struct stat st;
    int         rc = 0;

    for (int i = 1; i < argc && rc == 0; i++) {
        if (stat(argv[i], &st) != 0)
            rc = complain(argv[i]);
        else
            rc = S_ISDIR(st.st_mode) ? run_folder(argv[i]) : run_file(argv[i], (size_t)st.st_size);
    }
    printf("%d inputs\n", inputs);
    return rc == 0 && inputs > 0 ? 0 : 1; /* to have run none is no pass */
}
