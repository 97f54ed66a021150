/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* A reader of symbols.  The map of code tells which file an address came from, and where in it; the
 * file's program headers turn that into the linker's address, and .symtab or .dynsym into a
 * function.  It reads 64-bit ELF of this machine's byte order; anything else has no names.  Files
 * are read when the first address in them is looked up, and kept; their content is checked, not
 * trusted. */
#include "profile/symbols.h"

#include "base/os.h"

#include <elf.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct function {
    uint64_t    at, size;
    const char *name; /* in the module's data */
} function;

typedef struct module {
    char     *path;
    bool      loaded;
    char     *data; /* NULL: cannot be read */
    size_t    size;
    function *functions; /* by address */
    size_t    nfunctions;
} module;

/* A line of a source's map of code. */
typedef struct range {
    uint64_t start, end, offset;
    uint32_t source;
    size_t   module;
} range;

struct usm__symbols {
    const usm__profile *t;
    range              *ranges;
    size_t              nranges, ranges_cap;
    module             *modules;
    size_t              nmodules, modules_cap;
};

/* --- ELF -------------------------------------------------------------------- */

/* Whether `n` elements of `each` bytes at `offset` are inside the file. */
static bool fits(const module *m, uint64_t offset, uint64_t n, uint64_t each)
{
    return offset <= m->size && n <= (m->size - offset) / each;
}

static bool read_elf(const module *m, Elf64_Ehdr *h)
{
    if (m->data == NULL || !fits(m, 0, 1, sizeof(*h)))
        return false;
    memcpy(h, m->data, sizeof(*h));
    return memcmp(h->e_ident, ELFMAG, SELFMAG) == 0 && h->e_ident[EI_CLASS] == ELFCLASS64 &&
           h->e_ident[EI_DATA] == ELFDATA2LSB && h->e_phentsize == sizeof(Elf64_Phdr) &&
           fits(m, h->e_phoff, h->e_phnum, sizeof(Elf64_Phdr));
}

/* The linker's address of the byte at `offset` of the file. */
static bool linked_address(const module *m, uint64_t offset, uint64_t *address)
{
    Elf64_Ehdr h;
    Elf64_Phdr p;

    if (!read_elf(m, &h))
        return false;
    for (unsigned i = 0; i < h.e_phnum; i++) {
        memcpy(&p, m->data + h.e_phoff + i * sizeof(p), sizeof(p));
        if (p.p_type == PT_LOAD && offset >= p.p_offset && offset - p.p_offset < p.p_filesz) {
            *address = offset - p.p_offset + p.p_vaddr;
            return true;
        }
    }
    return false;
}

static bool section(const module *m, const Elf64_Ehdr *h, uint64_t i, Elf64_Shdr *s)
{
    if (h->e_shentsize != sizeof(*s) || i >= h->e_shnum ||
        !fits(m, h->e_shoff, h->e_shnum, sizeof(*s)))
        return false;
    memcpy(s, m->data + h->e_shoff + i * sizeof(*s), sizeof(*s));
    return s->sh_type == SHT_NOBITS || fits(m, s->sh_offset, s->sh_size, 1);
}

static int by_address(const void *a, const void *b)
{
    const function *f = a, *g = b;

    return (f->at > g->at) - (f->at < g->at);
}

static void read_table(module *m, const Elf64_Shdr *table, const Elf64_Shdr *names)
{
    size_t    n = table->sh_size / sizeof(Elf64_Sym);
    Elf64_Sym s;

    if (names->sh_size == 0 || m->data[names->sh_offset + names->sh_size - 1] != '\0')
        return; /* the last name would not end */
    m->functions = usm__heap_alloc(n * sizeof(*m->functions));
    for (size_t i = 0; i < n && m->functions != NULL; i++) {
        memcpy(&s, m->data + table->sh_offset + i * sizeof(s), sizeof(s));
        if (ELF64_ST_TYPE(s.st_info) == STT_FUNC && s.st_value != 0 && s.st_name < names->sh_size)
            m->functions[m->nfunctions++] =
                (function){s.st_value, s.st_size, m->data + names->sh_offset + s.st_name};
    }
    if (m->functions != NULL)
        qsort(m->functions, m->nfunctions, sizeof(*m->functions), by_address);
}

/* .symtab if it exists, because it also has the static functions, else .dynsym. */
static void read_symbols(module *m)
{
    static const uint32_t wanted[] = {SHT_SYMTAB, SHT_DYNSYM};
    Elf64_Ehdr            h;
    Elf64_Shdr            s, names;

    if (!read_elf(m, &h))
        return;
    for (int k = 0; k < 2; k++)
        for (uint64_t i = 0; i < h.e_shnum && m->nfunctions == 0; i++)
            if (section(m, &h, i, &s) && s.sh_type == wanted[k] && m->functions == NULL &&
                section(m, &h, s.sh_link, &names) && names.sh_type == SHT_STRTAB)
                read_table(m, &s, &names);
}

static void load(module *m)
{
    if (m->loaded)
        return;
    m->loaded = true;
    if (m->path[0] == '/')
        m->data = usm__os_read_file(m->path, SIZE_MAX, &m->size);
    read_symbols(m);
}

static const function *find_function(const module *m, uint64_t at)
{
    size_t low = 0, high = m->nfunctions;

    while (low < high) {
        size_t mid = low + (high - low) / 2;

        if (m->functions[mid].at <= at)
            low = mid + 1;
        else
            high = mid;
    }
    if (low == 0 || (m->functions[low - 1].size != 0 &&
                     at - m->functions[low - 1].at >= m->functions[low - 1].size))
        return NULL;
    return &m->functions[low - 1];
}

/* --- maps ------------------------------------------------------------------- */

/* Index of the module of that path, which is added if it is new; SIZE_MAX: no memory. */
static size_t module_of(usm__symbols *s, const char *path, size_t length)
{
    char *copy;

    for (size_t i = 0; i < s->nmodules; i++)
        if (strlen(s->modules[i].path) == length && memcmp(s->modules[i].path, path, length) == 0)
            return i;
    copy = usm__heap_alloc(length + 1);
    if (copy == NULL ||
        !usm__heap_room(&s->modules, s->nmodules, &s->modules_cap, sizeof(*s->modules))) {
        usm__heap_free(copy);
        return SIZE_MAX;
    }
    memcpy(copy, path, length);
    s->modules[s->nmodules] = (module){.path = copy};
    return s->nmodules++;
}

/* A line "start-end mode offset device inode   path". */
static bool add_line(usm__symbols *s, uint32_t source, const char *line, size_t length)
{
    range r    = {.source = source};
    int   path = 0;
    char  copy[4200];

    if (length >= sizeof(copy))
        return true; /* then it has no name */
    memcpy(copy, line, length);
    copy[length] = '\0';
    if (sscanf(copy, "%" SCNx64 "-%" SCNx64 " %*4s %" SCNx64 " %*s %*s %n", &r.start, &r.end,
               &r.offset, &path) < 3 ||
        path == 0)
        return true;
    r.module = module_of(s, copy + path, length - (size_t)path);
    if (r.module == SIZE_MAX ||
        !usm__heap_room(&s->ranges, s->nranges, &s->ranges_cap, sizeof(*s->ranges)))
        return false;
    s->ranges[s->nranges++] = r;
    return true;
}

static bool add_map(usm__symbols *s, uint32_t source, const char *text)
{
    bool fine = true;

    while (*text != '\0' && fine) {
        size_t length = strcspn(text, "\n");

        fine = add_line(s, source, text, length);
        text += length + (text[length] == '\n');
    }
    return fine;
}

static const range *find_range(const usm__symbols *s, uint32_t source, uint64_t address)
{
    for (size_t i = 0; i < s->nranges; i++)
        if (s->ranges[i].source == source && address >= s->ranges[i].start &&
            address < s->ranges[i].end)
            return &s->ranges[i];
    return NULL;
}

/* --- interface ---------------------------------------------------------------- */

usm__symbols *usm__symbols_open(const usm__profile *t)
{
    usm__symbols *s    = usm__heap_alloc(sizeof(*s));
    bool          fine = s != NULL;

    if (s != NULL)
        s->t = t;
    for (size_t i = 0; i < t->nsources && fine; i++)
        if (t->sources[i].maps != NULL)
            fine = add_map(s, (uint32_t)i, t->sources[i].maps);
    if (fine)
        return s;
    usm__symbols_close(s);
    return NULL;
}

void usm__symbols_close(usm__symbols *s)
{
    if (s == NULL)
        return;
    for (size_t i = 0; i < s->nmodules; i++) {
        usm__heap_free(s->modules[i].path);
        usm__heap_free(s->modules[i].data);
        usm__heap_free(s->modules[i].functions);
    }
    usm__heap_free(s->modules);
    usm__heap_free(s->ranges);
    usm__heap_free(s);
}

static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');

    return slash != NULL ? slash + 1 : path;
}

/* The function at the call before the return address; *r is its range or NULL. */
static const function *look_up(usm__symbols *s, uint32_t source, uint64_t address, const range **r,
                               uint64_t *linked)
{
    *r      = find_range(s, source, address - 1);
    *linked = address;
    if (*r == NULL)
        return NULL;
    *linked = address - (*r)->start + (*r)->offset;
    load(&s->modules[(*r)->module]);
    if (!linked_address(&s->modules[(*r)->module], *linked - 1, linked))
        return NULL;
    ++*linked;
    return find_function(&s->modules[(*r)->module], *linked - 1);
}

const char *usm__symbols_name(usm__symbols *s, uint32_t source, uint64_t address, char *out,
                              size_t size)
{
    const range    *r;
    uint64_t        linked;
    const function *f = look_up(s, source, address, &r, &linked);

    if (f != NULL)
        (void)snprintf(out, size, "%.200s+0x%" PRIx64 " (%.60s)", f->name, linked - f->at,
                       base_name(s->modules[r->module].path));
    else if (r != NULL)
        (void)snprintf(out, size, "%.60s+0x%" PRIx64, base_name(s->modules[r->module].path),
                       linked);
    else
        (void)snprintf(out, size, "0x%" PRIx64, address);
    return out;
}

/* How the names of files begin whose frames are passed over. */
static const char *const libusm[] = {"libusm", NULL};
/* Runtimes that libusm serves inside programs that do not know it (inside/), and C++'s library, whose
 * operator new calls malloc: what called the runtime is the program. */
static const char *const runtimes[] = {"libusm",    "libumf", "libur_",    "libpi_", "libsycl",
                                       "libOpenCL", "libze_", "libstdc++", "libc++", NULL};

static bool is_of(const usm__symbols *s, const range *r, const char *const *names)
{
    const char *name = r ? base_name(s->modules[r->module].path) : "";

    for (; *names; names++)
        if (strncmp(name, *names, strlen(*names)) == 0)
            return true;
    return false;
}

/* Index of the innermost frame that is in no such file; the depth if all are. */
static uint32_t first_beyond(const usm__symbols *s, const usm__profile_stack_info *stack,
                             const char *const *names)
{
    uint32_t i = 0;

    while (i < stack->depth && is_of(s, find_range(s, stack->source, stack->frames[i] - 1), names))
        i++;
    return i;
}

/* libusm.so and runtimes are recognised by their files; if libusm is linked into the program, it is
 * by the names of its entry points, above which there may be static functions. */
uint32_t usm__symbols_site(usm__symbols *s, const usm__profile_stack_info *stack)
{
    const range    *r;
    uint64_t        linked;
    uint32_t        i = first_beyond(s, stack, runtimes), site;
    const function *f;

    if (i == stack->depth) /* deeper than was recorded */
        i = first_beyond(s, stack, libusm);
    site = i;
    for (; i < stack->depth && i < site + 12 && site < 12; i++) {
        f = look_up(s, stack->source, stack->frames[i], &r, &linked);
        if (f != NULL && strncmp(f->name, "usm_", 4) == 0)
            site = i + 1;
    }
    return site;
}
