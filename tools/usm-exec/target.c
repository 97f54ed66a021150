/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* What kind of file a program is: the dynamic loader preloads nothing into static programs, into those
 * of another word size, nor for programs that run with somebody else's rights. */
#include "exec.h"

#include <elf.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* The file that execvp() would run; false: there is none. */
static bool find(const char *program, char *path, size_t size)
{
    const char *folders = getenv("PATH");

    if (strchr(program, '/') || !folders)
        return (size_t)snprintf(path, size, "%s", program) < size;
    while (*folders) {
        size_t n = strcspn(folders, ":");

        if ((size_t)snprintf(path, size, "%.*s/%s", (int)n, n ? folders : ".", program) < size &&
            access(path, X_OK) == 0)
            return true;
        folders += n + (folders[n] == ':');
    }
    return false;
}

static bool has_interpreter(FILE *file, const Elf64_Ehdr *head)
{
    Elf64_Phdr segment;

    for (unsigned i = 0; i < head->e_phnum; i++) {
        if (fseek(file, (long)(head->e_phoff + i * (Elf64_Off)head->e_phentsize), SEEK_SET) != 0 ||
            fread(&segment, sizeof segment, 1, file) != 1)
            return true; /* damaged: the kernel says so */
        if (segment.p_type == PT_INTERP)
            return true;
    }
    return false;
}

/* NULL: libraries can be preloaded into the ELF file. */
static const char *obstacle_of_elf(FILE *file, const Elf64_Ehdr *head)
{
    if (head->e_ident[EI_CLASS] != (sizeof(void *) == 8 ? ELFCLASS64 : ELFCLASS32))
        return "it has another word size than libusm";
    return has_interpreter(file, head) ? NULL : "it is linked statically";
}

/* The interpreter of a script: "#!/usr/bin/env python" is env's business, which runs it by itself. */
static void interpreter_of(FILE *file, char *path, size_t size)
{
    char line[4096] = "", *start = line + 2;

    (void)fseek(file, 0, SEEK_SET);
    if (!fgets(line, sizeof line, file))
        return;
    start += strspn(start, " \t");
    start[strcspn(start, " \t\n")] = '\0';
    (void)snprintf(path, size, "%s", start);
}

static const char *obstacle_of(const char *path, char *interpreter, size_t size)
{
    Elf64_Ehdr  head;
    struct stat st;
    const char *found = NULL;
    FILE       *file  = fopen(path, "re");

    if (!file)
        return NULL;
    memset(&head, 0, sizeof head);
    (void)fread(&head, 1, sizeof head, file);
    if (fstat(fileno(file), &st) == 0 && (((st.st_mode & S_ISUID) && st.st_uid != geteuid()) ||
                                          ((st.st_mode & S_ISGID) && st.st_gid != getegid())))
        found = "it runs with the rights of its owner or group (setuid, setgid)";
    else if (memcmp(head.e_ident, ELFMAG, SELFMAG) == 0)
        found = obstacle_of_elf(file, &head);
    else if (memcmp(head.e_ident, "#!", 2) == 0)
        interpreter_of(file, interpreter, size);
    (void)fclose(file);
    return found;
}

bool exec_can_preload(const char *program, char *why, size_t size)
{
    char        path[4096], interpreter[4096] = "";
    const char *found = NULL;

    if (find(program, path, sizeof path))
        found = obstacle_of(path, interpreter, sizeof interpreter);
    if (!found && *interpreter)
        found = obstacle_of(interpreter, path, sizeof path);
    if (found)
        (void)snprintf(why, size, "%s", found);
    return found == NULL;
}
