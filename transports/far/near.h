/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The interface that remote memory requires if a lender is a process of the same host: memory that
 * both can map.  transports/mpi/near.c implements it, and so does the simulation
 * (tests/far/near_sim.c).
 *
 * A lender makes an area for one borrower and one estate of it (members.c), which the borrower maps
 * and uses alone.  Only the area's word is the lender's: the lender clears it before it takes the
 * memory back, and a borrower that has copied trusts the copy if the word is unchanged after it.
 * Bytes that are written still later harm nobody, since an area is never used for another borrower
 * or estate.
 *
 * All functions except copy() may take a while.  Any thread may call copy(), give_back() and
 * unmap(); the stepping thread calls the others. */
#ifndef FAR_NEAR_H
#define FAR_NEAR_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct far_lease {
    uint64_t number; /* of the borrower's estate: never 0, and known to no other process */
    uint64_t size;   /* usable bytes */
} far_lease;

typedef struct far_area {
    _Atomic uint64_t *word;  /* the lease's number while it is lent */
    unsigned char    *bytes; /* the borrower's; NULL for the lender */
} far_area;

typedef enum far_near_copy {
    FAR_COPY_OUT,  /* out of an area */
    FAR_COPY_IN,   /* into an area, where it will not be read soon */
    FAR_COPY_FIRST /* into a part of an area that has no memory yet */
} far_near_copy;

typedef struct far_near far_near; /* begins with its table */
typedef struct far_near_ops {
    /* Equal for processes that could map each other's memory, as far as can be told; 0: none. */
    uint64_t (*host)(far_near *n);
    /* As a lender: makes an area, without memory yet, and says where others find it.  NULL: not
     * possible. */
    far_area *(*lend)(far_near *n, const far_lease *lease, uint32_t where[2]);
    /* The area's word was cleared: returns all its memory to the system, whichever process has it
     * mapped. */
    void (*take_back)(far_near *n, far_area *area);
    /* As a borrower.  NULL: the area cannot be reached, or is another one. */
    far_area *(*map)(far_near *n, const far_lease *lease, const uint32_t where[2]);
    void (*unmap)(far_near *n, far_area *area);
    /* Returns the memory of a part whose content is not needed any more. */
    void (*give_back)(far_near *n, far_area *area, uint64_t at, uint64_t size);
    /* memcpy. */
    void (*copy)(far_near *n, void *to, const void *from, size_t size, far_near_copy kind);
} far_near_ops;

struct far_near {
    const far_near_ops *ops;
};

#endif
