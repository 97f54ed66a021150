/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Every system and heap call that may fail, with a fault point for tests (base/fault.h):
 * "heap.alloc" (also for realloc and strdup), "os.mmap", "os.munmap", "os.mprotect", "os.mremap",
 * "os.memfd" and "os.ftruncate", "os.thread", "os.read_file", "os.write_file" and in it "os.write"
 * and "os.rename", "os.open", "os.dlopen".  cgroup.c determines memory sizes.  Nothing here writes
 * an error message, because the caller knows the purpose of the call. */
#ifndef USM_BASE_OS_H
#define USM_BASE_OS_H

#include <usm/module.h>

/* Returns zeroed memory; NULL if it is exhausted.  Size 0 counts as 1 in both functions. */
void *usm__heap_alloc(size_t size);
void *usm__heap_realloc(void *p, size_t size);
void  usm__heap_free(void *p);
/* Makes room for element n, of `each` bytes, of the list at *list (a pointer to any type), which
 * has room for *cap.  False: no memory, and nothing has changed. */
bool  usm__heap_room(void *list, size_t n, size_t *cap, size_t each);
char *usm__heap_strdup(const char *text);

void *usm__os_map(size_t size, int prot);              /* private, anonymous         */
void *usm__os_map_at(void *at, size_t size, int prot); /* replaces existing mappings */
void *usm__os_map_noreserve(size_t size);              /* for sparse tables          */
/* For data that lives as long as the process: never unmapped, and leak checkers scan it for
 * pointers. */
void *usm__os_map_for_life(size_t size);
void *usm__os_map_fd(void *at, size_t size, int prot, int fd); /* shared */
/* Maps the part of fd from offset on, shared, in place of existing mappings. */
void *usm__os_map_fd_part(void *at, size_t size, int fd, uint64_t offset);
/* Moves pages of a private mapping to another address, in place of existing mappings; `from` stays
 * mapped and empty.  Returns 0 or an errno value (EINVAL: not possible with this kernel or under
 * valgrind).  "os.mremap". */
int usm__os_move(void *from, size_t size, void *to);
int usm__os_unmap(void *p, size_t size);
/* Discards the whole pages of a private mapping in [p, p + size): they read as zeros and cost no
 * memory until they are written again.  Where the system refuses (mlockall) they stay as they
 * are. */
void usm__os_discard(void *p, size_t size);
int  usm__os_protect(void *p, size_t size, int prot);
int  usm__os_memfd(const char *name, size_t size);
int  usm__os_close(int fd);
/* Starts a detached thread with a name (15 characters).  All signals are blocked in it, except
 * those that a thread itself causes (SIGSEGV, ...).  Returns 0 or an errno value. */
int usm__os_thread(void (*fn)(void *), void *arg, const char *name);
/* Reads a whole file into a heap block.  NULL with errno: EFBIG for more than `most` bytes, EINVAL
 * if it is not a regular file (a device or pipe may never end).  A 0 byte follows the data. */
void *usm__os_read_file(const char *path, size_t most, size_t *size);
/* Writes the file under another name in the same folder, then renames it: readers see all of it or
 * nothing.  Makes missing folders (0700).  Returns 0, or -1 with errno. */
int usm__os_write_file(const char *path, const void *data, size_t size);
/* Makes the folders above the last part of the path (0700).  Returns 0, or -1 with errno. */
int usm__os_make_folders(const char *path);
/* Writes all bytes; returns 0, or -1 with errno.  "os.write". */
int usm__os_write(int fd, const void *data, size_t size);
/* Opens a regular file, new or existing, which this process alone may write until it is closed; its
 * content stays.  -1 with errno: EWOULDBLOCK if another process has it open so.  "os.open". */
int      usm__os_open_alone(const char *path);
uint64_t usm__os_now_ns(void); /* CLOCK_MONOTONIC */
void     usm__os_sleep_ns(uint64_t ns);
unsigned usm__os_cpu_count(void);    /* that the process may run on, and that its quota pays for; >=
                                        1 */
uint64_t usm__os_memory_total(void); /* bytes: the smaller of RAM and cgroup */
uint64_t usm__os_memory_free(void);  /* bytes available without swapping     */
/* The part of the two functions above that reads control groups, for tests: `list` is
 * /proc/self/cgroup, `mount` is /sys/fs/cgroup.  UINT64_MAX: no limit. */
void usm__os_cgroup_memory(const char *list, const char *mount, uint64_t *limit, uint64_t *free);
/* The same for processor time: the number of processors, rounded up; 0: no limit. */
unsigned usm__os_cgroup_cpus(const char *list, const char *mount);
/* _off delays pthread_cancel() of the calling thread, which would leave a lock behind, until
 * _restore gets the value that _off returned. */
int  usm__os_cancel_off(void);
void usm__os_cancel_restore(int before);
/* When usm__os_membarrier() returns, every other thread of the process has executed a full barrier.
 * _start() prepares it; false: the kernel has none, and it must not be called. */
bool usm__os_membarrier_start(void);
void usm__os_membarrier(void);

/* Modules: RTLD_NOW | RTLD_LOCAL.  NULL, with a text in `why`. */
void *usm__os_dlopen(const char *path, char *why, size_t why_size);
void *usm__os_dlsym(void *module, const char *name);
void  usm__os_dlclose(void *module);

extern const usm_os_api usm__os_api;

#endif
