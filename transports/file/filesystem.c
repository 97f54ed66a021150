/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Which file systems are on a disk.  The type that statfs reports for a folder is the only way to
 * tell: O_TMPFILE and O_DIRECT succeed on memory too.  Called when a store is opened. */
#include "internal.h"

static const struct {
    uint32_t      type;
    usm_file_kind kind;
    const char   *name;
} known[] = {
    {0x0000ef53, USM_FILE_DISK, "ext4"},      {0x58465342, USM_FILE_DISK, "xfs"},
    {0x9123683e, USM_FILE_DISK, "btrfs"},     {0xf2f52010, USM_FILE_DISK, "f2fs"},
    {0x2fc12fc1, USM_FILE_DISK, "zfs"},       {0xca451a4e, USM_FILE_DISK, "bcachefs"},
    {0x794c7630, USM_FILE_DISK, "overlay"},   {0x01021994, USM_FILE_MEMORY, "tmpfs"},
    {0x858458f6, USM_FILE_MEMORY, "ramfs"},   {0x958458f6, USM_FILE_MEMORY, "hugetlbfs"},
    {0x00006969, USM_FILE_NETWORK, "NFS"},    {0x0bd00bd0, USM_FILE_NETWORK, "Lustre"},
    {0xff534d42, USM_FILE_NETWORK, "CIFS"},   {0xfe534d42, USM_FILE_NETWORK, "SMB"},
    {0x0000517b, USM_FILE_NETWORK, "SMB"},    {0x47504653, USM_FILE_NETWORK, "GPFS"},
    {0x19830326, USM_FILE_NETWORK, "BeeGFS"}, {0x00c36400, USM_FILE_NETWORK, "Ceph"},
    {0x5346414f, USM_FILE_NETWORK, "AFS"},    {0x01021997, USM_FILE_NETWORK, "9p"},
    {0xaad7aaea, USM_FILE_NETWORK, "PanFS"},  {0x65735546, USM_FILE_NETWORK, "FUSE"},
};
#define KNOWN (sizeof(known) / sizeof(known[0]))

usm_file_kind usm_file_classify(uint64_t filesystem, const char **name)
{
    for (size_t i = 0; i < KNOWN; i++)
        if (known[i].type == (uint32_t)filesystem) {
            *name = known[i].name;
            return known[i].kind;
        }
    *name = "an unknown file system";
    return USM_FILE_UNKNOWN;
}

usm_file_process usm_file_now; /* atomic, each member */

void usm_file_warn_network(const usm_host_api *api, const char *name, const char *path)
{
    for (size_t i = 0; i < KNOWN; i++) {
        uint64_t bit = UINT64_C(1) << i;

        if (known[i].name != name)
            continue;
        if (!(atomic_fetch_or_explicit(&usm_file_now.warned, bit, memory_order_relaxed) & bit))
            api->log(USM_LOG_WARN | USM_LOG_NODE,
                     "%s is on %s: spilling there goes over the network and may be slow for "
                     "others too; a folder on a local disk is better",
                     path, name);
        return;
    }
}
