/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/** @file
 * Graphs of kernels: nodes that partition, process and merge data, joined by edges, run over a
 * team.  What KernelHive called a workflow; as a file, usm-run runs it (docs/offload.md).
 *
 * A node takes the blocks of its inputs, one behind the other in the order in which the edges were
 * made, and gives one block (a partitioner: as many as there are parts):
 *
 *     process      processData(in, in_size, out, out_size)
 *     partition    partitionData(in, in_size, parts, out, part_size)
 *     merge        mergeData(in, in_size, parts, out, out_size)
 *     expandable   process, once for each part of the partitioner before it; unrolled by the
 *                  devices that are well when it is reached
 *
 * where in and out are pointers, and sizes, in bytes, and parts are uint32.  A kernel may have any
 * name; it gets a global size of its own.  It must not write to `in`; bytes of `out` that it does
 * not write are indeterminate; both begin at multiples of 128.
 *
 * An expandable node may follow another one, part by part; what it reads besides, an input say,
 * each of its launches gets whole.  A merger is told how many blocks it gets; all have one size.
 *
 * A launch that fails on a device is done by another, and the device is set aside; so results do
 * not depend on which devices there are, but for the number of parts where that is left open.
 *
 * One thread at a time; a graph may run several times. */
#ifndef USM_GRAPH_H
#define USM_GRAPH_H

#include <usm/parallel.h>

USM_BEGIN_DECLS

typedef struct usm_graph usm_graph;

typedef enum usm_node_kind {
    USM_NODE_INPUT      = 1, /**< bytes of the caller                                             */
    USM_NODE_PROCESS    = 2,
    USM_NODE_PARTITION  = 3,
    USM_NODE_MERGE      = 4,
    USM_NODE_EXPANDABLE = 5
} usm_node_kind;

typedef struct usm_node_desc {
    size_t           struct_size;
    usm_node_kind    kind;
    const char      *name;   /**< unique in the graph                                             */
    usm_team_kernel *kernel; /**< all but INPUT                                                   */
    uint32_t         dims;
    size_t           global[3], local[3]; /**< of one launch; a dims of 0 is 1 item               */
    size_t           out_size;            /**< bytes of one output block                          */
    uint32_t    parts; /**< PARTITION: how many; 0: `per_device` for each device that is well */
    uint32_t    per_device; /**< 0: 2                                                        */
    const void *data;       /**< INPUT; borrowed until the run has ended                     */
    size_t      size;
    double      work; /**< hint: relative cost; 0: 1                                         */
} usm_node_desc;
#define USM_NODE_DESC_INIT                                                                         \
    {                                                                                              \
        .struct_size = sizeof(usm_node_desc)                                                       \
    }

/** Caller owns *graph.  The team must live longer. */
USM_API USM_NODISCARD usm_status usm_graph_create(usm_team *team, usm_graph **graph);
/** NULL is fine. */
USM_API void usm_graph_destroy(usm_graph *graph);
/** *node: its number, from 0 on.   USM_E_INVALID  a name that is taken, a kind without its kernel
 */
USM_API USM_NODISCARD usm_status usm_graph_add(usm_graph *graph, const usm_node_desc *desc,
                                               uint32_t *node);
/** `to` reads what `from` gives.  USM_E_INVALID  no such nodes, an edge that is there, a cycle
 * (named whole), into an INPUT */
USM_API USM_NODISCARD usm_status usm_graph_connect(usm_graph *graph, uint32_t from, uint32_t to);

typedef struct usm_graph_run_desc {
    size_t          struct_size;
    usm_policy      policy; /**< which device takes which ready node: "fastest", "energy", ...    */
    bool            no_prefetch; /**< inputs of the next node are not brought while one computes  */
    usm_progress_fn progress;    /**< called by the thread that runs; rate: work a second         */
    void           *progress_user;
    uint32_t        progress_ms; /**< between calls; 0: 200                                       */
    /** A folder where the blocks of ended nodes are kept, from which a run of the same graph goes
     * on; removed at the end.  Or NULL. */
    const char *resume;
    const char *resume_key; /**< what a graph does not tell: versions of native code; or NULL     */
} usm_graph_run_desc;
#define USM_GRAPH_RUN_DESC_INIT                                                                    \
    {                                                                                              \
        .struct_size = sizeof(usm_graph_run_desc)                                                  \
    }

/** Waits.  `desc` NULL: all defaults.
 *   USM_E_INVALID  a merge without a partitioner before it, a node nobody gives input to, a folder
 *                  with blocks of another graph
 *   USM_E_SIZE     a node's inputs are more than a uint says, a merger's of different sizes
 *   USM_E_CANCELLED, or the failure of a node that no device could do: the story names it */
USM_API USM_NODISCARD usm_status usm_graph_run(usm_graph *graph, const usm_graph_run_desc *desc,
                                               usm_parallel_stats *stats);
/** The block of a node that nobody reads (a sink), valid until the next run or the graph's end. */
USM_API USM_NODISCARD usm_status usm_graph_get_output(usm_graph *graph, uint32_t node,
                                                      const void **data, size_t *size);
/** In Graphviz's language: after a run as it was unrolled, before one as it would be now.  Writes
 * at most `cap` bytes, 0-terminated; *size (may be NULL) is what all of it needs without the 0. */
USM_API usm_status usm_graph_describe_dot(usm_graph *graph, char *text, size_t cap, size_t *size);

USM_END_DECLS
#endif
