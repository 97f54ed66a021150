/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Native modules: a shared object given as bytes, loaded from a memory file.
 *
 * The C library trusts what it loads, so the headers are judged first: a truncated or foreign file
 * is refused with a reason instead of a crash.  An object's name in the C library is
 * /proc/self/fd/N, and a name it has seen is not loaded twice: the descriptor stays open until the
 * object has really gone, else the next module with the same N would be this one.
 *
 * Called by module.c and code.c.  Not here: what a native module looks like, see soft_kernel.h. */
#include "module.h"

#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define MAX_ARGS 4096 /* of a kernel; more is no table of ours */

#if UINTPTR_MAX == UINT64_MAX
#define ELF_CLASS ELFCLASS64
#else
#define ELF_CLASS ELFCLASS32
#endif

#if defined(__x86_64__)
#define ELF_MACHINE EM_X86_64
#elif defined(__aarch64__)
#define ELF_MACHINE EM_AARCH64
#elif defined(__riscv)
#define ELF_MACHINE EM_RISCV
#elif defined(__powerpc64__)
#define ELF_MACHINE EM_PPC64
#else
#define ELF_MACHINE EM_NONE /* not judged */
#endif

static const char *judge_header(const uint8_t *data, size_t size, ElfW(Ehdr) * header)
{
    if (size < sizeof(*header))
        return "is shorter than an ELF header";
    memcpy(header, data, sizeof(*header));
    if (memcmp(header->e_ident, ELFMAG, SELFMAG) != 0)
        return "is no ELF file";
    if (header->e_ident[EI_CLASS] != ELF_CLASS ||
        (ELF_MACHINE != EM_NONE && header->e_machine != ELF_MACHINE))
        return "is for another machine";
    if (header->e_type != ET_DYN)
        return "is no shared object";
    if (header->e_phentsize != sizeof(ElfW(Phdr)))
        return "has program headers of an odd size";
    if (header->e_phoff > size || header->e_phnum > (size - header->e_phoff) / sizeof(ElfW(Phdr)))
        return "ends before its program headers do";
    return NULL;
}

/* Why these bytes are not loaded, or NULL. */
static const char *judge(const uint8_t *data, size_t size)
{
    ElfW(Ehdr) header;
    ElfW(Phdr) segment;
    const char *why        = judge_header(data, size, &header);
    bool        is_dynamic = false;

    if (why)
        return why;
    for (size_t i = 0; i < header.e_phnum; i++) {
        memcpy(&segment, data + header.e_phoff + i * sizeof(segment), sizeof(segment));
        if (segment.p_type != PT_NULL &&
            (segment.p_offset > size || segment.p_filesz > size - segment.p_offset))
            return "ends before its segments do";
        is_dynamic = is_dynamic || segment.p_type == PT_DYNAMIC;
    }
    return is_dynamic ? NULL : "has no dynamic section";
}

static ze_result_t refuse(soft_text *log, const char *why)
{
    soft_text_add(log, "native module: %s\n", why);
    return ZE_RESULT_ERROR_INVALID_NATIVE_BINARY;
}

static int memory_file(const uint8_t *data, size_t size)
{
    int    fd   = memfd_create("ze_soft module", MFD_CLOEXEC);
    size_t done = 0;

    while (fd >= 0 && done < size) {
        ssize_t n = write(fd, data + done, size - done);

        if (n <= 0) {
            close(fd);
            return -1;
        }
        done += (size_t)n;
    }
    return fd;
}

static ze_result_t open_object(soft_code *code, soft_text *log)
{
    char path[32];
    int  fd = memory_file(code->units[0].data, code->units[0].size);

    if (fd < 0)
        return ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    code->object = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!code->object) {
        const char *why = dlerror();

        close(fd);
        return refuse(log, why ? why : "the C library does not load it");
    }
    code->object_fd = fd;
    return ZE_RESULT_SUCCESS;
}

static soft_arg arg_of(uint32_t size)
{
    if (size == ZE_SOFT_ARG_POINTER)
        return (soft_arg){SOFT_ARG_POINTER, sizeof(void *)};
    if (size == ZE_SOFT_ARG_LOCAL)
        return (soft_arg){SOFT_ARG_LOCAL, 0};
    return (soft_arg){SOFT_ARG_VALUE, size};
}

static ze_result_t add_kernel(soft_unit *unit, const ze_soft_kernel *kernel)
{
    soft_function *function = soft_unit_add_function(unit);

    if (!function)
        return ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    function->name = strdup(kernel->name);
    function->args = calloc(kernel->nargs ? kernel->nargs : 1, sizeof(*function->args));
    if (!function->name || !function->args)
        return ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    function->nargs  = (uint32_t)kernel->nargs;
    function->native = kernel->fn;
    for (int d = 0; d < 3; d++)
        function->required[d] = (uint32_t)kernel->required[d];
    for (size_t i = 0; i < kernel->nargs; i++)
        function->args[i] = arg_of(kernel->sizes[i]);
    return ZE_RESULT_SUCCESS;
}

static ze_result_t read_table(soft_code *code, soft_text *log)
{
    const ze_soft_table *table = dlsym(code->object, "ze_soft_kernels");

    if (!table)
        return refuse(log,
                      "has no ze_soft_kernels: end it with ZE_SOFT_KERNELS() of soft_kernel.h");
    if (table->abi != ZE_SOFT_KERNEL_ABI || (table->nkernels && !table->kernels))
        return refuse(log, "was built with another soft_kernel.h: build it again");
    for (uint32_t i = 0; i < table->nkernels; i++) {
        const ze_soft_kernel *kernel = &table->kernels[i];
        ze_result_t           result;

        if (!kernel->name || !kernel->fn || (kernel->nargs && !kernel->sizes))
            return refuse(log, "has a kernel without name, function or sizes");
        if (kernel->nargs > MAX_ARGS)
            return refuse(log, "has a kernel with too many arguments");
        result = add_kernel(&code->units[0], kernel);
        if (result)
            return result;
    }
    return ZE_RESULT_SUCCESS;
}

ze_result_t soft_elf_load(soft_code *code, soft_text *log)
{
    const char *why = judge(code->units[0].data, code->units[0].size);
    ze_result_t result;

    if (why)
        return refuse(log, why);
    result = open_object(code, log);
    return result ? result : read_table(code, log);
}

void soft_elf_unload(soft_code *code)
{
    char  path[32];
    void *still;

    if (!code->object)
        return;
    dlclose(code->object);
    snprintf(path, sizeof(path), "/proc/self/fd/%d", code->object_fd);
    still = dlopen(path, RTLD_NOW | RTLD_NOLOAD);
    if (!still) {
        close(code->object_fd);
        return;
    }
    dlclose(still); /* an object that may not be unloaded keeps its name, and so the descriptor */
}

void *soft_elf_symbol(const soft_code *code, const char *name, bool is_function, size_t *size)
{
    void *address = dlsym(code->object, name);
    void *extra   = NULL;
    const ElfW(Sym) * symbol;
    struct link_map *map;
    Dl_info          info;

    if (!address || !dladdr1(address, &info, &extra, RTLD_DL_SYMENT) || !extra)
        return NULL;
    /* Its own, not one of a library that it needs. */
    if (dlinfo(code->object, RTLD_DI_LINKMAP, &map) ||
        (uintptr_t)info.dli_fbase != (uintptr_t)map->l_addr)
        return NULL;
    symbol = extra;
    if ((ELF64_ST_TYPE(symbol->st_info) == STT_FUNC) != is_function)
        return NULL;
    if (size)
        *size = symbol->st_size;
    return address;
}
