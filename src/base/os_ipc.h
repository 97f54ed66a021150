/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Calls about other processes: who runs, sockets of this machine that pass descriptors, memory
 * files that can be sealed.  Each is one call of the system, repeated only when a signal cut it
 * short. Descriptors are close-on-exec.  0, or -1 with errno, unless said otherwise.
 *
 * Fault points: "os.pidfd", "os.pidfd_take", "os.socket", "os.connect", "os.accept", "os.send",
 * "os.receive", "os.epoll", "os.dup", "os.seal", "os.random", "os.memfd" and "os.ftruncate". */
#ifndef USM_BASE_OS_IPC_H
#define USM_BASE_OS_IPC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* When that process was started, in clock ticks after boot; 0: there is none of that number. */
uint64_t usm__os_process_start(int pid);
/* Whose it is; UINT32_MAX: there is none of that number. */
uint32_t usm__os_process_user(int pid);
int      usm__os_pidfd(int pid);
/* Whether the process behind the pidfd has ended, its last thread as well. */
bool usm__os_pidfd_ended(int pidfd);
/* A descriptor of another process, for ourselves; EPERM where the system does not let. */
int usm__os_pidfd_take(int pidfd, int fd);

/* The number, there, of that process's descriptor of the memory file of that name; -1 with errno,
 * ENOENT: it has none. */
int usm__os_find_memfd(int pid, const char *name);

/* Sockets by an abstract name of at most 100 bytes, one packet a message. */
int usm__os_listen(const char *name);
/* EAGAIN: not within the time, which holds for later sends and receives as well. */
int usm__os_connect(const char *name, unsigned timeout_ms);
int usm__os_accept(int fd);
/* Who is at the other end. */
int usm__os_peer(int fd, int *pid, uint32_t *uid);
/* One packet, with a descriptor if `pass` is not -1; never raises SIGPIPE. */
int usm__os_send(int fd, const void *data, size_t size, int pass);
/* One packet; *passed is its descriptor or -1.  The size, 0: the other end is closed. */
ssize_t usm__os_receive(int fd, void *data, size_t size, int *passed);

/* Waiting for many descriptors: `data` comes back when one can be read, or its other end is closed;
 * to_read false: only that. */
int usm__os_epoll(void);
int usm__os_epoll_add(int epoll, int fd, bool to_read, uint64_t data);
/* pre: fd is open. */
void usm__os_epoll_remove(int epoll, int fd);
/* The next one, without end; interruptions are waited through. */
int usm__os_epoll_wait(int epoll, uint64_t *data);

int usm__os_dup(int fd);
int usm__os_random(void *data, size_t size);
/* A memory file that takes seals (usm__os_memfd()'s takes none). */
int usm__os_memfd_sealable(const char *name, size_t size);
/* Its size is for good; is_read_only: nobody can write to it from now on but through mappings that
 * are there. */
int usm__os_seal(int fd, bool is_read_only);
/* Whether the file is a memory file of at least that size, which nobody can make shorter. */
bool usm__os_is_fixed(int fd, size_t size);
/* The file's first bytes, shared, to be read alone; NULL with errno. */
void *usm__os_map_fd_read_only(size_t size, int fd);
/* A child of fork() will not have these pages.  No more than a hint. */
void usm__os_keep_from_children(void *p, size_t size);

#endif
