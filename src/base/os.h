/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Every system and heap call that may fail, so that tests can make it fail
 * (base/fault.h): "heap.alloc" (realloc and strdup too), "os.mmap", "os.munmap",
 * "os.mprotect", "os.mremap", "os.memfd" and "os.ftruncate", "os.thread", "os.read_file",
 * "os.write_file" and in it "os.write" and "os.rename", "os.open", "os.dlopen".  Memory figures are
 * in cgroup.c. Nothing here writes a story: the caller knows what it was for. */
#ifndef USM_BASE_OS_H
#define USM_BASE_OS_H

#include <usm/module.h>

/* Zeroed; NULL when exhausted.  Size 0 counts as 1 in both. */
void *usm__heap_alloc(size_t size);
void *usm__heap_realloc(void *p, size_t size);
void  usm__heap_free(void *p);
char *usm__heap_strdup(const char *text);

void *usm__os_map(size_t size, int prot);              /* private, anonymous      */
void *usm__os_map_at(void *at, size_t size, int prot); /* in place of what is there */
void *usm__os_map_noreserve(size_t size);              /* for sparse tables       */
/* For what lives as long as the process: never to be unmapped, and looked at by
 * leak checkers as roots. */
void *usm__os_map_for_life(size_t size);
void *usm__os_map_fd(void *at, size_t size, int prot, int fd); /* shared                  */
/* The part of fd from offset on, shared, in place of what is there. */
void *usm__os_map_fd_part(void *at, size_t size, int fd, uint64_t offset);
/* Pages of a private mapping to another address, in place of what is there; `from` stays mapped
 * and empty.  0 or an errno value (EINVAL: this kernel or valgrind cannot).  "os.mremap". */
int usm__os_move(void *from, size_t size, void *to);
int usm__os_unmap(void *p, size_t size);
/* Pages of a private mapping that lie in [p, p + size) as a whole: they read as zeros and cost no
 * memory until they are written again.  Where the system does not do it (mlockall) they stay. */
void usm__os_discard(void *p, size_t size);
int  usm__os_protect(void *p, size_t size, int prot);
int  usm__os_memfd(const char *name, size_t size);
int  usm__os_close(int fd);
/* Detached, named (15 characters), all signals blocked but those that a thread
 * raises by its own doing (SIGSEGV, ...); 0 or an errno value. */
int usm__os_thread(void (*fn)(void *), void *arg, const char *name);
/* Whole file into a heap block; NULL with errno: EFBIG for more than `most` bytes, EINVAL for what
 * is no regular file (a device or pipe may never end). A 0 byte follows the data. */
void *usm__os_read_file(const char *path, size_t most, size_t *size);
/* Written aside in the same folder, then renamed: readers see all or nothing.
 * Makes missing folders (0700).  0 or -1 with errno. */
int usm__os_write_file(const char *path, const void *data, size_t size);
/* All of it; 0 or -1 with errno. "os.write". */
int usm__os_write(int fd, const void *data, size_t size);
/* A regular file, new or there, to be written by this process alone until it is closed; what is in
 * it stays.  -1 with errno: EWOULDBLOCK when another has it so.  "os.open". */
int      usm__os_open_alone(const char *path);
uint64_t usm__os_now_ns(void); /* CLOCK_MONOTONIC */
void     usm__os_sleep_ns(uint64_t ns);
unsigned usm__os_cpu_count(void);    /* may be run on, and are paid for by the quota; >= 1 */
uint64_t usm__os_memory_total(void); /* bytes: the smaller of RAM and cgroup */
uint64_t usm__os_memory_free(void);  /* bytes available without swapping     */
/* What the two above read, for tests: `list` is /proc/self/cgroup, `mount` is
 * /sys/fs/cgroup.  UINT64_MAX when nothing limits. */
void usm__os_cgroup_memory(const char *list, const char *mount, uint64_t *limit, uint64_t *free);
/* The same of processor time: how many processors' worth, rounded up; 0 when nothing limits. */
unsigned usm__os_cgroup_cpus(const char *list, const char *mount);
/* Every other thread of the process has run a full barrier when it returns.  _start() prepares it;
 * false: the kernel has none, and it must not be used. */
/* Until it is given back what _off returned, pthread_cancel() of the thread waits: it would leave a
 * lock behind. */
int  usm__os_cancel_off(void);
void usm__os_cancel_restore(int before);
bool usm__os_membarrier_start(void);
void usm__os_membarrier(void);

/* Modules: RTLD_NOW | RTLD_LOCAL. NULL and a text in `why`. */
void *usm__os_dlopen(const char *path, char *why, size_t why_size);
void *usm__os_dlsym(void *module, const char *name);
void  usm__os_dlclose(void *module);

extern const usm_os_api usm__os_api;

#endif
