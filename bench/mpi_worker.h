/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The ranks that `usm-bench mpi` starts, a program for each MPI: usm-bench-mpi-<MPI> SECTION FILE
 * ROUNDS MIB.  Rank 0 measures and writes lines to FILE, which mpi.c reads:
 *     figure KEY VALUE        a sample of a round; mpi.c takes medians
 *     why KEY TEXT            why there is none
 *     end                     all was measured
 * mpi_worker.c begins, obeys and ends; mpi_peer.c has MPI's own streams, sockets and memcpy;
 * inside/mpi_far.c libusm's blocks in other ranks' memory; mpi_shared.c a buffer that ranks share;
 * mpi_death.c the loss of a lender. */
#ifndef USM_BENCH_MPI_WORKER_H
#define USM_BENCH_MPI_WORKER_H

#include "bench.h"

#include <mpi.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MIB_BYTES ((size_t)1 << 20)
#define PAGE      ((size_t)4096)
#define DEPTH     8u /* of streams: messages in flight                                          */

/* What rank 0 asks another rank for, and how much of it. */
typedef enum mpi_what {
    ASK_SEND = 1, /* a stream to rank 0                                                       */
    ASK_RECEIVE,
    ASK_PONG,
    ASK_SOCKET_SEND,
    ASK_SOCKET_RECEIVE,
    ASK_IDLE,   /* stands aside for n ms; answers its processor time, ns                         */
    ASK_LOAD,   /* runs the workload number n; answers MiB/s * 1000; mpi_load.c                   */
    ASK_SHARED, /* its part of what mpi_shared.c does; answers 1 when all is well               */
    ASK_END
} mpi_what;

typedef struct mpi_order {
    int64_t what, n, size;
} mpi_order;

typedef struct mpi_run {
    MPI_Comm comm;
    int      rank, ranks;
    int      pid[16];
    unsigned rounds;
    size_t   bytes; /* of one measurement                                                       */
    /* Of `bytes`, written once: blocks rotate through it, so no cache has them.  Aligned to pages
     * as the engine's blocks are, which transfers ask for (usm/transport.h). */
    char *arena;
    int   sock; /* to the peer; -1: none                                                     */
} mpi_run;
extern mpi_run run;

void mpi_figure(const char *key, double value);
void mpi_why(const char *key, const char *format, ...) __attribute__((format(printf, 2, 3)));
void mpi_ask(int rank, mpi_what what, int64_t n, int64_t size);
/* The number that an order is answered with. */
int64_t mpi_answer(int rank);

/* ---- mpi_peer.c ------------------------------------------------------------------------ */

/* MiB/s of blocks of `size` bytes between ranks 0 and 1; half a name for the key. */
double peer_stream(size_t size, bool is_fetch);
double peer_socket(size_t size, bool is_fetch);
double peer_memcpy(size_t size);
/* us, there and back; a median. */
double peer_ping(void);
/* Connects ranks 0 and 1 over the network of launch.sh --slots, or over the loopback.  Both call.
 */
bool peer_connect(void);
/* The other side's part. */
void peer_obey(const mpi_order *o);

/* ---- inside/mpi_far.c ----------------------------------------------------------------------- */

/* Attaches, as borrower or lender; false and a line for `key`. */
bool far_attach(const char *key, uint64_t lend);
/* Blocks of `size` bytes at rank 1.  NULL and a line for the key. */
typedef struct far_blocks far_blocks;
far_blocks               *far_open(size_t size, const char *key);
void                      far_close(far_blocks *f);
/* MiB/s over run.bytes; 0: it failed, libusm has the story.  Checked: with checksums, as the engine
 * does it. */
double far_pass(far_blocks *f, bool is_fetch, bool is_checked);
/* us of one fetch of 4 KiB; a median. */
double far_latency(far_blocks *f);

/* ---- mpi_shared.c ------------------------------------------------------------------------- */

int64_t shared_obey(int64_t what, int64_t argument);
/* Figures of one round, with blocks of that size: MiB/s, us.  false: something failed, and a line.
 */
bool shared_round(const char *suffix, size_t block_size, uint64_t round);

/* ---- mpi_load.c, mpi_death.c ------------------------------------------------------------ */

/* W1 R X over buffers: this rank's tier is memory of others, or the disk. */
void    load_prepare(const char *tier);
int64_t load_run(int64_t which);
void    load_section(void);
void    death_section(void);

#endif
