/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* What cases of real MPI jobs share: who a rank is and what the others do meanwhile, buffers whose
 * every word is known, verdicts.  far_cases.c has the cases, far_job.c these functions. */
#ifndef FAR_CASES_H
#define FAR_CASES_H

#include <usm/usm.h>

#include <usm/job.h>
#include <usm/mpi.h>

#include <mpi.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define FAR_RANKS 16
#define FAR_LIMIT ((size_t)8 << 20)
#define FAR_SIZE  (8 * FAR_LIMIT)
#define FAR_CHUNK ((size_t)256 << 10)
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
#define LEASE_MS 30000
#else
#define LEASE_MS 2000
#endif
#define ORPHAN_MS (LEASE_MS + 3000)

typedef struct far_job {
    const char *name; /* of the case                                                      */
    MPI_Comm    comm; /* of the program's own ranks                                       */
    int         rank, size;
    uint64_t    seed;
    pid_t       pid[FAR_RANKS]; /* of the ranks: all are on this machine                       */
    /* The chunk before which buffer_write() or _check() sends a rank a signal, once. */
    size_t strike_at;
    int    strike_rank, strike_signal;
    int    orphan_ms;       /* 0: ORPHAN_MS                                                       */
    void (*obey)(int what); /* an order of the program's own, within job_serve()             */
} far_job;
extern far_job job;

/* Settings of this rank, before libusm is used for the first time. */
void job_set(const char *name, const char *value);
/* The usual ones: a borrower with FAR_LIMIT that spills to MPI alone; a lender of 4 FAR_SIZE. */
void job_borrows(const char *replicas);
void job_lends(void);
/* MPI_Init_thread() at that level, MPI_COMM_WORLD, everybody's process. */
void job_begin(int level);
/* job_begin(), then attached: rank 0 borrows, the others lend.  Ends the process when it fails. */
void job_attach(const char *replicas);

/* What the others do: as rank 0 orders, until it orders the end.  Rank 0 returns at once. */
void job_serve(void);
void job_cut_link(int rank, unsigned ms); /* takes the rank's node off the network for so long  */
void job_set_link(bool is_up);            /* of this node                                       */
void job_order(int rank, int what);       /* for obey()                                        */
void job_be_stopped(unsigned ms);         /* rank 0, by rank 1                                  */
void job_signal(int rank, int signal);
void job_strike(size_t at, int rank, int signal);
/* Everybody ends as MPI wants it, and rank 0 tells the verdict once all of it is over. */
_Noreturn void job_end(const char *what);
/* Ends the process without MPI_Finalize(), which waits for the dead, after the verdict; the others
 * are told to do so as well. */
_Noreturn void job_end_hard(const char *what);
/* The verdict is "not ok", and nothing else happens any more. */
_Noreturn void job_fail(const char *format, ...) __attribute__((format(printf, 1, 2)));
_Noreturn void job_skip(const char *why);

#define NEED(condition, ...) ((condition) ? (void)0 : job_fail(__VA_ARGS__))
/* The call's status is `wanted`, and its story is fit for people. */
void job_needs_status(const char *call, usm_status got, usm_status wanted);
#define NEED_STATUS(call, wanted) job_needs_status(#call, (call), (wanted))

void        sleep_ms(unsigned ms);
usm_buffer *buffer_new(size_t size);
/* Chunk by chunk; every word says where it is, and in which turn it was written. */
void buffer_write(usm_buffer *b, uint64_t turn);
/* Ends the job when an access fails or a word is wrong; the longest access, ms. */
double buffer_check(usm_buffer *b, uint64_t turn);
/* One chunk: false if it cannot be read now (USM_E_IO); other words than these end the job. */
bool buffer_try(usm_buffer *b, size_t chunk, uint64_t turn);
/* Bytes that went out to the tier of that name; 0: there is none. */
uint64_t tier_written(const char *tier);
/* Bytes that this process keeps for others, as usm_job_describe() says. */
double job_held(void);
/* Members whose memory is mapped here, and bytes that went through it. */
int    job_mapped(void);
double job_near_bytes(void);
/* Sends the rank a signal so many us from now, whatever this rank does meanwhile. */
void job_signal_later(int rank, int signal, unsigned us);

#endif
