/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The graph that a process runs, for others of the same user to see.  Called by usm-run, which shows
 * its own, and by tools that look.  Two files beside the process's monitor page, 0600:
 *
 *     FOLDER/<pid>-<pid namespace>.graph      a line that says whose it is, its name, its text
 *     FOLDER/<pid>-<pid namespace>.progress   the last line of usm-run --progress=json
 *
 * The second one is replaced as a whole, and only while somebody reads, so a run that nobody looks at
 * writes once.  A process that is killed leaves both, and the next reader removes them. */
#ifndef USM_MONITOR_GRAPH_FILE_H
#define USM_MONITOR_GRAPH_FILE_H

#include "monitor/reader.h"

#define USM__MONITOR_GRAPH_MAX (16u << 20) /* bytes of a file */

/* ---- the process that runs it: one thread ---- */

typedef struct usm__monitor_graph {
    char                     path[USM__MONITOR_PATH]; /* without a suffix; "": it is not shown */
    const _Atomic(uint64_t) *readers;
} usm__monitor_graph;

/* Shows the text that was read from the file `name`.  False, with errno: nobody sees it. */
bool usm__monitor_graph_show(usm__monitor_graph *g, const char *name, const char *text);
bool usm__monitor_graph_is_watched(const usm__monitor_graph *g);
void usm__monitor_graph_set_progress(const usm__monitor_graph *g, const char *line, size_t size);
void usm__monitor_graph_hide(usm__monitor_graph *g);

/* ---- readers; nothing in the files is trusted to be what usm-run writes ---- */

typedef struct usm__monitor_graph_found {
    uint64_t    start_ticks; /* of its process: with the pid, what tells two apart */
    char       *bytes;       /* freed by the caller                                */
    const char *name, *text; /* in `bytes`                                         */
} usm__monitor_graph_found;

/* Lists the processes that show a graph, in order, at most `cap`; returns how many there are. */
size_t usm__monitor_list_graphs(const usm__monitor_reader *r, uint32_t *pids, size_t cap);
/* has_text: the whole text is wanted, not its name alone.  False: the process has ended, and its files
 * were removed, or they are not ours. */
bool usm__monitor_read_graph(const usm__monitor_reader *r, uint32_t pid, bool has_text,
                             usm__monitor_graph_found *found);
/* The line, freed by the caller.  NULL: there is none yet. */
char *usm__monitor_read_progress(const usm__monitor_reader *r, uint32_t pid);

#endif
