/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Memory for keys, and reading them.  See the header. */
#include "base/os_secret.h"

#include "base/fault.h"
#include "base/os.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#define PAGE 4096u

void usm__os_secret_wipe(void *p, size_t size)
{
    explicit_bzero(p, size);
}

int usm__os_secret_hide(void *p, size_t size)
{
    uintptr_t first = (uintptr_t)p & ~(uintptr_t)(PAGE - 1);
    size_t    n     = ((uintptr_t)p + size - first + PAGE - 1) & ~(size_t)(PAGE - 1);

    (void)mlock((void *)first, n); /* exceeding the user's limit is not a failure */
    return madvise((void *)first, n, MADV_DONTDUMP);
}

void *usm__os_secret_map(size_t size)
{
    void *p = usm__os_map(size, PROT_READ | PROT_WRITE);
    int   error;

    if (p == NULL || usm__os_secret_hide(p, size) == 0)
        return p;
    error = errno;
    (void)usm__os_unmap(p, size);
    errno = error;
    return NULL;
}

void usm__os_secret_unmap(void *p, size_t size)
{
    if (p == NULL)
        return;
    usm__os_secret_wipe(p, size);
    (void)usm__os_unmap(p, size);
}

size_t usm__os_secret_peek(const void *p, void *copy, size_t size)
{
    struct iovec to = {copy, size}, from = {(void *)(uintptr_t)p, size};
    ssize_t      n = process_vm_readv(getpid(), &to, 1, &from, 1, 0);

    return n > 0 ? (size_t)n : 0;
}

/* Returns 0 or an errno value. */
static int check_private(int fd)
{
    struct stat st;

    if (fstat(fd, &st) != 0)
        return errno;
    if (!S_ISREG(st.st_mode))
        return EINVAL;
    if ((st.st_mode & (S_IRWXG | S_IRWXO)) != 0 || (st.st_uid != geteuid() && st.st_uid != 0))
        return EPERM;
    return 0;
}

int64_t usm__os_secret_read(const char *path, void *data, size_t cap)
{
    int     fd = -1;
    ssize_t n  = -1;
    int     error;

    if (usm__fault_hit("os.open", NULL))
        errno = EMFILE;
    else /* does not wait for a pipe */
        fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    if (fd < 0)
        return -1;
    error = check_private(fd);
    while (error == 0 && (n = read(fd, data, cap)) < 0)
        if (errno != EINTR)
            error = errno;
    (void)close(fd);
    errno = error;
    return n;
}
