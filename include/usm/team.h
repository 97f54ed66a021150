/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/** @file
 * Teams: the devices, of this process and of the job's other ranks, over which
 * one launch is split (usm/parallel.h).
 *
 *     usm_team *team;
 *     usm_team_create(NULL, &team);           // every device of the selector
 *     usm_team_kernel *k;
 *     usm_team_kernel_create(team, &program, "idw", &k);
 *     usm_parallel(team, &launch, NULL);
 *
 * A member is one device.  A team of one process has no threads while it is
 * idle.  A CPU that OpenCL offers and the host backend use the same cores.
 * Both are members, but a launch uses only one of the members that share cores:
 * the host backend if the program has native code.  Devices that the program
 * listed explicitly all take part.
 *
 * Teams and their kernels are thread-safe.  Concurrent launches of one team
 * share its devices. */
#ifndef USM_TEAM_H
#define USM_TEAM_H

#include <usm/pool.h>
#include <usm/program.h>
#include <usm/types.h>

USM_BEGIN_DECLS

typedef struct usm_team        usm_team;
typedef struct usm_team_kernel usm_team_kernel;

typedef struct usm_team_desc {
    size_t             struct_size;
    const char        *selector; /**< as USM_DEVICE_SELECTOR; NULL: the devices that the setting
                                      selects */
    size_t             ndevices; /**< > 0: exactly these, and selector is ignored */
    usm_device *const *devices;
    /** Every rank of the job takes part with its own devices: creation and each
     * launch are then collective.  The lowest rank is the master, which hands
     * out the chunks.  If the master ends, or the rank that provides a launch's
     * data (usm_parallel_desc.home), launches end with USM_E_PEER.  Any other
     * rank may die or stop responding: its chunks are done by others. */
    bool ranks;
    /** Chunks in progress per member, so that transfers overlap with kernels; 0:
     * 2. Several chunks shorter than a millisecond count as one. */
    uint32_t depth;
    /** usm_team_member.joules is counted.  The energy counters of the host's
     * processors are read when launches end, at most every 50 ms.  With
     * `ranks`: of this rank's members. */
    bool energy;
} usm_team_desc;
#define USM_TEAM_DESC_INIT                                                                         \
    {                                                                                              \
        sizeof(usm_team_desc), NULL, 0, NULL, false, 0, false                                      \
    }

/** Creates a team.  The caller owns *team.  `desc` NULL: the selected devices of
 * this process.
 *   USM_E_NO_DEVICE  no device is selected, or none of them runs kernels
 *   USM_E_MPI        `ranks` is set, and this process has not joined a job
 *   USM_E_PEER       a rank did not come
 *   USM_E_SETTING    `energy` is set, and USM_WATTS does not parse or names a file
 *                    that cannot be read */
USM_API USM_NODISCARD usm_status usm_team_create(const usm_team_desc *desc, usm_team **team);
/** Destroys a team, or does nothing if it is NULL.  Waits for launches in
 * progress.  The team's kernels must have been destroyed before. */
USM_API void usm_team_destroy(usm_team *team);

typedef enum usm_member_state {
    USM_MEMBER_WELL  = 1,
    USM_MEMBER_ASIDE = 2, /**< quarantined: its kernels failed, and it gets no more work        */
    USM_MEMBER_LOST  = 3  /**< the device is gone; or its rank is dead, silent, or left the job */
} usm_member_state;

/** Statistics of a member since the creation of the team.  Those of members on
 * other ranks, and their quarantine, are updated at the end of each launch;
 * they do not include chunks whose results arrived too late to be used. */
typedef struct usm_team_member {
    size_t           struct_size;
    uint32_t         rank;
    usm_device      *device;   /**< NULL: on another rank               */
    char             name[64]; /**< "opencl:0.0"; with ranks "3/host:0" */
    usm_member_state state;
    uint64_t         chunks, items;
    uint64_t         busy_ns; /**< time with at least one chunk                   */
    double           speed;   /**< items per second, as last measured; 0: unknown */
    /** What its launches have used, if usm_team_desc.energy is set or a trace is
     * recorded; 0: unknown.  A processor of this host: its share of what the
     * packages' counters (/sys/class/powercap) have measured.  Others, and
     * processors whose counters cannot be read: the watts that USM_WATTS gives,
     * times busy time. */
    double joules;
} usm_team_member;

/** Returns the number of members. */
USM_API uint32_t usm_team_size(usm_team *team);
/** Returns information about a member.  The caller sets info->struct_size.
 *   USM_E_INVALID  there is no such member */
USM_API USM_NODISCARD usm_status usm_team_get_member(usm_team *team, uint32_t index,
                                                     usm_team_member *info);
/** Writes the members as text or JSON; format, cap and size are as in
 * usm_pool_describe(). */
USM_API usm_status usm_team_describe(usm_team *team, usm_text_format format, char *text, size_t cap,
                                     size_t *size);

/** Builds the program for every member.  A member that can run no image takes no
 * part in launches of the kernel.  The caller owns *kernel.  Programs are
 * cached as those of usm_program_create().
 *   USM_E_BUILD, USM_E_NO_KERNEL  as usm_program_create(), usm_kernel_create()
 *   USM_E_NO_IMAGE                no member of this process can run it */
USM_API USM_NODISCARD usm_status usm_team_kernel_create(usm_team               *team,
                                                        const usm_program_desc *program,
                                                        const char *name, usm_team_kernel **kernel);
/** Destroys a kernel, or does nothing if it is NULL.  Launches in progress go
 * on. */
USM_API void usm_team_kernel_destroy(usm_team_kernel *kernel);

USM_END_DECLS
#endif
