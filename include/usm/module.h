/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/** @file
 * What libusm hands to its modules (backends, pools): logging, stories,
 * settings, memory and system calls.  EXPERIMENTAL until a second module of
 * each kind exists.
 *
 * A module includes only <usm/...> and calls libusm through this table, never
 * through symbols: so it works when libusm.so was loaded RTLD_LOCAL and when
 * libusm is static.  The table lives as long as the process.  All functions
 * are thread-safe. */
#ifndef USM_MODULE_H
#define USM_MODULE_H

#include <usm/device.h>
#include <usm/types.h>

USM_BEGIN_DECLS

#define USM_MODULE_ABI 1u

typedef enum usm_log_level {
    USM_LOG_ERROR = 1,
    USM_LOG_WARN  = 2,
    USM_LOG_INFO  = 3,
    USM_LOG_DEBUG = 4,
    USM_LOG_TRACE = 5
} usm_log_level;

/** System calls a module makes: through here, so that tests can fail each. */
typedef struct usm_os_api {
    /** Private anonymous pages. `prot` is PROT_*. NULL on failure, errno set. */
    void *(*map)(size_t size, int prot);
    /** The same in place of what is mapped at `at` (MAP_FIXED). */
    void *(*map_at)(void *at, size_t size, int prot);
    /** A shared mapping of fd at offset 0; `at` non-NULL: there (MAP_FIXED). */
    void *(*map_fd)(void *at, size_t size, int prot, int fd);
    int (*unmap)(void *p, size_t size);
    int (*protect)(void *p, size_t size, int prot);
    int (*memfd)(const char *name, size_t size); /**< close-on-exec; -1, errno */
    int (*close)(int fd);
    /** A detached thread that blocks all signals; 0 or an errno value. */
    int (*thread)(void (*fn)(void *), void *arg, const char *name);
} usm_os_api;

typedef struct usm_host_api {
    uint32_t abi;
    uint32_t struct_size;

    /** Writes the calling thread's story and returns `status`: how a module's
     * failure is born.  Never allocates; never logs. */
    usm_status (*report)(usm_status status, const char *format, ...) USM_PRINTF(2, 3);
    void (*log)(usm_log_level level, const char *format, ...) USM_PRINTF(2, 3);
    bool (*log_enabled)(usm_log_level level);

    /** A setting's value in force by key without USM_; NULL when unset. */
    const char *(*setting)(const char *key);
    bool (*setting_bool)(const char *key);
    uint64_t (*setting_size)(const char *key); /**< bytes                           */

    /** Host heap; NULL when exhausted (no story is written). */
    void *(*heap_alloc)(size_t size); /**< zeroed                                   */
    void (*heap_free)(void *p);

    const usm_os_api *os;
} usm_host_api;

USM_END_DECLS
#endif
