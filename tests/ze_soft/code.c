/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Code: what a module was made from and what it became, counted, so that kernels and launches keep
 * it alive.  Not here: how it is read and built.  Called by module.c, kernel.c, elf.c, spirv.c. */
#include "module.h"

#include <stdlib.h>
#include <string.h>

soft_code *soft_code_new(size_t nunits)
{
    soft_code *code = calloc(1, sizeof(*code));

    if (!code)
        return NULL;
    code->units = calloc(nunits, sizeof(*code->units));
    if (!code->units) {
        free(code);
        return NULL;
    }
    code->nunits    = nunits;
    code->object_fd = -1;
    atomic_init(&code->refs, 1);
    atomic_init(&code->program, NULL);
    return code;
}

soft_code *soft_code_get(soft_code *code)
{
    atomic_fetch_add_explicit(&code->refs, 1, memory_order_relaxed);
    return code;
}

static void names_free(soft_names *names)
{
    for (size_t i = 0; i < names->count; i++)
        free(names->names[i]);
    free(names->names);
}

static void unit_free(soft_unit *unit)
{
    for (size_t i = 0; i < unit->nfunctions; i++) {
        free(unit->functions[i].name);
        free(unit->functions[i].args);
    }
    free(unit->functions);
    names_free(&unit->imports);
    names_free(&unit->exports);
    free(unit->flags);
    free(unit->data);
}

/* The last one sees all that the others did: acquire and release. */
void soft_code_put(soft_code *code)
{
    if (!code || atomic_fetch_sub_explicit(&code->refs, 1, memory_order_acq_rel) != 1)
        return;
    soft_cl_release_program(atomic_load(&code->program));
    soft_elf_unload(code);
    for (size_t i = 0; i < code->nunits; i++)
        unit_free(&code->units[i]);
    free(code->units);
    free(code);
}

const soft_function *soft_code_find(const soft_code *code, const char *name)
{
    for (size_t i = 0; i < code->nunits; i++)
        for (size_t j = 0; j < code->units[i].nfunctions; j++)
            if (!strcmp(code->units[i].functions[j].name, name))
                return &code->units[i].functions[j];
    return NULL;
}

size_t soft_code_kernels(const soft_code *code)
{
    size_t n = 0;

    for (size_t i = 0; i < code->nunits; i++)
        n += code->units[i].nfunctions;
    return n;
}

ze_result_t soft_unit_fill(soft_unit *unit, const void *data, size_t size, const char *flags)
{
    unit->data  = malloc(size);
    unit->flags = strdup(flags ? flags : "");
    if (!unit->data || !unit->flags)
        return ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    memcpy(unit->data, data, size);
    unit->size = size;
    return ZE_RESULT_SUCCESS;
}

bool soft_names_have(const soft_names *names, const char *name)
{
    for (size_t i = 0; i < names->count; i++)
        if (!strcmp(names->names[i], name))
            return true;
    return false;
}

ze_result_t soft_names_add(soft_names *names, const char *name, size_t length)
{
    char **more = realloc(names->names, (names->count + 1) * sizeof(*more));

    if (!more)
        return ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    names->names       = more;
    more[names->count] = strndup(name, length);
    if (!more[names->count])
        return ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    names->count++;
    return ZE_RESULT_SUCCESS;
}

soft_function *soft_unit_add_function(soft_unit *unit)
{
    soft_function *more = realloc(unit->functions, (unit->nfunctions + 1) * sizeof(*more));

    if (!more)
        return NULL;
    unit->functions = more;
    more += unit->nfunctions++;
    memset(more, 0, sizeof(*more));
    return more;
}

/* Whether one of the words of `flags` is `flag`. */
bool soft_has_flag(const char *flags, const char *flag)
{
    size_t      n  = strlen(flag);
    const char *at = flags;

    while ((at = strstr(at, flag))) {
        if ((at == flags || at[-1] == ' ') && (at[n] == 0 || at[n] == ' '))
            return true;
        at += n;
    }
    return false;
}
