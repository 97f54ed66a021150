/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* A number that shows whether two processes are on one host, so that each can open the other's
 * memory files through /proc.  It is made of what they must have in common: the boot, the namespaces
 * of processes and of the network, the user.  Members of several "nodes" made of network namespaces
 * have different numbers. */
#ifndef USM_BASE_INLINE_HOST_H
#define USM_BASE_INLINE_HOST_H

#include <fcntl.h>
#include <stdbool.h>
#include <unistd.h>
#include <usm/module.h>

static inline uint64_t usm_host_mix(uint64_t hash, const char *text, size_t n)
{
    for (size_t i = 0; i < n; i++)
        hash = (hash ^ (unsigned char)text[i]) * UINT64_C(0x100000001b3);
    return hash;
}

/* Adds the content of a link of /proc or a small file to the hash; false: there is none. */
static inline bool usm_host_mix_in(const usm_os_api *os, uint64_t *hash, const char *path,
                                   bool is_link)
{
    char    text[256];
    int64_t got;
    int     fd;

    if (is_link) {
        got = readlink(path, text, sizeof(text));
    } else {
        fd = os->open(path, O_RDONLY, 0);
        if (fd < 0)
            return false;
        got = os->pread(fd, text, sizeof(text), 0);
        (void)os->close(fd);
    }
    if (got <= 0)
        return false;
    *hash = usm_host_mix(*hash, text, (size_t)got);
    return true;
}

/* 0: the system does not tell. */
static inline uint64_t usm_host_number(const usm_os_api *os)
{
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    uid_t    user = geteuid();

    if (!usm_host_mix_in(os, &hash, "/proc/sys/kernel/random/boot_id", false) ||
        !usm_host_mix_in(os, &hash, "/proc/self/ns/pid", true) ||
        !usm_host_mix_in(os, &hash, "/proc/self/ns/net", true))
        return 0;
    hash = usm_host_mix(hash, (const char *)&user, sizeof(user));
    return hash | 1;
}

#endif
