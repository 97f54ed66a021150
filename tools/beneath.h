/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Opens files of one folder, and none outside of it, whatever links and ".." their names have.
 * Called by usm-run --within and by usm-web. */
#ifndef USM_TOOLS_BENEATH_H
#define USM_TOOLS_BENEATH_H

/* The descriptor, or -1 and errno: EXDEV if the name leads out of the folder.  `flags` are those of
 * open(); files that are made have mode 0666 less the umask. */
int tool_open_beneath(int folder, const char *name, int flags);

/* An open folder that names are held to.  The caller closes `fd` and frees `path`. */
typedef struct tool_root {
    int   fd;   /* -1: none */
    char *path; /* without links */
} tool_root;

/* 0, or errno. */
int tool_root_open(tool_root *root, const char *path);
/* Opens `name`, which is absolute or relative to the working folder, as tool_open_beneath() does.
 */
int tool_root_open_file(const tool_root *root, const char *name, int flags);

#endif
