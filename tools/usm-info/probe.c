/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The check of probe.h: first the parent's side, then the child's. */
#include "probe.h"
#include "child.h"

#include <usm/usm.h>

#include <stdlib.h>
#include <string.h>

#define TIMEOUT_S 20
#define BYTES     64

const char *moves_data_name(moves_data moves)
{
    static const char *const names[] = {
        [MOVES_UNKNOWN] = "unknown", [MOVES_YES] = "yes",     [MOVES_NO] = "no",
        [MOVES_CRASHES] = "crashes", [MOVES_HANGS] = "hangs",
    };
    return names[moves];
}

/* The child's answer is "yes", "no", or an error message. */
static void judge_answer(const char *said, probe_answer *answer)
{
    if (strcmp(said, "yes") == 0) {
        answer->moves = MOVES_YES;
        strcpy(answer->text, "yes");
    } else if (strcmp(said, "no") == 0) {
        answer->moves = MOVES_NO;
        strcpy(answer->text, "commands complete but move nothing");
    } else {
        answer->moves = MOVES_UNKNOWN;
        snprintf(answer->text, sizeof answer->text, "%s",
                 *said ? said : "the probe gave no answer");
    }
}

void probe_device(const char *term, probe_answer *answer)
{
    const char *const args[] = {"probe-device", term, NULL};
    child_result      result;
    char              why[256];

    child_run(args, TIMEOUT_S, &result);
    if (result.end == CHILD_EXITED && result.code == 0) {
        judge_answer(result.answer, answer);
    } else if (result.end == CHILD_TIMED_OUT) {
        answer->moves = MOVES_HANGS;
        snprintf(answer->text, sizeof answer->text, "commands hang (no answer within %d s)",
                 TIMEOUT_S);
    } else if (result.end == CHILD_NOT_RUN) {
        answer->moves = MOVES_UNKNOWN;
        child_end_text(&result, answer->text, sizeof answer->text);
    } else { /* some drivers exit where others are killed by a signal */
        answer->moves = MOVES_CRASHES;
        snprintf(answer->text, sizeof answer->text, "commands crash (%s)",
                 child_end_text(&result, why, sizeof why));
    }
    free(result.answer);
}

/* --- the child -------------------------------------------------------------- */

/* Starts with memory that the host cannot access, so that the device must really copy. */
static void *alloc_any(usm_device *dev, usm_context *ctx)
{
    static const struct {
        usm_aspect aspect;
        usm_kind   kind;
    } choices[] = {
        {USM_ASPECT_USM_DEVICE_ALLOCATIONS, USM_DEVICE},
        {USM_ASPECT_USM_SHARED_ALLOCATIONS, USM_SHARED},
        {USM_ASPECT_USM_HOST_ALLOCATIONS, USM_HOST},
    };

    for (size_t i = 0; i < sizeof choices / sizeof *choices; i++) {
        if (usm_device_has(dev, choices[i].aspect))
            return usm_malloc_ctx(BYTES, dev, ctx, choices[i].kind);
    }
    return NULL;
}

/* Uses two commands and two buffers of the host, so that nothing is right by chance.  They are
 * static: a queue that fails to wait may still be writing to them. */
static usm_status copy_there_and_back(usm_queue *q, void *there, bool *is_equal)
{
    static unsigned char sent[BYTES], got[BYTES];
    usm_status           status;

    for (size_t i = 0; i < BYTES; i++)
        sent[i] = (unsigned char)(0xa5 ^ (i * 7));
    status = usm_memcpy(q, there, sent, BYTES, 0, NULL, NULL);
    if (!status)
        status = usm_memcpy(q, got, there, BYTES, 0, NULL, NULL);
    if (!status)
        status = usm_queue_wait(q);
    if (!status)
        *is_equal = memcmp(sent, got, BYTES) == 0;
    return status;
}

static usm_status probe(usm_device *dev, bool *is_equal)
{
    usm_context_desc desc = USM_CONTEXT_DESC_INIT;
    usm_context     *ctx  = NULL;
    usm_queue       *q    = NULL;
    void            *there;
    usm_status       status;

    desc.ndevices = 1;
    desc.devices  = &dev;
    status        = usm_context_create(&desc, &ctx);
    if (status)
        return status;
    status = usm_queue_create(ctx, dev, NULL, &q);
    if (status)
        goto err_context;
    there = alloc_any(dev, ctx);
    if (!there) {
        status = usm_last_status() ? usm_last_status() : USM_E_NOT_SUPPORTED;
        goto err_queue;
    }
    status = copy_there_and_back(q, there, is_equal);
    usm_free(there);
err_queue:
    usm_queue_destroy(q);
err_context:
    usm_context_destroy(ctx);
    return status;
}

/* Exits normally whatever the device did, unless the driver crashes. */
int child_probe_device(int argc, char **argv)
{
    usm_device *dev      = NULL;
    size_t      count    = 0;
    bool        is_equal = false;
    usm_status  status   = argc == 1 ? USM_OK : USM_E_INVALID;

    if (!status)
        status = usm_select_devices(argv[0], &dev, 1, &count);
    if (!status) {
        child_enter_scratch();
        status = probe(dev, &is_equal);
    }
    if (status == USM_OK)
        fputs(is_equal ? "yes" : "no", child_answer());
    else if (status == USM_E_NO_DATA_MOVED)
        fputs("no", child_answer());
    else
        fputs(*usm_last_error() ? usm_last_error() : usm_status_name(status), child_answer());
    return 0;
}
