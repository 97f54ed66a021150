/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Reads what the driver must know of a SPIR-V module: kernels, their arguments and group sizes,
 * names it imports and exports; and sets specialization constants by writing new defaults into it,
 * which every runtime understands.
 *
 * A module is words: five of header (magic, version, generator, bound of ids, 0), then
 * instructions, each with its length and opcode in the first word.  One walk notes where each id is
 * defined, a second one reads what refers to ids.  The bytes come from anywhere: each index is
 * checked, and types that contain themselves end at a budget.
 *
 * Called by module.c.  Not here: whether the module is valid, which the runtime decides. */
#include "module.h"

#include <stdlib.h>
#include <string.h>

enum { MAGIC = 0x07230203, HEADER_WORDS = 5, MODEL_KERNEL = 6, TYPE_BUDGET = 1000 };

enum opcode {
    OP_ENTRY_POINT          = 15,
    OP_EXECUTION_MODE       = 16,
    OP_TYPE_BOOL            = 20,
    OP_TYPE_INT             = 21,
    OP_TYPE_FLOAT           = 22,
    OP_TYPE_VECTOR          = 23,
    OP_TYPE_ARRAY           = 28,
    OP_TYPE_STRUCT          = 30,
    OP_TYPE_POINTER         = 32,
    OP_TYPE_LAST            = 39,
    OP_CONSTANT_FIRST       = 41,
    OP_CONSTANT             = 43,
    OP_SPEC_CONSTANT_TRUE   = 48,
    OP_SPEC_CONSTANT_FALSE  = 49,
    OP_SPEC_CONSTANT        = 50,
    OP_FUNCTION             = 54,
    OP_FUNCTION_PARAMETER   = 55,
    OP_FUNCTION_END         = 56,
    OP_DECORATE             = 71,
    OP_LABEL                = 248,
    OP_EXECUTION_MODE_ID    = 331,
    OP_TYPE_UNTYPED_POINTER = 4417
};

enum decoration {
    DECORATION_SPEC_ID = 1,
    DECORATION_PACKED  = 10,
    DECORATION_BUILTIN = 11,
    DECORATION_LINKAGE = 41
};
enum mode {
    MODE_LOCAL_SIZE      = 17,
    MODE_LOCAL_SIZE_HINT = 18,
    MODE_SUBGROUP_SIZE   = 35,
    MODE_LOCAL_SIZE_ID   = 38
};
enum linkage { LINKAGE_EXPORT = 0, LINKAGE_IMPORT = 1 };
enum mark { MARK_PACKED = 1, MARK_BUILTIN = 2 };

enum storage_class {
    CLASS_UNIFORM_CONSTANT = 0,
    CLASS_WORKGROUP        = 4,
    CLASS_CROSS_WORKGROUP  = 5,
    CLASS_FUNCTION         = 7,
    CLASS_GENERIC          = 8
};

typedef struct reader {
    soft_unit *unit;
    uint32_t  *words;
    size_t     nwords;
    uint32_t   bound;
    uint32_t  *def;     /* by id: the word where it is defined, or 0 */
    uint8_t   *marks;   /* by id: enum mark */
    uint32_t  *entries; /* ids of the functions that unit->functions are */
    unsigned   budget;
} reader;

/* One instruction: its words are w[0..n). */
typedef struct instruction {
    const uint32_t *w;
    uint32_t        n, op;
} instruction;

static instruction at(const reader *r, size_t i)
{
    return (instruction){r->words + i, r->words[i] >> 16, r->words[i] & 0xffff};
}

/* What defines the id; n == 0 when nothing does. */
static instruction definition(const reader *r, uint32_t id)
{
    if (id >= r->bound || !r->def[id])
        return (instruction){NULL, 0, 0};
    return at(r, r->def[id]);
}

/* The text that starts at word k, or NULL when it does not end within the instruction; *next: the
 * word behind it. */
static const char *text(const instruction *in, uint32_t k, uint32_t *next)
{
    const char *chars = (const char *)(in->w + k);
    const char *end   = k < in->n ? memchr(chars, 0, 4 * (size_t)(in->n - k)) : NULL;

    if (end)
        *next = k + (uint32_t)((end - chars) / 4) + 1;
    return end ? chars : NULL;
}

/* --- first walk: definitions, entry points, marks --------------------------------------------- */

static void note_definition(reader *r, size_t i, const instruction *in)
{
    bool is_type =
        (in->op >= OP_TYPE_BOOL - 1 && in->op <= OP_TYPE_LAST) || in->op == OP_TYPE_UNTYPED_POINTER;
    bool     is_value = in->op >= OP_CONSTANT_FIRST && in->op <= OP_FUNCTION;
    uint32_t id       = 0;

    if (is_type && in->n > 1)
        id = in->w[1];
    else if (is_value && in->n > 2)
        id = in->w[2];
    if (id && id < r->bound)
        r->def[id] = (uint32_t)i;
}

static void note_mark(reader *r, const instruction *in)
{
    if (in->op != OP_DECORATE || in->n < 3 || in->w[1] >= r->bound)
        return;
    if (in->w[2] == DECORATION_PACKED)
        r->marks[in->w[1]] |= MARK_PACKED;
    if (in->w[2] == DECORATION_BUILTIN)
        r->marks[in->w[1]] |= MARK_BUILTIN;
}

static ze_result_t note_entry(reader *r, const instruction *in)
{
    uint32_t       next, *entries;
    const char    *name = in->n > 3 && in->w[1] == MODEL_KERNEL ? text(in, 3, &next) : NULL;
    soft_function *function;

    if (!name)
        return ZE_RESULT_SUCCESS;
    entries = realloc(r->entries, (r->unit->nfunctions + 1) * sizeof(*entries));
    if (!entries)
        return ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    r->entries                   = entries;
    entries[r->unit->nfunctions] = in->w[2];
    function                     = soft_unit_add_function(r->unit);
    if (!function)
        return ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    function->name = strdup(name);
    return function->name ? ZE_RESULT_SUCCESS : ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY;
}

static ze_result_t first_walk(reader *r, soft_text *log)
{
    for (size_t i = HEADER_WORDS; i < r->nwords;) {
        instruction in     = at(r, i);
        ze_result_t result = ZE_RESULT_SUCCESS;

        if (in.n == 0 || in.n > r->nwords - i) {
            soft_text_add(log, "SPIR-V: the instruction at word %zu reaches beyond the module\n",
                          i);
            return ZE_RESULT_ERROR_MODULE_BUILD_FAILURE;
        }
        note_definition(r, i, &in);
        note_mark(r, &in);
        if (in.op == OP_ENTRY_POINT)
            result = note_entry(r, &in);
        if (result)
            return result;
        i += in.n;
    }
    return ZE_RESULT_SUCCESS;
}

/* --- sizes of types --------------------------------------------------------------------------- */

typedef struct layout {
    uint64_t size, align; /* size 0: not known */
} layout;

static layout layout_of(reader *r, uint32_t type);

static uint64_t constant(const reader *r, uint32_t id)
{
    instruction in = definition(r, id);

    return (in.op == OP_CONSTANT || in.op == OP_SPEC_CONSTANT) && in.n > 3 ? in.w[3] : 0;
}

static uint64_t rounded(uint64_t n, uint64_t align)
{
    return align ? (n + align - 1) / align * align : n;
}

static layout struct_layout(reader *r, const instruction *in)
{
    bool   is_packed = r->marks[in->w[1]] & MARK_PACKED;
    layout sum       = {0, 1};

    for (uint32_t i = 2; i < in->n; i++) {
        layout member = layout_of(r, in->w[i]);

        if (!member.size || sum.size > UINT32_MAX)
            return (layout){0, 1};
        if (is_packed)
            member.align = 1;
        sum.size = rounded(sum.size, member.align) + member.size;
        if (member.align > sum.align)
            sum.align = member.align;
    }
    sum.size = rounded(sum.size, sum.align);
    return sum;
}

static layout repeated(layout element, uint64_t count)
{
    if (count > UINT32_MAX || element.size > UINT32_MAX)
        return (layout){0, 1};
    element.size *= count;
    return element;
}

static layout layout_of(reader *r, uint32_t type)
{
    instruction in = definition(r, type);
    layout      vector;

    if (in.n < 2 || r->budget == 0)
        return (layout){0, 1};
    r->budget--;
    switch (in.op) {
    case OP_TYPE_BOOL:
        return (layout){1, 1};
    case OP_TYPE_INT:
    case OP_TYPE_FLOAT:
        return in.n > 2 ? (layout){in.w[2] / 8, in.w[2] / 8} : (layout){0, 1};
    case OP_TYPE_VECTOR: /* three components take the room of four */
        vector =
            in.n > 3 ? repeated(layout_of(r, in.w[2]), in.w[3] == 3 ? 4 : in.w[3]) : (layout){0, 1};
        return (layout){vector.size, vector.size};
    case OP_TYPE_ARRAY:
        return in.n > 3 ? repeated(layout_of(r, in.w[2]), constant(r, in.w[3])) : (layout){0, 1};
    case OP_TYPE_STRUCT:
        return struct_layout(r, &in);
    case OP_TYPE_POINTER:
    case OP_TYPE_UNTYPED_POINTER:
        return (layout){sizeof(void *), sizeof(void *)};
    default:
        return (layout){0, 1};
    }
}

/* --- second walk: modes, linkage, arguments
 * -------------------------------------------------------- */

static soft_arg value_arg(reader *r, uint32_t type)
{
    layout l = layout_of(r, type);

    return (soft_arg){SOFT_ARG_VALUE, l.size <= UINT16_MAX ? (uint32_t)l.size : 0};
}

static soft_arg arg_of(reader *r, uint32_t type)
{
    instruction in = definition(r, type);

    if (in.op != OP_TYPE_POINTER && in.op != OP_TYPE_UNTYPED_POINTER)
        return (in.op >= OP_TYPE_BOOL && in.op <= OP_TYPE_VECTOR) || in.op == OP_TYPE_ARRAY ||
                       in.op == OP_TYPE_STRUCT
                   ? value_arg(r, type)
                   : (soft_arg){SOFT_ARG_OTHER, 0};
    switch (in.n > 2 ? in.w[2] : UINT32_MAX) {
    case CLASS_UNIFORM_CONSTANT:
    case CLASS_CROSS_WORKGROUP:
    case CLASS_GENERIC:
        return (soft_arg){SOFT_ARG_POINTER, sizeof(void *)};
    case CLASS_WORKGROUP:
        return (soft_arg){SOFT_ARG_LOCAL, 0};
    case CLASS_FUNCTION: /* a struct by value */
        return in.n > 3 ? value_arg(r, in.w[3]) : (soft_arg){SOFT_ARG_VALUE, 0};
    default:
        return (soft_arg){SOFT_ARG_OTHER, 0};
    }
}

static ze_result_t add_arg(soft_function *function, soft_arg arg)
{
    soft_arg *more = realloc(function->args, (function->nargs + 1) * sizeof(*more));

    if (!more)
        return ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    function->args          = more;
    more[function->nargs++] = arg;
    return ZE_RESULT_SUCCESS;
}

/* The parameters stand between the function and its first label; lines may stand between them. */
static ze_result_t read_args(reader *r, soft_function *function, uint32_t id)
{
    ze_result_t result = ZE_RESULT_SUCCESS;

    if (definition(r, id).op != OP_FUNCTION)
        return ZE_RESULT_SUCCESS;
    for (size_t i = r->def[id]; i < r->nwords && !result; i += r->words[i] >> 16) {
        instruction in = at(r, i);

        if (in.op == OP_LABEL || in.op == OP_FUNCTION_END)
            break;
        if (in.op == OP_FUNCTION_PARAMETER && in.n > 1) {
            r->budget = TYPE_BUDGET;
            result    = add_arg(function, arg_of(r, in.w[1]));
        }
    }
    return result;
}

static void read_mode(reader *r, const instruction *in)
{
    for (size_t i = 0; r->entries && in->n > 2 && i < r->unit->nfunctions; i++) {
        soft_function *function = &r->unit->functions[i];

        if (r->entries[i] != in->w[1])
            continue;
        if (in->w[2] == MODE_SUBGROUP_SIZE && in->n > 3)
            function->subgroup = in->w[3];
        for (uint32_t d = 0; d < 3 && in->n > 5; d++)
            if (in->w[2] == MODE_LOCAL_SIZE)
                function->required[d] = in->w[3 + d];
            else if (in->w[2] == MODE_LOCAL_SIZE_HINT)
                function->hinted[d] = in->w[3 + d];
            else if (in->w[2] == MODE_LOCAL_SIZE_ID)
                function->required[d] = (uint32_t)constant(r, in->w[3 + d]);
    }
}

static ze_result_t read_linkage(reader *r, const instruction *in)
{
    uint32_t    next = 0;
    const char *name = in->n > 4 && in->w[2] == DECORATION_LINKAGE ? text(in, 3, &next) : NULL;

    if (!name || next >= in->n || in->w[1] >= r->bound || (r->marks[in->w[1]] & MARK_BUILTIN))
        return ZE_RESULT_SUCCESS;
    if (in->w[next] == LINKAGE_IMPORT)
        return soft_names_add(&r->unit->imports, name, strlen(name));
    return soft_names_add(&r->unit->exports, name, strlen(name));
}

static ze_result_t second_walk(reader *r)
{
    ze_result_t result = ZE_RESULT_SUCCESS;

    for (size_t i = HEADER_WORDS; i < r->nwords && !result; i += r->words[i] >> 16) {
        instruction in = at(r, i);

        if (in.op == OP_EXECUTION_MODE || in.op == OP_EXECUTION_MODE_ID)
            read_mode(r, &in);
        else if (in.op == OP_DECORATE)
            result = read_linkage(r, &in);
    }
    for (size_t i = 0; r->entries && i < r->unit->nfunctions && !result; i++)
        result = read_args(r, &r->unit->functions[i], r->entries[i]);
    return result;
}

/* --- specialization constants ----------------------------------------------------------------- */

/* Numbers narrower than a word are sign- or zero-extended to it. */
static void put_number(const reader *r, uint32_t *w, uint32_t n, const void *value)
{
    instruction type  = definition(r, w[1]);
    uint32_t    bytes = type.n > 2 ? type.w[2] / 8 : 0;
    uint64_t    bits  = 0;

    if (bytes == 0 || bytes > 8 || n < 3 + (bytes + 3) / 4)
        return;
    memcpy(&bits, value, bytes); /* little-endian, as every machine with these runtimes */
    if (type.op == OP_TYPE_INT && type.n > 3 && type.w[3] && bytes < 4 &&
        (bits >> (8 * bytes - 1) & 1))
        bits |= UINT64_MAX << (8 * bytes);
    w[3] = (uint32_t)bits;
    if (bytes == 8)
        w[4] = (uint32_t)(bits >> 32);
}

static void put_constant(const reader *r, uint32_t id, const void *value)
{
    instruction in = definition(r, id);
    uint32_t   *w  = in.n ? r->words + r->def[id] : NULL;

    if (in.op == OP_SPEC_CONSTANT)
        put_number(r, w, in.n, value);
    else if (in.op == OP_SPEC_CONSTANT_TRUE || in.op == OP_SPEC_CONSTANT_FALSE)
        w[0] = in.n << 16 |
               (uint32_t)(*(const uint8_t *)value ? OP_SPEC_CONSTANT_TRUE : OP_SPEC_CONSTANT_FALSE);
}

static bool set_constant(const reader *r, uint32_t spec_id, const void *value)
{
    bool is_there = false;

    for (size_t i = HEADER_WORDS; i < r->nwords; i += r->words[i] >> 16) {
        instruction in = at(r, i);

        if (in.op != OP_DECORATE || in.n < 4 || in.w[2] != DECORATION_SPEC_ID || in.w[3] != spec_id)
            continue;
        put_constant(r, in.w[1], value);
        is_there = true;
    }
    return is_there;
}

static void set_constants(const reader *r, const ze_module_constants_t *constants, soft_text *log)
{
    for (uint32_t i = 0; i < constants->numConstants; i++)
        if (!set_constant(r, constants->pConstantIds[i], constants->pConstantValues[i]))
            soft_text_add(log, "SPIR-V: there is no specialization constant %u\n",
                          constants->pConstantIds[i]);
}

/* --- the module
 * -------------------------------------------------------------------------------------- */

static const char *judge_header(const reader *r)
{
    if (r->nwords <= HEADER_WORDS)
        return "is shorter than a header";
    if (r->words[0] != MAGIC)
        return "does not start with SPIR-V's number in this machine's byte order";
    if (r->unit->size % 4 != 0)
        return "is no whole number of words";
    if (r->words[3] > r->nwords || r->nwords > UINT32_MAX) /* each id takes an instruction */
        return "names more ids than it has instructions";
    return NULL;
}

static ze_result_t open_reader(reader *r, soft_unit *unit, soft_text *log)
{
    const char *why;

    *r  = (reader){.unit = unit, .words = (uint32_t *)(void *)unit->data, .nwords = unit->size / 4};
    why = judge_header(r);
    if (why) {
        soft_text_add(log, "SPIR-V: the module %s\n", why);
        return ZE_RESULT_ERROR_MODULE_BUILD_FAILURE;
    }
    r->bound = r->words[3];
    r->def   = calloc((size_t)r->bound + 1, sizeof(*r->def));
    r->marks = calloc((size_t)r->bound + 1, 1);
    return r->def && r->marks ? ZE_RESULT_SUCCESS : ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY;
}

static void close_reader(reader *r)
{
    free(r->def);
    free(r->marks);
    free(r->entries);
}

ze_result_t soft_spirv_read(soft_unit *unit, const ze_module_constants_t *constants, soft_text *log)
{
    reader      r;
    ze_result_t result = open_reader(&r, unit, log);

    if (!result)
        result = first_walk(&r, log);
    if (!result && constants)
        set_constants(&r, constants, log);
    if (!result)
        result = second_walk(&r);
    close_reader(&r);
    return result;
}
