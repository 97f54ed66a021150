/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* SPIR-V for runtimes that have no atomic operations on pointers to the generic address space
 * (PoCL 3.1): where such a pointer was cast from one to global or local memory, the operation gets
 * the pointer itself.  Clang casts so for every atomic operation of OpenCL C 2.0 and C11.  A
 * generic pointer from elsewhere stays as it is, and the runtime's log names the function it lacks.
 *
 * Called by translate.c, with bytes that spirv.c has read: every instruction lies in the module. */
#include "opencl.h"

#include <stdlib.h>

enum { HEADER_WORDS = 5, BOUND_WORD = 3 };

enum opcode {
    OP_CAST_TO_GENERIC = 121,
    OP_ATOMIC_FIRST    = 227, /* load, store, exchanges, arithmetic, logic */
    OP_ATOMIC_STORE    = 228,
    OP_ATOMIC_LAST     = 242,
    OP_FLAG_SET        = 318,
    OP_FLAG_CLEAR      = 319
};

/* Which word of the instruction is the pointer; 0: the instruction is not atomic. */
static uint32_t pointer_word(uint32_t op)
{
    if (op == OP_ATOMIC_STORE || op == OP_FLAG_CLEAR)
        return 1;
    return (op >= OP_ATOMIC_FIRST && op <= OP_ATOMIC_LAST) || op == OP_FLAG_SET ? 3 : 0;
}

/* `cast_of`, by id: what it was cast from, or 0.  A definition stands before its uses. */
static void uncast(uint32_t *w, uint32_t *cast_of, uint32_t bound)
{
    uint32_t n = w[0] >> 16, op = w[0] & 0xffff;
    uint32_t pointer = pointer_word(op);

    if (op == OP_CAST_TO_GENERIC && n == 4 && w[2] < bound)
        cast_of[w[2]] = w[3];
    else if (pointer && n > pointer && w[pointer] < bound && cast_of[w[pointer]])
        w[pointer] = cast_of[w[pointer]];
}

bool soft_uncast_atomics(uint32_t *words, size_t nwords)
{
    uint32_t  bound   = words[BOUND_WORD];
    uint32_t *cast_of = calloc(bound + (size_t)1, sizeof(*cast_of));

    if (!cast_of)
        return false;
    for (size_t i = HEADER_WORDS; i < nwords; i += words[i] >> 16)
        uncast(words + i, cast_of, bound);
    free(cast_of);
    return true;
}
