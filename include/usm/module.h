/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/** @file
 * What libusm hands to its modules (backends, pools, transports, codecs): logging, stories,
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
    USM_LOG_TRACE = 5,
    /** Or'ed to USM_LOG_WARN: what all processes of a job on one node would say alike.  One of them
     * warns, to the others it is information. */
    USM_LOG_NODE = 0x100
} usm_log_level;

/** What is known of an open file and of the place it lies in. */
typedef struct usm_os_file {
    uint64_t size; /**< bytes; of a device too                                     */
    bool     is_regular;
    bool     is_device;    /**< a block device                                             */
    uint64_t filesystem;   /**< statfs's f_type                                            */
    uint64_t available;    /**< bytes that an ordinary user may still write there          */
    uint64_t total;        /**< bytes of the file system                                   */
    uint32_t direct_align; /**< of offsets and sizes of direct I/O; 0: not known         */
} usm_os_file;

typedef enum usm_os_limit {
    USM_OS_LIMIT_LOCKED_MEMORY = 1, /* bytes this process may lock (RLIMIT_MEMLOCK)          */
    USM_OS_LIMIT_FILE_SIZE     = 2  /* length of a file; beyond it a signal ends the process */
} usm_os_limit;

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
    /** A memfd that can be sealed; seal(): its size stays, and is_read_only: nobody gets to write
     * to it from now on but through mappings that are there. */
    int (*memfd_sealable)(const char *name, size_t size);
    int (*seal)(int fd, bool is_read_only); /**< 0; -1, errno */
    /** A detached thread that blocks all signals; 0 or an errno value. */
    int (*thread)(void (*fn)(void *), void *arg, const char *name);

    /* Files: one call of the system each, not repeated; -1 and errno on failure. ----------------
     */
    int (*open)(const char *path, int flags, unsigned mode); /**< close-on-exec           */
    int (*unlink)(const char *path);
    int (*inspect)(int fd, usm_os_file *file);
    int64_t (*pread)(int fd, void *data, size_t size, uint64_t at);
    int64_t (*pwrite)(int fd, const void *data, size_t size, uint64_t at);
    int (*fallocate)(int fd, int mode, uint64_t at, uint64_t size); /**< mode: the system's */
    int (*truncate)(int fd, uint64_t size);
    int (*sync)(int fd); /**< data and what is needed to find it                          */
    /** An open-file-description lock of [at, at + size); does not wait: EAGAIN. */
    int (*lock)(int fd, bool is_exclusive, uint64_t at, uint64_t size);
    /** Writes [at, at + size) out and forgets the system's copy of it: a hint. */
    void (*drop_cache)(int fd, uint64_t at, uint64_t size);
    int (*event_fd)(void); /**< eventfd, close-on-exec                                    */
    uint64_t (*limit)(usm_os_limit which); /**< UINT64_MAX: none                          */

    /* Memory for keys: left out of core dumps, and locked as far as the limit goes. -------------
     */
    void *(*secret_map)(size_t size);           /**< zeroed; NULL and errno               */
    void (*secret_unmap)(void *p, size_t size); /**< overwritten first; NULL is fine      */
    /** Pages of others that [p, p + size) touches are treated so from now on; -1, errno. */
    int (*secret_hide)(void *p, size_t size);
    void (*secret_wipe)(void *p, size_t size);
    /** What p points to, if it can be read at all; how many bytes. */
    size_t (*secret_peek)(const void *p, void *copy, size_t size);
    /** The beginning of a file that nobody but its owner may read; how many bytes; -1 and errno,
     * EPERM: others may. */
    int64_t (*secret_read)(const char *path, void *data, size_t cap);

    /** Processors that are this process's: those it may run on, and no more than the quota of its
     * control group pays for; >= 1. */
    unsigned (*cpu_count)(void);
} usm_os_api;

typedef struct usm_host_api {
    uint32_t abi;
    uint32_t struct_size;

    /** Writes the calling thread's story and returns `status`: how a module's
     * failure is born.  Never allocates; never logs. */
    usm_status (*report)(usm_status status, const char *format, ...) USM_PRINTF(2, 3);
    void (*log)(usm_log_level level, const char *format, ...) USM_PRINTF(2, 3);
    bool (*log_enabled)(usm_log_level level);

    /** A setting's value in force by key without USM_; NULL when unset; of a secret "(set)". */
    const char *(*setting)(const char *key);
    bool (*setting_bool)(const char *key);
    uint64_t (*setting_size)(const char *key); /**< bytes                           */

    /** Host heap; NULL when exhausted (no story is written). */
    void *(*heap_alloc)(size_t size); /**< zeroed                                   */
    void (*heap_free)(void *p);

    const usm_os_api *os;

    /** A fault point of the module's own ("file.read"): whether the call shall fail now, for tests.
     * *status (may be NULL) is set to what was asked for, else left alone. */
    bool (*fault)(const char *name, usm_status *status);

    /** A secret setting's value into memory of os->secret_map(); its length, 0: unset.  The
     * variable it came from is overwritten. */
    size_t (*take_secret)(const char *key, char *text, size_t cap);
} usm_host_api;

USM_END_DECLS
#endif
