/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/** @file
 * The table that libusm passes to its modules (backends, pools, transports,
 * codecs): logging, error messages, settings, memory and system calls.
 * EXPERIMENTAL until there is a second module of each kind.
 *
 * A module includes only <usm/...> and calls libusm through this table, never
 * through symbols: it therefore also works when libusm.so was loaded
 * RTLD_LOCAL, and when libusm is static.  The table is valid until the process
 * ends.  All its functions are thread-safe. */
#ifndef USM_MODULE_H
#define USM_MODULE_H

#include <usm/device.h>
#include <usm/types.h>

USM_BEGIN_DECLS

#define USM_MODULE_ABI 2u

typedef enum usm_log_level {
    USM_LOG_ERROR = 1,
    USM_LOG_WARN  = 2,
    USM_LOG_INFO  = 3,
    USM_LOG_DEBUG = 4,
    USM_LOG_TRACE = 5,
    /** Or'ed to USM_LOG_WARN for a warning that all processes of a job on one
     * node would repeat.  One of them logs it as a warning, the others at level
     * info. */
    USM_LOG_NODE = 0x100
} usm_log_level;

struct pollfd;

/** Properties of an open file and of its file system. */
typedef struct usm_os_file {
    uint64_t size; /**< bytes; also for a block device */
    bool     is_regular;
    bool     is_device;    /**< a block device  */
    uint64_t filesystem;   /**< statfs's f_type */
    uint64_t available;    /**< bytes that an unprivileged user may still write to the file
                                system */
    uint64_t total;        /**< bytes of the file system                                  */
    uint32_t direct_align; /**< alignment of offsets and sizes for direct I/O; 0: unknown */
} usm_os_file;

typedef enum usm_os_limit {
    USM_OS_LIMIT_LOCKED_MEMORY = 1, /* bytes that this process may lock (RLIMIT_MEMLOCK)        */
    USM_OS_LIMIT_FILE_SIZE     = 2  /* largest size of a file; a write beyond it raises SIGXFSZ */
} usm_os_limit;

/** The system calls that modules make.  Modules call them through this table, so
 * that tests can make each of them fail. */
typedef struct usm_os_api {
    /** Maps private anonymous pages; `prot` is PROT_*.  NULL on failure, with
     * errno. */
    void *(*map)(size_t size, int prot);
    /** The same, in place of the mapping at `at` (MAP_FIXED). */
    void *(*map_at)(void *at, size_t size, int prot);
    /** Maps fd shared from offset 0; if `at` is not NULL, at that address
     * (MAP_FIXED). */
    void *(*map_fd)(void *at, size_t size, int prot, int fd);
    int (*unmap)(void *p, size_t size);
    int (*protect)(void *p, size_t size, int prot);
    int (*memfd)(const char *name, size_t size); /**< close-on-exec; -1 and errno on failure */
    int (*close)(int fd);
    /** Creates a memfd that seal() can seal.  A sealed memfd keeps its size;
     * with is_read_only, nobody can write to it any more except through
     * mappings that exist already. */
    int (*memfd_sealable)(const char *name, size_t size);
    int (*seal)(int fd, bool is_read_only); /**< 0; -1 and errno on failure */
    /** Starts a detached thread that blocks all signals.  0, or an errno value. */
    int (*thread)(void (*fn)(void *), void *arg, const char *name);

    /* Files.  Each function is one system call, which is not repeated after a
     * partial result; -1 and errno on failure. */
    int (*open)(const char *path, int flags, unsigned mode); /**< close-on-exec */
    int (*unlink)(const char *path);
    int (*inspect)(int fd, usm_os_file *file);
    int64_t (*pread)(int fd, void *data, size_t size, uint64_t at);
    int64_t (*pwrite)(int fd, const void *data, size_t size, uint64_t at);
    int (*fallocate)(int fd, int mode, uint64_t at, uint64_t size); /**< mode: as in fallocate(2) */
    int (*truncate)(int fd, uint64_t size);
    int (*sync)(int fd); /**< fdatasync(2): the data, and the metadata needed to read it */
    /** Takes an open-file-description lock on [at, at + size).  Does not wait:
     * EAGAIN when another process holds the lock. */
    int (*lock)(int fd, bool is_exclusive, uint64_t at, uint64_t size);
    /** Writes [at, at + size) to the file and drops it from the page cache.  A
     * hint. */
    void (*drop_cache)(int fd, uint64_t at, uint64_t size);
    int (*event_fd)(void);                 /**< an eventfd, close-on-exec */
    uint64_t (*limit)(usm_os_limit which); /**< UINT64_MAX: no limit      */

    /* Memory for keys: excluded from core dumps, and locked as far as
     * RLIMIT_MEMLOCK allows. */
    void *(*secret_map)(size_t size);           /**< zeroed; NULL and errno on failure          */
    void (*secret_unmap)(void *p, size_t size); /**< overwrites the memory first; p may be NULL */
    /** Protects the pages that [p, p + size) touches, which the caller allocated
     * otherwise, in the same way from now on.  -1 and errno on failure. */
    int (*secret_hide)(void *p, size_t size);
    void (*secret_wipe)(void *p, size_t size);
    /** Copies the bytes at p, as far as they can be read.  Returns how many. */
    size_t (*secret_peek)(const void *p, void *copy, size_t size);
    /** Reads the beginning of a file that only its owner may read.  Returns the
     * number of bytes; -1 and errno on failure, EPERM if others may read the
     * file. */
    int64_t (*secret_read)(const char *path, void *data, size_t cap);

    /** The number of processors of this process: those in its affinity mask, but
     * not more than the CPU quota of its control group pays for; >= 1. */
    unsigned (*cpu_count)(void);

    /* Sockets between processes of this machine, close-on-exec.  A packet arrives whole or not at
     * all.  -1 and errno on failure. */

    /** Listens at an abstract name of at most 100 bytes; EADDRINUSE. */
    int (*socket_listen)(const char *name);
    /** ECONNREFUSED: nobody listens there; EAGAIN: not within the time. */
    int (*socket_connect)(const char *name, unsigned timeout_ms);
    int (*socket_accept)(int fd);    /**< does not wait; nor does the socket that it returns */
    int (*socket_pair)(int pair[2]); /**< two that are connected and do not wait */
    /** The process at the other end, and its user. */
    int (*socket_peer)(int fd, int *pid, uint32_t *uid);
    /** Sends one packet, with the descriptor `pass` unless it is -1.  0; never
     * raises SIGPIPE. */
    int (*socket_send)(int fd, const void *data, size_t size, int pass);
    /** Receives one packet; *passed is its descriptor or -1.  Its size; 0: the
     * other end is closed. */
    int64_t (*socket_receive)(int fd, void *data, size_t size, int *passed);
    /** As poll(), until a time of CLOCK_MONOTONIC in nanoseconds; UINT64_MAX:
     * without a limit.  0: the time is over, or a signal came. */
    int (*poll)(struct pollfd *list, unsigned n, uint64_t deadline);
} usm_os_api;

typedef struct usm_host_api {
    uint32_t abi;
    uint32_t struct_size;

    /** Stores the error message of the calling thread and returns `status`: the
     * way in which a module reports a failure.  Never allocates, never logs. */
    usm_status (*report)(usm_status status, const char *format, ...) USM_PRINTF(2, 3);
    void (*log)(usm_log_level level, const char *format, ...) USM_PRINTF(2, 3);
    bool (*log_enabled)(usm_log_level level);

    /** The current value of a setting; `key` is the name without USM_.  NULL
     * when the setting has no value; "(set)" for a secret. */
    const char *(*setting)(const char *key);
    bool (*setting_bool)(const char *key);
    uint64_t (*setting_size)(const char *key); /**< bytes */

    /** Memory of the host's heap.  NULL when it is exhausted; then no error
     * message is stored. */
    void *(*heap_alloc)(size_t size); /**< zeroed */
    void (*heap_free)(void *p);

    const usm_os_api *os;

    /** A fault point of the module, such as "file.read".  Returns true if the
     * call is to fail now, which tests ask for.  Then *status (which may be
     * NULL) is the status that the test asked for; if it asked for none,
     * *status is unchanged. */
    bool (*fault)(const char *name, usm_status *status);

    /** Copies the value of a secret setting into memory of os->secret_map() and
     * overwrites the environment variable it came from.  Returns the length; 0
     * when the setting has no value. */
    size_t (*take_secret)(const char *key, char *text, size_t cap);
} usm_host_api;

USM_END_DECLS
#endif
