/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Where monitor pages are, and which process one belongs to.  Called by the process that writes one
 * and by readers. */
#ifndef USM_MONITOR_FOLDER_H
#define USM_MONITOR_FOLDER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define USM__MONITOR_PATH    4096
#define USM__MONITOR_READERS "readers"
#define USM__MONITOR_PERIOD  100000000u  /* ns between two samples                      */
#define USM__MONITOR_STAYS   3000000000u /* ns for which an announcement is good          */

/* Writes the path of the user's folder, which is made if there is none: usm in XDG_RUNTIME_DIR; where
 * that is not set, in /run/user/<uid>, or usm-<uid> in /dev/shm or /tmp.  It is the user's own and
 * nobody else may enter it.  False, with errno: there is none. */
bool usm__monitor_folder(char *path, size_t size);

/* Opens the word that readers write, which is made if there is none, and maps it.  NULL with
 * errno. */
void *usm__monitor_map_readers(const char *folder, bool may_write);

typedef struct usm__monitor_identity {
    uint64_t start_ticks; /* when the process was started ...                               */
    uint64_t stack_start; /* ... and what tells the program from one before exec(); 0: unknown */
} usm__monitor_identity;

/* False: there is no such process, or it has ended and its parent has not yet waited for it. */
bool usm__monitor_identify(uint32_t pid, usm__monitor_identity *identity);
/* The namespace in which process ids mean what they mean here; 0: unknown. */
uint64_t usm__monitor_namespace(void);

#endif
