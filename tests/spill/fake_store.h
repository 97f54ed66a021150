/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The transport "fake": blocks in the memory of the test, whose transfers end in an order that a
 * seed chooses, and which fails in every way that a medium does.  What a medium without faults
 * would hold is kept beside what this one shows, so that a test can take every damage back and ask
 * for all of the data: nothing may be lost by then.
 *
 * It has no thread: transfers end in progress(), some at once in submit().  Thread-safe. */
#ifndef FAKE_STORE_H
#define FAKE_STORE_H

#include <stdbool.h>
#include <stdint.h>

typedef enum fake_fault {
    FAKE_READ_EIO = 0, /* a fetch fails, one to three times                                 */
    FAKE_READ_BAD,     /* a block cannot be fetched any more                                */
    FAKE_WRITE_EIO,    /* a store fails at once; the medium is as it was                    */
    FAKE_WRITE_LATE,   /* a store fails long after others that came later were done         */
    FAKE_WRITE_SHORT,  /* a store fails after a part was written                            */
    FAKE_FULL,         /* no room for the block                                             */
    FAKE_FLIP,         /* stored, and then a bit turns                                      */
    FAKE_SWAP,         /* stored in the place of another block, whose content lies here     */
    FAKE_STALE,        /* reported as stored; the medium still holds what was there before  */
    FAKE_FAULTS
} fake_fault;

extern const char *const fake_fault_names[FAKE_FAULTS];

/* Makes "fake" known to libusm, before it is used: USM_SPILL=fake:, fake:quota=BLOCKS. */
void fake_register(void);
/* The order of transfers, and which of them fail, come from here. */
void fake_seed(uint64_t seed);
/* So many of 10,000 transfers fail in that way; 0: none. */
void fake_set_fault(fake_fault fault, unsigned chance);
void fake_no_faults(void);
/* For what fails beside the store: whether it shall now, by the same chances; counted. */
bool fake_hits(fake_fault fault);
/* Takes all damage back: every block shows what was stored last, and can be fetched; quotas do
 * not count until they are enforced again. */
void fake_heal(void);
void fake_enforce_quotas(void);

typedef struct fake_counts {
    uint64_t fetches, stores, forgotten;
    uint64_t injected[FAKE_FAULTS];
    uint64_t refused; /* by quota                                                          */
    uint64_t blocks;  /* held now, as far as reserved                                      */
    uint64_t stored;  /* of these, with content                                            */
    uint64_t damaged; /* of these, blocks that show something else than they should        */
    uint64_t pending; /* transfers under way                                               */
} fake_counts;
fake_counts fake_get_counts(void);

/* Tells each transfer on stdout. */
void fake_set_verbose(bool verbose);
/* --planted=lost: every n-th store is acknowledged, and neither made nor kept to be healed. */
void fake_plant_loss(unsigned every);

#endif
