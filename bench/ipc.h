/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* `usm-bench ipc` inside: two processes and a socket between them.  ipc_owner.c has the memory and
 * the events, ipc.c opens them and measures. */
#ifndef USM_BENCH_IPC_H
#define USM_BENCH_IPC_H

#include <usm/usm.h>

#include <stdatomic.h>
#include <stdbool.h>

#define IPC_BLOCKS ((size_t)64) /* small ones, of one area */
#define IPC_MEDIUM ((size_t)1 << 20)
#define IPC_LARGE  ((size_t)64 << 20)

/* What the owner says first. */
typedef struct ipc_offer {
    usm_ipc_handle block[IPC_BLOCKS], medium, large, ping, pong;
    bool           has_large; /* the host may touch it                              */
    char           no_memory[200], no_events[200]; /* "", or why there are none         */
} ipc_offer;

/* Then it does what it is asked for. */
typedef struct ipc_request {
    char     what; /* 'd': a descriptor of a memory file of IPC_MEDIUM bytes; 'e': answers n pings;
                  'w': the same by words of shared memory */
    uint64_t n;
} ipc_request;

/* Two words of shared memory, each on a line of its own: what two processes can do at best. */
typedef struct ipc_words {
    _Alignas(128) _Atomic(uint64_t) ping;
    _Alignas(128) _Atomic(uint64_t) pong;
} ipc_words;

static inline void ipc_spin_until(_Atomic(uint64_t) *word, uint64_t value)
{
    while (atomic_load_explicit(word, memory_order_acquire) != value)
#if defined(__x86_64__)
        __builtin_ia32_pause();
#else
        ;
#endif
}

/* The owner's whole life, in a process of its own, until the socket's other end is closed. */
int ipc_own(int sock, ipc_words *words);

#endif
