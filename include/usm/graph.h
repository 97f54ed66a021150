/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/** @file
 * Graphs of kernels: nodes that partition, process and merge data, joined by
 * edges, and executed by a team.  KernelHive called such a graph a workflow;
 * usm-run executes one from a file (docs/offload.md).
 *
 * A node reads the blocks of its inputs, concatenated in the order in which the
 * edges were added, and writes one block (a partitioner: one block per part):
 *
 *     process      processData(in, in_size, out, out_size)
 *     partition    partitionData(in, in_size, parts, out, part_size)
 *     merge        mergeData(in, in_size, parts, out, out_size)
 *     expandable   process, once for each part of the preceding partitioner; the
 *                  run unrolls it when it reaches the node
 *     call         a function of the program, on the host
 *
 * Here in and out are pointers; the sizes, in bytes, and parts are uint32.  A
 * kernel may have any name and has its own global size.  It must not write to
 * `in`.  Bytes of `out` that it does not write are indeterminate.  Both begin
 * at multiples of 128.
 *
 * An expandable node may follow another one, part by part; each of its launches
 * reads its other inputs whole.  A merger receives the number of blocks, which
 * must all have the same size.
 *
 * A launch that fails on a device is repeated on another, and the failing
 * device is quarantined.  Results therefore do not depend on the set of
 * devices, except for the number of parts where the program left it open: then
 * it depends on the healthy devices.
 *
 * One thread at a time may use a graph.  A graph may be run several times. */
#ifndef USM_GRAPH_H
#define USM_GRAPH_H

#include <usm/parallel.h>

USM_BEGIN_DECLS

typedef struct usm_graph usm_graph;

typedef enum usm_node_kind {
    USM_NODE_INPUT      = 1, /**< bytes of the caller */
    USM_NODE_PROCESS    = 2,
    USM_NODE_PARTITION  = 3,
    USM_NODE_MERGE      = 4,
    USM_NODE_EXPANDABLE = 5,
    USM_NODE_CALL       = 6 /**< a function of the caller */
} usm_node_kind;

/** The function of a CALL node: it reads the blocks of its inputs, concatenated,
 * and writes one block.  usm_graph_run() calls it on its own thread; until it
 * returns, devices finish what they have and get nothing new, so it may use the
 * whole team (usm/parallel.h, usm/template.h).  Another status than USM_OK ends
 * the run; usm_last_error() of the thread is then the reason. */
typedef usm_status (*usm_node_fn)(const void *in, size_t in_size, void *out, size_t out_size,
                                  void *user);

typedef struct usm_node_desc {
    size_t           struct_size;
    usm_node_kind    kind;
    const char      *name;   /**< unique in the graph        */
    usm_team_kernel *kernel; /**< for all kinds except INPUT and CALL */
    uint32_t         dims;
    size_t           global[3], local[3]; /**< of one launch; where dims is 0: 1 item */
    size_t           out_size;            /**< bytes of one output block              */
    uint32_t         parts; /**< PARTITION: how many; 0: `per_device` for each healthy device */
    uint32_t         per_device; /**< 0: 2                                               */
    const void      *data;       /**< INPUT: its bytes; borrowed until the run has ended */
    size_t           size;
    double           work; /**< a hint: relative cost; 0: 1 */
    usm_node_fn      call; /**< CALL */
    void            *call_user;
} usm_node_desc;
#define USM_NODE_DESC_INIT                                                                         \
    {                                                                                              \
        .struct_size = sizeof(usm_node_desc)                                                       \
    }

/** Creates a graph without nodes.  The caller owns *graph.  The team must
 * outlive it. */
USM_API USM_NODISCARD usm_status usm_graph_create(usm_team *team, usm_graph **graph);
/** Destroys a graph, or does nothing if it is NULL. */
USM_API void usm_graph_destroy(usm_graph *graph);
/** Adds a node.  *node is its number; numbers begin at 0.
 *   USM_E_INVALID  the name is taken, or a kind that needs a kernel has none */
USM_API USM_NODISCARD usm_status usm_graph_add(usm_graph *graph, const usm_node_desc *desc,
                                               uint32_t *node);
/** Adds an edge: `to` reads the output of `from`.
 *   USM_E_INVALID  no such node; the edge exists; it closes a cycle (the error
 *                  message names all of its nodes); `to` is an INPUT */
USM_API USM_NODISCARD usm_status usm_graph_connect(usm_graph *graph, uint32_t from, uint32_t to);

typedef struct usm_graph_run_desc {
    size_t          struct_size;
    usm_policy      policy; /**< chooses the device for a ready node: "fastest", "energy", ... */
    bool            no_prefetch; /**< do not prefetch the inputs of the next node during a
                                      computation */
    usm_progress_fn progress;    /**< called by the thread that runs the graph; rate: work per
                                      second */
    void           *progress_user;
    uint32_t        progress_ms; /**< between calls; 0: 200 */
    /** A folder in which the blocks of finished nodes are kept, so that a later
     * run of the same graph continues from them; removed at the end of the run.
     * May be NULL. */
    const char *resume;
    const char *resume_key; /**< identifies what the graph does not show, such as versions of
                                 native code; may be NULL */
} usm_graph_run_desc;
#define USM_GRAPH_RUN_DESC_INIT                                                                    \
    {                                                                                              \
        .struct_size = sizeof(usm_graph_run_desc)                                                  \
    }

/** Runs the graph and waits for it.  `desc` NULL: the defaults.
 *   USM_E_INVALID    a merge without a preceding partitioner, a node without
 *                    input, a folder with blocks of another graph
 *   USM_E_SIZE       a node's inputs exceed a uint; a merger's inputs have
 *                    different sizes
 *   USM_E_CANCELLED  the progress function returned false
 *   another status   that of a node that failed on every device; the error
 *                    message names the node */
USM_API USM_NODISCARD usm_status usm_graph_run(usm_graph *graph, const usm_graph_run_desc *desc,
                                               usm_parallel_stats *stats);
/** Returns the block of a node whose output no other node reads (a sink), valid
 * until the next run or the destruction of the graph. */
USM_API USM_NODISCARD usm_status usm_graph_get_output(usm_graph *graph, uint32_t node,
                                                      const void **data, size_t *size);
/** Writes the graph in Graphviz's language: after a run as it was unrolled,
 * before a run as it would be now.  Writes at most `cap` bytes, terminated by
 * 0; *size (`size` may be NULL) is the length of the whole text without the 0. */
USM_API usm_status usm_graph_describe_dot(usm_graph *graph, char *text, size_t cap, size_t *size);

USM_END_DECLS
#endif
