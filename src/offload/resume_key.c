/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The key of a file to resume from: hashes of everything on which its results depend, besides the
 * launch's shape (plan.c).  These are the program, and the bytes that chunks read.  A launch that
 * continued from the results of another program or of other inputs would mix two answers.
 *
 *     program  the images' bytes, options, names of native kernels
 *     inputs   the caller's resume_key; or the bytes of all arguments that are only read and, where
 *              the kernel has native code, all read-only segments of the executable or library
 *              that contains it: a function has no size, and it calls others and reads tables
 *
 * The segments contain no addresses that the loader wrote, so two processes see the same bytes.
 *
 * Some inputs cannot be determined, and such a launch is refused if it has no resume_key: chunks
 * that are read and written, because ended chunks have changed some; inputs that take long to read;
 * native code that is in no file. */
#include "offload/resume.h"

#include "base/inline/bits.h"
#include "spill/tier_sum.h"

#include <link.h>
#include <string.h>

#define INPUTS_MOST ((size_t)256 << 20) /* takes some 30 ms */
#define WINDOW      ((size_t)1 << 20)   /* of a buffer, in memory at a time */

/* ---- the program ----------------------------------------------------------------------------- */

static void add_natives(usm_team_kernel *k, const usm_image *image)
{
    const usm_native_kernel *table = image->data;

    for (size_t i = 0; i < image->size / sizeof *table; i++) {
        usm__hash_text(&k->images, table[i].name);
        usm__hash_number(&k->images, table[i].nargs);
        if (!k->native && strcmp(table[i].name, k->name) == 0)
            k->native = table[i].fn;
    }
}

void usm__images_hash(usm_team_kernel *k, const usm_program_desc *program)
{
    k->images = (usm__hash)USM__HASH_INIT;
    usm__hash_text(&k->images, program->options ? program->options : "");
    for (size_t i = 0; i < program->nimages; i++) {
        const usm_image *image = &program->images[i];

        usm__hash_number(&k->images, image->type);
        usm__hash_number(&k->images, image->size);
        if (image->type == USM_IMAGE_NATIVE)
            add_natives(k, image);
        else
            usm__hash_number(&k->images, usm__xxh3(image->data, image->size, 0));
    }
}

typedef struct search {
    uintptr_t function;
    usm__hash hash;
} search;

static bool is_in(const struct dl_phdr_info *object, const ElfW(Phdr) * segment, uintptr_t at)
{
    return segment->p_type == PT_LOAD && at - object->dlpi_addr >= segment->p_vaddr &&
           at - object->dlpi_addr - segment->p_vaddr < segment->p_memsz;
}

/* Also reads what AddressSanitizer keeps between variables of the program. */
__attribute__((no_sanitize_address)) static void copy_bytes(volatile char *to, const char *from,
                                                            size_t size)
{
    for (size_t i = 0; i < size; i++)
        to[i] = from[i];
}

static void add_segment(usm__hash *h, const char *from, size_t size)
{
    char piece[4096];

    for (size_t at = 0, n; at < size; at += n) {
        n = usm_min_size(size - at, sizeof piece);
        copy_bytes(piece, from + at, n);
        usm__hash_number(h, usm__xxh3(piece, n, 0));
    }
}

/* Called by dl_iterate_phdr(): returns 1 for the object that contains the function. */
static int add_object(struct dl_phdr_info *object, size_t size, void *arg)
{
    search *s     = arg;
    bool    is_it = false;

    (void)size;
    for (unsigned i = 0; i < object->dlpi_phnum; i++)
        is_it = is_it || is_in(object, &object->dlpi_phdr[i], s->function);
    if (!is_it)
        return 0;
    usm__hash_number(&s->hash, s->function - object->dlpi_addr);
    for (unsigned i = 0; i < object->dlpi_phnum; i++) {
        const ElfW(Phdr) *segment = &object->dlpi_phdr[i];

        if (segment->p_type == PT_LOAD && (segment->p_flags & (PF_R | PF_W)) == PF_R)
            add_segment(&s->hash, (const char *)(object->dlpi_addr + segment->p_vaddr),
                        segment->p_memsz);
    }
    return 1;
}

static usm_status add_code(const usm__plan *p, usm__hash *h)
{
    const usm_team_kernel *k = p->desc.kernel;
    search                 s = {(uintptr_t)k->native, *h};

    if (k->native && dl_iterate_phdr(add_object, &s) == 0)
        return usm__fail(USM_E_INVALID,
                         "resume: the native code of kernel \"%s\" is in no file that was loaded, "
                         "so a later process cannot check whether its own is the same; set "
                         "resume_key to something that changes with the code and the inputs",
                         k->name);
    *h = s.hash;
    return USM_OK;
}

/* ---- inputs ---------------------------------------------------------------------------------- */

/* The bytes to which private copies are initialized are inputs.  Sums, minima and maxima start with
 * a neutral element instead. */
static bool is_input(const usm_split_arg *a)
{
    switch (a->follow) {
    case USM_FOLLOW_WHOLE:
        return true;
    case USM_FOLLOW_CHUNK:
        return a->mode == USM_READ;
    case USM_FOLLOW_PRIVATE:
        return a->merge != USM_MERGE_SUM && a->merge != USM_MERGE_MIN && a->merge != USM_MERGE_MAX;
    case USM_FOLLOW_VALUE: /* part of the shape */
    case USM_FOLLOW_SCRATCH:
        break;
    }
    return false;
}

/* The first number of a search result is overwritten in each copy. */
static size_t begin_of(const usm_split_arg *a)
{
    bool is_search = a->follow == USM_FOLLOW_PRIVATE && a->merge == USM_MERGE_FIRST;

    return is_search ? sizeof(int64_t) : 0;
}

static usm_status check_inputs(const usm__plan *p)
{
    size_t all = 0;

    for (size_t i = 0; i < p->desc.nargs; i++) {
        const usm_split_arg *a = &p->desc.args[i];

        if (usm__is_saved(a) && (a->mode & USM_READ))
            return usm__fail(USM_E_INVALID,
                             "resume: chunks of argument %zu are read and written, so what they "
                             "were at first cannot be compared; set resume_key to something that "
                             "differs where the inputs do",
                             i);
        if (is_input(a))
            all += usm_min_size(a->size, INPUTS_MOST + 1);
        if (all > INPUTS_MOST)
            return usm__fail(USM_E_INVALID,
                             "resume: inputs of more than %zu MiB are not compared byte by byte; "
                             "set resume_key to something that differs where the inputs do",
                             INPUTS_MOST >> 20);
    }
    return USM_OK;
}

static usm_status add_input(usm__plan *p, size_t i, usm__hash *h)
{
    const usm_split_arg *a = &p->desc.args[i];

    for (size_t at = begin_of(a); at < a->size; at += WINDOW) {
        usm__piece piece = {0};
        size_t     size  = usm_min_size(a->size - at, WINDOW);
        usm_status st    = usm__bytes_local.open(p, i, at, size, USM_READ, &piece);

        if (st != USM_OK)
            return st;
        usm__hash_number(h, usm__xxh3(piece.ptr, size, 0));
        (void)usm__bytes_local.close(p, i, at, USM_READ, &piece, USM_OK);
    }
    return USM_OK;
}

static usm_status hash_inputs(usm__plan *p, usm__hash *h)
{
    usm_status st;

    *h = (usm__hash)USM__HASH_INIT;
    if (p->desc.resume_key) {
        usm__hash_text(h, p->desc.resume_key);
        return USM_OK;
    }
    st = check_inputs(p);
    if (st == USM_OK)
        st = add_code(p, h);
    for (size_t i = 0; i < p->desc.nargs && st == USM_OK; i++)
        if (is_input(&p->desc.args[i]))
            st = add_input(p, i, h);
    return st;
}

usm_status usm__resume_key_make(usm__plan *plan, usm__resume_key *key)
{
    key->program = plan->desc.kernel->images;
    return hash_inputs(plan, &key->inputs);
}
