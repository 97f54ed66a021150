/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Calls that concern other processes: their state, sockets of this machine that pass descriptors,
 * memory files that can be sealed.  Each is one system call, repeated only if a signal interrupted
 * it.  Descriptors are close-on-exec.  They return 0, or -1 with errno, unless stated otherwise.
 *
 * Fault points: "os.pidfd", "os.pidfd_take", "os.socket", "os.connect", "os.accept", "os.send",
 * "os.receive", "os.epoll", "os.dup", "os.seal", "os.random", "os.memfd" and "os.ftruncate". */
#ifndef USM_BASE_OS_IPC_H
#define USM_BASE_OS_IPC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* The start time of the process, in clock ticks after boot; 0: there is no such process. */
uint64_t usm__os_process_start(int pid);
/* The user of the process; UINT32_MAX: there is no such process. */
uint32_t usm__os_process_user(int pid);
int      usm__os_pidfd(int pid);
/* True if the process of the pidfd has ended, including its last thread. */
bool usm__os_pidfd_ended(int pidfd);
/* Duplicates a descriptor of another process; EPERM if the system refuses. */
int usm__os_pidfd_take(int pidfd, int fd);

/* Returns the number, in that process, of its descriptor of the memory file `name`; -1 with errno,
 * ENOENT: it has none. */
int usm__os_find_memfd(int pid, const char *name);

/* Sockets with an abstract name of at most 100 bytes; each message is one packet.  Several
 * processes may have a listener: accept() does not wait, nor do the sockets that it returns, nor
 * those of a pair. */
int usm__os_listen(const char *name);
/* EAGAIN: not within the time, which also limits later sends and receives. */
int usm__os_connect(const char *name, unsigned timeout_ms);
int usm__os_accept(int fd);
int usm__os_socket_pair(int pair[2]);
/* Returns the process and the user at the other end. */
int usm__os_peer(int fd, int *pid, uint32_t *uid);
/* Sends one packet, with a descriptor unless `pass` is -1; never raises SIGPIPE. */
int usm__os_send(int fd, const void *data, size_t size, int pass);
/* Receives one packet; *passed is its descriptor or -1.  Returns its size; 0: the other end is
 * closed. */
int64_t usm__os_receive(int fd, void *data, size_t size, int *passed);

/* Waits for many descriptors.  `data` is returned when the descriptor can be read or its other end
 * is closed; with to_read false only when it is closed. */
int usm__os_epoll(void);
int usm__os_epoll_add(int epoll, int fd, bool to_read, uint64_t data);
/* pre: fd is open. */
void usm__os_epoll_remove(int epoll, int fd);
/* Waits for the next one, without a time limit; interruptions are ignored. */
int usm__os_epoll_wait(int epoll, uint64_t *data);

int usm__os_dup(int fd);
int usm__os_random(void *data, size_t size);
/* A memory file that can be sealed (that of usm__os_memfd() cannot). */
int usm__os_memfd_sealable(const char *name, size_t size);
/* Fixes its size; is_read_only: from now on it can only be written through existing mappings. */
int usm__os_seal(int fd, bool is_read_only);
/* True if the file is a memory file of at least that size, which no process can shrink. */
bool usm__os_is_fixed(int fd, size_t size);
/* Maps the first bytes of the file, shared and read-only; NULL with errno. */
void *usm__os_map_fd_read_only(size_t size, int fd);
/* Keeps these pages out of children of fork().  This is only a hint. */
void usm__os_keep_from_children(void *p, size_t size);

#endif
