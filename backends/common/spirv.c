/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Reads the kinds of kernel arguments from a SPIR-V module (kinds.c has the reason).  This file
 * does not validate: an unexpected module gives no kinds, and the driver decides.
 *
 * A module consists of words: a header of five (magic, version, generator, bound of ids, 0), then
 * instructions, each with its length and opcode in the first word.  Entry points come before types
 * and types before functions, so a single pass is sufficient.
 *
 * Called by the program.c of each backend, with data of any origin: every index is checked. */
#include "kinds.h"

#include <string.h>

enum { MAGIC = 0x07230203, HEADER_WORDS = 5 };

enum opcode {
    OP_ENTRY_POINT        = 15,
    OP_TYPE_INT           = 21,
    OP_TYPE_MATRIX        = 24,
    OP_TYPE_ARRAY         = 28,
    OP_TYPE_STRUCT        = 30,
    OP_TYPE_POINTER       = 32,
    OP_FUNCTION           = 54,
    OP_FUNCTION_PARAMETER = 55,
    OP_FUNCTION_END       = 56
};

enum storage_class {
    CLASS_UNIFORM_CONSTANT = 0,
    CLASS_WORKGROUP        = 4,
    CLASS_CROSS_WORKGROUP  = 5,
    CLASS_FUNCTION         = 7,
    CLASS_GENERIC          = 8
};

enum { EXECUTION_MODEL_KERNEL = 6 };

typedef struct reader {
    const char *data;
    size_t      words;
    uint32_t    bound;
    uint32_t   *names; /* by id of a function: the word its name starts at, or 0 */
    char       *types; /* by id of a type: the letter of its kind, or 0          */
    char       *text;  /* the result                                             */
    size_t      used, size;
    bool        is_in_kernel;
} reader;

static uint32_t word(const reader *r, size_t i)
{
    uint32_t w;

    memcpy(&w, r->data + 4 * i, sizeof(w)); /* the data may be unaligned */
    return w;
}

static void put(reader *r, char c)
{
    if (r->used + 1 < r->size)
        r->text[r->used++] = c;
}

static usm_arg_kind pointer_kind(uint32_t storage)
{
    switch (storage) {
    case CLASS_UNIFORM_CONSTANT:
    case CLASS_CROSS_WORKGROUP:
    case CLASS_GENERIC:
        return USM_ARG_POINTER;
    case CLASS_WORKGROUP:
        return USM_ARG_LOCAL;
    case CLASS_FUNCTION: /* a struct by value */
        return USM_ARG_VALUE;
    default:
        return USM_ARG_NONE;
    }
}

/* Stores where an entry point's name starts, if it ends within its instruction. */
static void read_entry_point(reader *r, size_t at, size_t n)
{
    uint32_t id = n > 3 ? word(r, at + 2) : 0;

    if (n > 3 && word(r, at + 1) == EXECUTION_MODEL_KERNEL && id < r->bound &&
        memchr(r->data + 4 * (at + 3), '\0', 4 * (n - 3)))
        r->names[id] = (uint32_t)(at + 3);
}

static void read_type(reader *r, size_t at, size_t n, uint32_t opcode)
{
    uint32_t     id   = n > 1 ? word(r, at + 1) : 0;
    usm_arg_kind kind = USM_ARG_VALUE;

    if (opcode == OP_TYPE_POINTER)
        kind = n > 2 ? pointer_kind(word(r, at + 2)) : USM_ARG_NONE;
    if (id < r->bound)
        r->types[id] = KINDS_LETTERS[kind];
}

static void begin_function(reader *r, size_t at, size_t n)
{
    uint32_t id = n > 2 ? word(r, at + 2) : 0;

    if (id >= r->bound || !r->names[id])
        return;
    r->is_in_kernel = true;
    for (const char *c = r->data + 4 * (size_t)r->names[id]; *c; c++)
        put(r, *c);
    put(r, '=');
}

static void read_parameter(reader *r, size_t at, size_t n)
{
    uint32_t id     = n > 1 ? word(r, at + 1) : 0;
    char     letter = KINDS_LETTERS[USM_ARG_NONE];

    if (id < r->bound && r->types[id])
        letter = r->types[id];
    if (r->is_in_kernel)
        put(r, letter);
}

static void read_instruction(reader *r, size_t at, size_t n, uint32_t opcode)
{
    if (opcode == OP_ENTRY_POINT)
        read_entry_point(r, at, n);
    else if ((opcode >= OP_TYPE_INT && opcode <= OP_TYPE_MATRIX) || opcode == OP_TYPE_ARRAY ||
             opcode == OP_TYPE_STRUCT || opcode == OP_TYPE_POINTER)
        read_type(r, at, n, opcode);
    else if (opcode == OP_FUNCTION)
        begin_function(r, at, n);
    else if (opcode == OP_FUNCTION_PARAMETER)
        read_parameter(r, at, n);
    else if (opcode == OP_FUNCTION_END && r->is_in_kernel) {
        put(r, ';');
        r->is_in_kernel = false;
    }
}

static void read_module(reader *r)
{
    size_t at = HEADER_WORDS;

    while (at < r->words) {
        uint32_t first = word(r, at);
        size_t   n     = first >> 16;

        if (n == 0 || n > r->words - at)
            return;
        read_instruction(r, at, n, first & 0xffff);
        at += n;
    }
}

usm_status kinds_of_spirv(const usm_host_api *host, const void *data, size_t size, char **kinds)
{
    reader     r      = {.data = data, .words = size / 4, .size = size};
    usm_status status = USM_OK;

    if (r.words <= HEADER_WORDS || r.words > UINT32_MAX || word(&r, 0) != MAGIC)
        return USM_OK;
    r.bound = word(&r, 3);
    if (r.bound > r.words) /* each id needs an instruction */
        return USM_OK;
    r.names = host->heap_alloc(r.bound * sizeof(*r.names) + 1);
    r.types = host->heap_alloc(r.bound + 1);
    r.text  = host->heap_alloc(r.size);
    if (r.names && r.types && r.text) {
        read_module(&r);
        *kinds = r.text;
    } else {
        host->heap_free(r.text);
        status = host->report(USM_E_NO_MEMORY, "the host heap is exhausted");
    }
    host->heap_free(r.types);
    host->heap_free(r.names);
    return status;
}
