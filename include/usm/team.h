/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/** @file
 * Teams: the devices, of this process and of the job's other ranks, that one launch is split over
 * (usm/parallel.h).
 *
 *     usm_team *team;
 *     usm_team_create(NULL, &team);           // every device that the selector leaves
 *     usm_team_kernel *k;
 *     usm_team_kernel_create(team, &program, "idw", &k);
 *     usm_parallel(team, &launch, NULL);
 *
 * A member is one device.  A team of one process costs no thread while it waits.  A processor that
 * OpenCL offers and the host backend are one set of cores: both are members, and of those that
 * share cores a launch uses one, the host backend where the program has native code.  Devices that
 * were listed by hand all take part.
 *
 * Teams and their kernels are thread-safe.  Launches of one team at the same time share its
 * devices. */
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
    const char        *selector; /**< as USM_DEVICE_SELECTOR; NULL: what the setting leaves       */
    size_t             ndevices; /**< > 0: exactly these, and selector is not looked at           */
    usm_device *const *devices;
    /** Every rank of the job takes part with its own devices: collective, here and in each launch.
     * The lowest rank gives out the chunks: its end, and that of a launch's home, end launches with
     * USM_E_PEER; any other rank may die or stand still, and its chunks are done by others. */
    bool ranks;
    /** Chunks under way a member, so that transfers hide behind kernels; 0: 2.  Of short ones,
     * below a millisecond, several count as one. */
    uint32_t depth;
} usm_team_desc;
#define USM_TEAM_DESC_INIT                                                                         \
    {                                                                                              \
        sizeof(usm_team_desc), NULL, 0, NULL, false, 0                                             \
    }

/** Caller owns *team.  `desc` NULL: the selected devices of this process.
 *   USM_E_NO_DEVICE  none is left, or none of them runs kernels
 *   USM_E_MPI        `ranks`, and this process has not joined its job
 *   USM_E_PEER       a rank did not come */
USM_API USM_NODISCARD usm_status usm_team_create(const usm_team_desc *desc, usm_team **team);
/** NULL is fine.  Launches under way end first.  Kernels of it must be destroyed before. */
USM_API void usm_team_destroy(usm_team *team);

typedef enum usm_member_state {
    USM_MEMBER_WELL  = 1,
    USM_MEMBER_ASIDE = 2, /**< its kernels failed: it is given nothing more                       */
    USM_MEMBER_LOST  = 3  /**< the device is gone, or its rank: dead, silent, or left the job     */
} usm_member_state;

/** Of a member since the team was made.  Of another rank's the figures, and that it was set aside,
 * are told at the end of each launch; chunks that came too late to count are not among them. */
typedef struct usm_team_member {
    size_t           struct_size;
    uint32_t         rank;
    usm_device      *device;   /**< NULL: of another rank                                      */
    char             name[64]; /**< "opencl:0.0", "3/host:0" where there are ranks             */
    usm_member_state state;
    uint64_t         chunks, items;
    uint64_t         busy_ns; /**< while it had at least one chunk                               */
    double           speed;   /**< items a second, as last measured; 0: not known               */
} usm_team_member;

USM_API uint32_t usm_team_size(usm_team *team);
/** info->struct_size is set by the caller.   USM_E_INVALID  there is no such member */
USM_API USM_NODISCARD usm_status usm_team_get_member(usm_team *team, uint32_t index,
                                                     usm_team_member *info);
/** The members as text or JSON; as usm_pool_describe(). */
USM_API usm_status usm_team_describe(usm_team *team, usm_text_format format, char *text, size_t cap,
                                     size_t *size);

/** Builds the program for every member; those that no image fits take no part in its launches.
 * Caller owns *kernel.  Built programs come from the same caches as usm_program_create()'s.
 *   USM_E_BUILD, USM_E_NO_KERNEL;  USM_E_NO_IMAGE  no member of this process runs it */
USM_API USM_NODISCARD usm_status usm_team_kernel_create(usm_team               *team,
                                                        const usm_program_desc *program,
                                                        const char *name, usm_team_kernel **kernel);
/** NULL is fine.  Launches under way go on. */
USM_API void usm_team_kernel_destroy(usm_team_kernel *kernel);

USM_END_DECLS
#endif
