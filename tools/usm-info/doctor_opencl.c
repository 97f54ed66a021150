/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* OpenCL's loader and the drivers that it is configured to load.
 *
 * A loader reads a folder of .icd files, each of which names one library on its first line, and
 * silently skips what does not load.  This file finds the reason, by loading each library in a
 * child.  The folder is that of OCL_ICD_VENDORS (a folder, one .icd file, or a library),
 * OPENCL_VENDOR_PATH (a folder), else /etc/OpenCL/vendors.  OCL_ICD_FILENAMES names further
 * libraries to Khronos's loader; ocl-icd does not read it. */
#include "child.h"
#include "doctor.h"
#include "table.h"

#include "base/os.h"

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define VENDORS_FOLDER "/etc/OpenCL/vendors"
#define LOADER         "libOpenCL.so.1"
#define LOADER_MAX     (16u << 20) /* bytes of its file */
#define ICD_TIMEOUT_S  30
#define ICD_NO_DRIVER  10 /* exit status of the child: it loads, but is not an OpenCL driver */
#define CHECK          "OpenCL drivers"

/* --- the child -------------------------------------------------------------- */

/* LIBRARY: answers with dlopen's text (exit 1), or the number of platforms (exit 0).  The two
 * functions are OpenCL's own way for loaders (cl_khr_icd). */
int child_load_icd(int argc, char **argv)
{
    void *(*get_function)(const char *name);
    int32_t (*get_platforms)(uint32_t cap, void **platforms, uint32_t *nplatforms);
    void    *module = argc == 1 ? dlopen(argv[0], RTLD_NOW | RTLD_LOCAL) : NULL;
    void    *found;
    uint32_t n = 0;

    if (!module) {
        const char *why = dlerror();

        fputs(why ? why : "no library was named", child_answer());
        return 1;
    }
    child_enter_scratch();
    found = dlsym(module, "clGetExtensionFunctionAddress");
    memcpy(&get_function, &found, sizeof found); /* ISO C has no cast from data to code */
    found = found ? get_function("clIcdGetPlatformIDsKHR") : NULL;
    memcpy(&get_platforms, &found, sizeof found);
    if (!found)
        return ICD_NO_DRIVER;
    if (get_platforms(0, NULL, &n))
        n = 0; /* the extension's CL_PLATFORM_NOT_FOUND_KHR, -1001 */
    fprintf(child_answer(), "%u", n);
    return 0;
}

/* --- one driver ------------------------------------------------------------- */

/* dlopen's text "libimf.so: cannot open shared object file: ..." names the missing file, which is
 * the driver itself or one that it needs. */
static char *remedy_for_load(const char *why, const char *library, const char *source)
{
    static const char *const intel[] = {"libimf.so", "libsvml.so", "libirng.so", "libintlc.so"};
    size_t                   len     = strcspn(why, ":");

    for (size_t i = 0; i < sizeof intel / sizeof *intel; i++) {
        if (strncmp(why, intel[i], strlen(intel[i])) == 0)
            return tool_printf("Install intel-cmplr-lib-rt beside it (pip install "
                               "intel-cmplr-lib-rt): it holds %.*s.",
                               (int)len, why);
    }
    if (strncmp(why, library, len) == 0 && library[len] == '\0')
        return tool_printf("Reinstall the driver, or correct the path in %s, or remove that file.",
                           source);
    if (strstr(why, "cannot open shared object file"))
        return tool_printf("Install what holds %.*s (apt-file search %.*s), or remove %s.",
                           (int)len, why, (int)len, why, source);
    return tool_printf("Reinstall the driver's package for this system, or remove %s.", source);
}

static void judge_load(doctor *d, const char *library, const char *source,
                       const child_result *result)
{
    char why[256];

    if (result->end == CHILD_EXITED && result->code == 1)
        doctor_add(
            d, FINDING_PROBLEM, CHECK,
            tool_printf("%s names %s, which does not load: %s.", source, library, result->answer),
            remedy_for_load(result->answer, library, source));
    else if (result->end == CHILD_EXITED && result->code == ICD_NO_DRIVER)
        doctor_add(d, FINDING_PROBLEM, CHECK,
                   tool_printf("%s names %s, which is no OpenCL driver.", source, library),
                   tool_printf("Name the driver's library in it, or remove %s.", source));
    else if (result->end != CHILD_EXITED || result->code != 0)
        doctor_add(d, FINDING_PROBLEM, CHECK,
                   tool_printf("When %s, named by %s, is started, %s.", library, source,
                               child_end_text(result, why, sizeof why)),
                   tool_printf("Update the driver, or remove %s.", source));
    else if (strcmp(result->answer, "0") == 0)
        doctor_add(d, FINDING_NOTE, CHECK,
                   tool_printf("%s loads but finds no device of its own.", library),
                   tool_printf("If its device is in this machine, look at the device nodes below "
                               "and the kernel's log (dmesg)."));
    else
        doctor_add(d, FINDING_OK, CHECK, tool_printf("%s loads (%s).", library, source), NULL);
}

static void check_library(doctor *d, const char *library, const char *source)
{
    const char *const args[] = {"load-icd", library, NULL};
    child_result      result;

    child_run(args, ICD_TIMEOUT_S, &result);
    judge_load(d, library, source, &result);
    free(result.answer);
}

/* The first line of a .icd file without blanks around it; NULL with errno. */
static char *read_icd(const char *path)
{
    size_t size;
    char  *data = usm__os_read_file(path, 65536, &size), *line, *text;

    if (!data)
        return NULL;
    line                        = data + strspn(data, " \t");
    line[strcspn(line, "\r\n")] = '\0';
    for (size_t n = strlen(line); n > 0 && (line[n - 1] == ' ' || line[n - 1] == '\t'); n--)
        line[n - 1] = '\0';
    text = tool_printf("%s", line);
    usm__heap_free(data);
    return text;
}

static void check_icd_file(doctor *d, const char *path)
{
    char *library = read_icd(path);
    int   error   = errno;

    if (!library)
        doctor_add(d, FINDING_PROBLEM, CHECK,
                   tool_printf("%s cannot be read: %s.", path, strerror(error)),
                   error == EACCES ? tool_printf("Make it readable: chmod a+r %s", path)
                                   : tool_printf("Correct the path, or remove the file."));
    else if (!*library)
        doctor_add(d, FINDING_PROBLEM, CHECK, tool_printf("%s names no library.", path),
                   tool_printf("Write the path of the driver's library on its first line, or "
                               "remove it."));
    else
        check_library(d, library, path);
    free(library);
}

/* --- all drivers ------------------------------------------------------------ */

/* The folder that the loader reads, and the variable that names it (NULL: the default). */
typedef struct vendors {
    char       *path;
    const char *variable;
} vendors;

static vendors find_vendors(const doctor *d)
{
    static const char *const variables[] = {"OCL_ICD_VENDORS", "OPENCL_VENDOR_PATH"};
    vendors                  v           = {NULL, NULL};

    for (size_t i = 0; i < sizeof variables / sizeof *variables; i++) {
        const char *value = getenv(variables[i]);

        if (value && *value) {
            v.path     = tool_printf("%s", value);
            v.variable = variables[i];
            return v;
        }
    }
    v.path = doctor_path(d, VENDORS_FOLDER);
    return v;
}

static bool is_icd_name(const char *name)
{
    size_t len = strlen(name);

    return len > 4 && strcmp(name + len - 4, ".icd") == 0;
}

static int is_icd(const struct dirent *entry)
{
    return is_icd_name(entry->d_name);
}

/* Calls fn for every .icd file of a folder; returns their number, or -1 with errno. */
static int each_icd(const char *folder, void (*fn)(const char *path, void *arg), void *arg)
{
    struct dirent **entries = NULL;
    int             n       = scandir(folder, &entries, is_icd, alphasort);

    for (int i = 0; i < n; i++) {
        char *path = tool_printf("%s/%s", folder, entries[i]->d_name);

        fn(path, arg);
        free(path);
        free(entries[i]);
    }
    free(entries);
    return n;
}

static void check_entry(const char *path, void *arg)
{
    check_icd_file(arg, path);
}

#define INSTALL_A_DRIVER                                                                           \
    "Install a driver: pocl-opencl-icd (any CPU), intel-opencl-icd (Intel GPU), or the vendor's"

static void report_no_driver(doctor *d, const vendors *v, int n)
{
    if (n < 0 && v->variable)
        doctor_add(d, FINDING_PROBLEM, CHECK,
                   tool_printf("%s names %s: %s.", v->variable, v->path, strerror(errno)),
                   tool_printf("Unset %s, or name a folder with .icd files.", v->variable));
    else
        doctor_add(d, FINDING_PROBLEM, CHECK,
                   tool_printf("OpenCL has no driver: %s holds no .icd file.", v->path),
                   v->variable ? tool_printf(INSTALL_A_DRIVER ", and put its .icd file there; or "
                                                              "unset %s.",
                                             v->variable)
                               : tool_printf(INSTALL_A_DRIVER "."));
}

static bool is_folder(const char *path)
{
    struct stat st;

    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

/* OCL_ICD_VENDORS=name.icd without a folder is first looked for among the system's files. */
static char *named_icd(const doctor *d, const char *name)
{
    char *path = tool_printf("%s%s/%s", d->root, VENDORS_FOLDER, name);

    if (strchr(name, '/') || access(path, R_OK) != 0) {
        free(path);
        path = tool_printf("%s", name);
    }
    return path;
}

static void check_vendors(doctor *d, const vendors *v, bool has_loader)
{
    bool may_be_file = v->variable && strcmp(v->variable, "OCL_ICD_VENDORS") == 0;
    int  n;

    if (may_be_file && !is_folder(v->path) && is_icd_name(v->path)) {
        char *path = named_icd(d, v->path);

        check_icd_file(d, path);
        free(path);
    } else if (may_be_file && !is_folder(v->path) && strstr(v->path, ".so")) {
        check_library(d, v->path, v->variable);
    } else {
        n = each_icd(v->path, check_entry, d);
        if (n <= 0 && (has_loader || v->variable))
            report_no_driver(d, v, n);
    }
}

#define FILENAMES "OCL_ICD_FILENAMES"

/* The file of a loader that is open; NULL: it has no function of OpenCL. */
static const char *file_of(void *loader)
{
    const void *function = dlsym(loader, "clGetPlatformIDs");
    Dl_info     info;

    return function && dladdr(function, &info) ? info.dli_fname : NULL;
}

/* A loader that reads a variable has its name among its constants.  True if that is not known. */
static bool reads_filenames(const char *loader)
{
    size_t size = 0;
    char  *data = usm__os_read_file(loader, LOADER_MAX, &size);
    bool   does = !data || memmem(data, size, FILENAMES, strlen(FILENAMES));

    usm__heap_free(data);
    return does;
}

/* The value of OCL_ICD_FILENAMES, libraries separated by colons; NULL: none, or the loader, whose
 * file `ignored_by` then is, does not read it. */
static const char *find_filenames(const char **ignored_by)
{
    const char *value  = getenv(FILENAMES);
    void       *loader = value && *value ? dlopen(LOADER, RTLD_NOW | RTLD_LOCAL) : NULL;
    const char *file   = loader ? file_of(loader) : NULL;

    *ignored_by = file && !reads_filenames(file) ? file : NULL;
    return value && *value && !*ignored_by ? value : NULL;
}

static bool check_filenames(doctor *d)
{
    const char *ignored_by;
    const char *value = find_filenames(&ignored_by);
    char       *list, *save = NULL;

    if (ignored_by)
        doctor_add(d, FINDING_PROBLEM, CHECK,
                   tool_printf(FILENAMES " is set, but the loader %s does not read it: the drivers "
                                         "that it names are not used.",
                               ignored_by),
                   tool_printf("Name each in an .icd file in " VENDORS_FOLDER
                               ", or let Khronos's loader be found first."));
    if (!value)
        return false;
    list = tool_printf("%s", value);
    for (char *it = strtok_r(list, ":", &save); it; it = strtok_r(NULL, ":", &save))
        check_library(d, it, FILENAMES);
    free(list);
    return true;
}

static bool check_loader(doctor *d)
{
    void       *loader = dlopen(LOADER, RTLD_NOW | RTLD_LOCAL);
    const char *why    = loader ? NULL : dlerror();

    if (loader) {
        doctor_add(d, FINDING_OK, "OpenCL loader", tool_printf(LOADER " loads."), NULL);
        return true;
    }
    if (strstr(why, LOADER ": cannot open shared object file") == why)
        doctor_add(d, FINDING_NOTE, "OpenCL loader",
                   tool_printf("There is no OpenCL loader (" LOADER "): only the host is left."),
                   tool_printf("Install ocl-icd-libopencl1 and a driver, e.g. pocl-opencl-icd."));
    else
        doctor_add(d, FINDING_PROBLEM, "OpenCL loader",
                   tool_printf("The OpenCL loader does not load: %s.", why),
                   tool_printf("Reinstall ocl-icd-libopencl1, or remove the file that is named."));
    return false;
}

void doctor_check_opencl(doctor *d)
{
    bool    has_loader = check_loader(d);
    vendors v          = find_vendors(d);

    if (!check_filenames(d) || v.variable)
        check_vendors(d, &v, has_loader);
    free(v.path);
}

/* --- asked by the device nodes ---------------------------------------------- */

typedef struct icd_search {
    const char *part;
    bool        found;
} icd_search;

static void match_entry(const char *path, void *arg)
{
    icd_search *search  = arg;
    char       *library = read_icd(path);

    search->found |= library && strstr(library, search->part);
    free(library);
}

bool doctor_has_icd(const doctor *d, const char *part)
{
    icd_search  search = {part, false};
    vendors     v      = find_vendors(d);
    const char *ignored_by;
    const char *filenames = find_filenames(&ignored_by);

    search.found = strstr(v.path, part) || (filenames && strstr(filenames, part));
    if (!search.found)
        each_icd(v.path, match_entry, &search);
    free(v.path);
    return search.found;
}
