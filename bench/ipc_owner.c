/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The owner of `usm-bench ipc`: see ipc.h. */
#include "ipc.h"

#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

static struct {
    usm_pool      *pool, *other; /* what is mapped when the medium block is not */
    usm_ipc_event *ping, *pong;
    uint64_t       pings;
    ipc_offer      offer;
} own;

static bool give_block(usm_pool *pool, size_t size, usm_ipc_handle *handle, void **p)
{
    *p = usm_pool_malloc(pool, size);
    return *p && usm_ipc_get(*p, NULL, handle) == USM_OK;
}

static bool give_blocks(void)
{
    void *p = NULL;

    for (size_t i = 0; i < IPC_BLOCKS; i++)
        if (!give_block(own.pool, 4096, &own.offer.block[i], &p))
            return false;
    return give_block(own.other, IPC_MEDIUM, &own.offer.medium, &p);
}

static bool give_memory(void)
{
    usm_pool_desc   desc = USM_POOL_DESC_INIT;
    usm_device_info info = USM_DEVICE_INFO_INIT;
    usm_context    *ctx  = usm_default_context();
    usm_device     *dev  = NULL;
    size_t          n    = 0;
    void           *p    = NULL;
    usm_kind        kind;
    bool            is_host;

    if (!ctx || usm_context_get_devices(ctx, &dev, 1, &n) != USM_OK ||
        usm_device_get_info(dev, &info) != USM_OK)
        return false;
    is_host          = strncmp(info.selector, "host", 4) == 0;
    desc.name        = "slab";
    desc.export_mode = USM_POOL_EXPORT_RW;
    kind             = is_host ? USM_HOST : USM_DEVICE;
    if (usm_pool_create(ctx, dev, kind, &desc, &own.pool) != USM_OK ||
        usm_pool_create(ctx, dev, kind, &desc, &own.other) != USM_OK || !give_blocks())
        return false;
    own.offer.has_large = is_host && give_block(own.pool, IPC_LARGE, &own.offer.large, &p);
    if (own.offer.has_large)
        memset(p, 1, IPC_LARGE);
    return true;
}

static bool give_events(void)
{
    return usm_ipc_event_create(NULL, &own.ping) == USM_OK &&
           usm_ipc_event_create(NULL, &own.pong) == USM_OK &&
           usm_ipc_event_get(own.ping, &own.offer.ping) == USM_OK &&
           usm_ipc_event_get(own.pong, &own.offer.pong) == USM_OK;
}

static bool give_descriptor(int sock)
{
    static int   fd   = -1;
    char         byte = 'd';
    struct iovec data = {&byte, 1};
    union {
        struct cmsghdr head;
        char           space[CMSG_SPACE(sizeof(int))];
    } control;
    struct msghdr m = {.msg_iov        = &data,
                       .msg_iovlen     = 1,
                       .msg_control    = control.space,
                       .msg_controllen = sizeof control.space};

    if (fd < 0) {
        fd = memfd_create("usm-bench", MFD_CLOEXEC);
        if (fd < 0 || ftruncate(fd, (off_t)IPC_MEDIUM) != 0)
            return false;
    }
    memset(&control, 0, sizeof control);
    control.head = (struct cmsghdr){
        .cmsg_len = CMSG_LEN(sizeof(int)), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS};
    memcpy(CMSG_DATA(&control.head), &fd, sizeof fd);
    return sendmsg(sock, &m, MSG_NOSIGNAL) == 1;
}

/* Each ping is answered by a pong; "go" says that the first is waited for. */
static bool answer_pings(int sock, uint64_t n)
{
    bool ok = send(sock, "e", 1, MSG_NOSIGNAL) == 1;

    for (uint64_t i = 0; ok && i < n; i++)
        ok = usm_ipc_event_sync_count(own.ping, ++own.pings, 10000) == USM_OK &&
             usm_ipc_event_signal(own.pong) == USM_OK;
    return ok;
}

/* From the values that the words have. */
static bool answer_words(int sock, ipc_words *words, uint64_t n)
{
    uint64_t at = atomic_load(&words->pong);
    bool     ok = send(sock, "w", 1, MSG_NOSIGNAL) == 1;

    for (uint64_t i = 1; ok && i <= n; i++) {
        ipc_spin_until(&words->ping, at + i);
        atomic_store_explicit(&words->pong, at + i, memory_order_release);
    }
    return ok;
}

static bool answer(int sock, ipc_words *words, const ipc_request *r)
{
    if (r->what == 'd')
        return give_descriptor(sock);
    return r->what == 'e' ? answer_pings(sock, r->n) : answer_words(sock, words, r->n);
}

int ipc_own(int sock, ipc_words *words)
{
    ipc_request r;
    bool        ok;

    if (!give_memory())
        snprintf(own.offer.no_memory, sizeof own.offer.no_memory, "%.199s", usm_last_error());
    if (!give_events())
        snprintf(own.offer.no_events, sizeof own.offer.no_events, "%.199s", usm_last_error());
    ok = send(sock, &own.offer, sizeof own.offer, MSG_NOSIGNAL) == (ssize_t)sizeof own.offer;
    while (ok && recv(sock, &r, sizeof r, MSG_WAITALL) == (ssize_t)sizeof r)
        ok = answer(sock, words, &r);
    usm_ipc_event_destroy(own.ping);
    usm_ipc_event_destroy(own.pong);
    usm_shutdown();
    return ok ? 0 : 1;
}
