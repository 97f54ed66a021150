/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/** @file
 * Templates: common shapes of computations over usm_parallel().  The program
 * writes the body of a loop; the library splits the loop over the team.
 *
 *     USM_MAP(square, float, float, usm_nothing, return x * x;)
 *
 *     usm_template_create(team, &square, &t);
 *     usm_template_run_desc run = USM_TEMPLATE_RUN_DESC_INIT;
 *     run.count = n, run.in = from, run.out = to;
 *     usm_template_run(t, &run, NULL);
 *
 *   kind           bodies                    output
 *   map            x, i -> out               one for each element
 *   map_reduce     x, i -> out; a, b -> out  one: all outputs joined
 *   stencil        USM_AT(dx, dy) -> out     one for each element of a row
 *   scan           a, b -> out               out[i]: elements 0 to i, joined
 *   search         x, i -> is it?            an int64: the first such index, or -1
 *   master_worker  x, i -> out               as map, for elements of unequal cost
 *   iterate        USM_AT(dx, dy) -> out;    as stencil, again and again until
 *                  before, now -> is it      every element has settled
 *                  settled?
 *
 * A body is the inside of a function in OpenCL C, or C, or both: it reads the
 * variables above, and `p`, the parameter of the run.  Elements are values of
 * in_type and out_type, `i` is the element's index.  Without input (in_type
 * usm_nothing, `in` NULL) x is meaningless.  USM_AT(dx, dy) is the element dx to
 * the right and dy below, at most `radius` rows away; beyond the edges it is the
 * nearest element that exists.  There a body also has x, y, width and height.
 * A stencil over a plain array has rows of one element (width 1), and its
 * neighbours are USM_AT(0, -1) and USM_AT(0, 1).
 *
 * The macros make both forms of one text, so the body must be valid in both
 * languages; types are those that both have (float, int, uint32_t, ...), or
 * declared in usm_template_desc.head.  Devices that compile no text (Level Zero)
 * need an image: a .cl file for usm_add_kernels() that includes
 * usm/template_cl.h and the same lines.
 *
 * Join bodies must be associative.  Elements are joined in leaves of 256, and
 * these by leaves of 256, and so on: on devices of one kind the result is the
 * same to the bit for any split.
 *
 * Counts are elements or rows, sizes are bytes.  Templates are thread-safe, and
 * must be destroyed before their team.  A template of a team of ranks is used as
 * usm_parallel() is: every rank makes the same calls, `in` and `out` are those of
 * the rank `home`, and other ranks may pass NULL for them.  If a call fails on one
 * rank, it fails on all, except that home alone knows when it cannot take what
 * the last launch gave. */
#ifndef USM_TEMPLATE_H
#define USM_TEMPLATE_H

#include <usm/parallel.h>

USM_BEGIN_DECLS

/** Elements that one work-item of a reduction, scan or search goes through. */
#define USM_TEMPLATE_LEAF 256

typedef enum usm_template_kind {
    USM_TEMPLATE_MAP           = 1,
    USM_TEMPLATE_MAP_REDUCE    = 2,
    USM_TEMPLATE_STENCIL       = 3,
    USM_TEMPLATE_SCAN          = 4,
    USM_TEMPLATE_SEARCH        = 5,
    USM_TEMPLATE_MASTER_WORKER = 6,
    USM_TEMPLATE_ITERATE       = 7
} usm_template_kind;

/** The type of an input or a parameter that there is not. */
typedef uint32_t usm_nothing;

/** What is computed.  The macros below define one; all of it is copied by
 * usm_template_create(), except native functions. */
typedef struct usm_template_desc {
    size_t            struct_size;
    usm_template_kind kind;
    const char       *name;     /**< an identifier of C                                */
    const char       *in_type;  /**< in OpenCL C; NULL: usm_nothing                    */
    const char       *out_type; /**< SEARCH: not used                                  */
    const char       *param_type;
    size_t            in_size, out_size, param_size; /**< bytes of these types; 0 for usm_nothing */
    size_t        radius;  /**< STENCIL, ITERATE: rows that a body reads above and below its own */
    const char   *head;    /**< declarations in front of the bodies; or NULL         */
    size_t        nbodies; /**< 0: no text; else as many as the kind has            */
    const char   *bodies[2];     /**< OpenCL C, in the order of the table above           */
    usm_native_fn native;        /**< by the macros; NULL: not on the host                */
    usm_native_fn native_reduce; /**< MAP_REDUCE, SCAN */
    size_t        nimages;       /**< of usm_add_kernels(), used in place of the text      */
    const usm_image *images;
    const char      *options; /**< for the OpenCL C compiler; or NULL */
} usm_template_desc;

typedef struct usm_template usm_template;

/** Builds the kernels for every member of the team, which must outlive the
 * template.  The caller owns *t.
 *   USM_E_INVALID   no such kind; a number of bodies that the kind does not have; a
 *                   name that is no identifier; a missing type
 *   USM_E_BUILD     a body does not compile; usm_last_error() has the compiler's
 *                   first line
 *   USM_E_NO_IMAGE  there is neither text nor native code that a member can run */
USM_API USM_NODISCARD usm_status usm_template_create(usm_team *team, const usm_template_desc *desc,
                                                     usm_template **t);
/** Destroys a template, or does nothing if it is NULL.  No run may be in
 * progress. */
USM_API void usm_template_destroy(usm_template *t);

/** Data of one run.  `in` and `out` are memory that the host can access, or,
 * where they are NULL, the bytes of a buffer from its beginning.  They must not
 * overlap. */
typedef struct usm_template_run_desc {
    size_t          struct_size;
    uint64_t        count; /**< elements; STENCIL, ITERATE: rows                              */
    size_t          width; /**< STENCIL, ITERATE: elements of a row; 0: 1                     */
    const void     *in;    /**< count (times width) elements of in_type                       */
    usm_buffer     *in_buffer;
    void           *out; /**< as many of out_type; MAP_REDUCE: one; SEARCH: an int64          */
    usm_buffer     *out_buffer;
    const void     *param;    /**< param_size bytes, copied; NULL where there are none           */
    uint64_t        steps;    /**< STENCIL: how often, each time over the result of the time before;
                                0: once.  ITERATE: at most so often; 0: no bound              */
    uint64_t        grain;    /**< MASTER_WORKER: elements that a worker takes at a time; 0: 1   */
    uint32_t        home;     /**< teams of ranks: the rank of `in` and `out`                    */
    usm_policy      policy;   /**< of every launch; MASTER_WORKER ignores it                  */
    usm_progress_fn progress; /**< of every launch: a run of several begins anew with each    */
    void           *progress_user;
} usm_template_run_desc;
#define USM_TEMPLATE_RUN_DESC_INIT                                                                 \
    {                                                                                              \
        .struct_size = sizeof(usm_template_run_desc)                                               \
    }

/** What a run came to. */
typedef struct usm_template_result {
    size_t   struct_size;
    uint64_t launches;
    uint64_t steps;      /**< STENCIL, ITERATE                                                */
    bool     is_settled; /**< ITERATE: false: `steps` were not enough                         */
    uint64_t chunks, rescheduled; /**< of all launches, as in usm_parallel_stats              */
} usm_template_result;
#define USM_TEMPLATE_RESULT_INIT                                                                   \
    {                                                                                              \
        .struct_size = sizeof(usm_template_result)                                                 \
    }

/** Says whether a run is possible, without running it.
 *   USM_E_INVALID  count 0; a halo of more rows than there are; no input, output
 *                  or parameter where one is needed; steps of a stencil whose types
 *                  differ
 *   USM_E_SIZE     more bytes than an address can express */
USM_API USM_NODISCARD usm_status usm_template_check(const usm_template          *t,
                                                    const usm_template_run_desc *run);
/** Runs the template and waits for it.  `result` may be NULL.  After a failure
 * the contents of `out` are indeterminate.
 *   USM_E_NO_MEMORY  besides `out`, stencils of several steps and iterations need
 *                    as much again, reductions and scans 1/128 of it
 *   other statuses   those of usm_template_check() and usm_parallel() */
USM_API USM_NODISCARD usm_status usm_template_run(usm_template *t, const usm_template_run_desc *run,
                                                  usm_template_result *result);

/* ---- a pipeline of maps ----------------------------------------------------------------------- */

/** Fills or takes the elements [first, first + count), on the thread that called
 * usm_pipeline_run(), while the stages compute other batches.  Returning false
 * ends the run with USM_E_CANCELLED. */
typedef bool (*usm_pipeline_fn)(void *elements, uint64_t first, uint64_t count, void *user);

/** Elements go through all stages in batches: while stage 2 has batch n, stage 1
 * has batch n + 1.  Two batches in front of each stage and behind the last are in
 * memory, not the whole. */
typedef struct usm_pipeline_desc {
    size_t               struct_size;
    size_t               nstages; /**< templates of kind MAP or MASTER_WORKER of one team; the
                                       output of each is the input of the next */
    usm_template *const *stages;
    const void *const   *params; /**< of each stage; NULL: none has any                       */
    uint64_t             count;  /**< elements                                                */
    uint64_t             batch;  /**< elements; 0: 1/16 of all, at least 1                    */
    usm_pipeline_fn      source; /**< fills the input of the first stage, batch by batch      */
    usm_pipeline_fn      sink;   /**< takes the output of the last one                        */
    void                *user;
    uint32_t             home; /**< teams of ranks: the rank whose source and sink are called;
                                    others may pass NULL for them */
} usm_pipeline_desc;
#define USM_PIPELINE_DESC_INIT                                                                     \
    {                                                                                              \
        .struct_size = sizeof(usm_pipeline_desc)                                                   \
    }

/** Runs a pipeline and waits for it.
 *   USM_E_INVALID    no stage; a stage of another kind or team; an output that is not
 *                    of the size of the next input; no source or sink
 *   USM_E_CANCELLED  source or sink returned false */
USM_API USM_NODISCARD usm_status usm_pipeline_run(const usm_pipeline_desc *desc);

USM_END_DECLS

/* ---- bodies ----------------------------------------------------------------------------------- */

/* Each macro defines `static const usm_template_desc id`, a template named "id".  Where a kind has two
 * bodies, each is in parentheses.  Parameters without a value are usm_nothing. */

#define USM_STRIP_(...)       __VA_ARGS__
#define USM_POINTER_(type, n) (*(type *const *)args[n])
#define USM_VALUE_(type, n)   (*(const type *)args[n])

#define USM_MAP_(map_kind, id, in_type_, out_type_, param_type_, ...)                              \
    static inline out_type_ id##_body(in_type_ x, uint64_t i, param_type_ p)                       \
    {                                                                                              \
        (void)x, (void)i, (void)p;                                                                 \
        __VA_ARGS__                                                                                \
    }                                                                                              \
    static void id##_native(const usm_range *range, void *const *args)                             \
    {                                                                                              \
        const in_type_ *__restrict in = USM_POINTER_(const in_type_, 0);                           \
        out_type_ *__restrict out     = USM_POINTER_(out_type_, 1);                                \
        const uint32_t    step        = USM_VALUE_(uint32_t, 2);                                   \
        const param_type_ p           = USM_VALUE_(param_type_, 3);                                \
                                                                                                   \
        for (size_t i = range->begin[0]; i < range->end[0]; i++) {                                 \
            size_t k = i - range->offset[0];                                                       \
                                                                                                   \
            out[k] = id##_body(in[step ? k : 0], i, p);                                            \
        }                                                                                          \
    }                                                                                              \
    static const usm_template_desc id = {.struct_size = sizeof(usm_template_desc),                 \
                                         .kind        = (map_kind),                                \
                                         .name        = #id,                                       \
                                         .in_type     = #in_type_,                                 \
                                         .out_type    = #out_type_,                                \
                                         .param_type  = #param_type_,                              \
                                         .in_size     = sizeof(in_type_),                          \
                                         .out_size    = sizeof(out_type_),                         \
                                         .param_size  = sizeof(param_type_),                       \
                                         .nbodies     = 1,                                         \
                                         .bodies      = {#__VA_ARGS__},                            \
                                         .native      = id##_native};
#define USM_MAP(id, in_type, out_type, param_type, ...)                                            \
    USM_MAP_(USM_TEMPLATE_MAP, id, in_type, out_type, param_type, __VA_ARGS__)
#define USM_MASTER_WORKER(id, in_type, out_type, param_type, ...)                                  \
    USM_MAP_(USM_TEMPLATE_MASTER_WORKER, id, in_type, out_type, param_type, __VA_ARGS__)

/* One leaf after the other; value(x, i, p) of the first begins, join(a, b, p) adds the others. */
#define USM_LEAVES_(function, in_type, out_type, param_type, value, join)                          \
    static void function(const usm_range *range, void *const *args)                                \
    {                                                                                              \
        const in_type *__restrict in = USM_POINTER_(const in_type, 0);                             \
        out_type *__restrict out     = USM_POINTER_(out_type, 1);                                  \
        const size_t     step        = USM_VALUE_(uint32_t, 2);                                    \
        const uint64_t   n           = USM_VALUE_(uint64_t, 3);                                    \
        const param_type p           = USM_VALUE_(param_type, 4);                                  \
                                                                                                   \
        for (size_t g = range->begin[0]; g < range->end[0]; g++) {                                 \
            uint64_t       i     = (uint64_t)g * USM_TEMPLATE_LEAF;                                \
            uint64_t       count = n - i < USM_TEMPLATE_LEAF ? n - i : USM_TEMPLATE_LEAF;          \
            const in_type *leaf  = in + (g - range->offset[0]) * USM_TEMPLATE_LEAF * step;         \
            out_type       left  = value(leaf[0], i, p);                                           \
                                                                                                   \
            for (uint64_t k = 1; k < count; k++)                                                   \
                left = join(left, value(leaf[k * step], i + k, p), p);                             \
            out[g - range->offset[0]] = left;                                                      \
        }                                                                                          \
    }
#define USM_ITSELF_(x, i, p) (x)

#define USM_JOIN_(id, type, param_type, ...)                                                       \
    static inline type id##_join(type a, type b, param_type p)                                     \
    {                                                                                              \
        (void)p;                                                                                   \
        __VA_ARGS__                                                                                \
    }                                                                                              \
    USM_LEAVES_(id##_native_reduce, type, type, param_type, USM_ITSELF_, id##_join)

#define USM_MAP_REDUCE(id, in_type_, out_type_, param_type_, map, reduce)                          \
    static inline out_type_ id##_body(in_type_ x, uint64_t i, param_type_ p)                       \
    {                                                                                              \
        (void)x, (void)i, (void)p;                                                                 \
        USM_STRIP_ map                                                                             \
    }                                                                                              \
    USM_JOIN_(id, out_type_, param_type_, USM_STRIP_ reduce)                                       \
    USM_LEAVES_(id##_native, in_type_, out_type_, param_type_, id##_body, id##_join)               \
    static const usm_template_desc id = {.struct_size   = sizeof(usm_template_desc),               \
                                         .kind          = USM_TEMPLATE_MAP_REDUCE,                 \
                                         .name          = #id,                                     \
                                         .in_type       = #in_type_,                               \
                                         .out_type      = #out_type_,                              \
                                         .param_type    = #param_type_,                            \
                                         .in_size       = sizeof(in_type_),                        \
                                         .out_size      = sizeof(out_type_),                       \
                                         .param_size    = sizeof(param_type_),                     \
                                         .nbodies       = 2,                                       \
                                         .bodies        = {#map, #reduce},                         \
                                         .native        = id##_native,                             \
                                         .native_reduce = id##_native_reduce};

#define USM_SCAN(id, type, param_type_, ...)                                                       \
    USM_JOIN_(id, type, param_type_, __VA_ARGS__)                                                  \
    static void id##_native(const usm_range *range, void *const *args)                             \
    {                                                                                              \
        const type *__restrict in    = USM_POINTER_(const type, 0);                                \
        type *__restrict out         = USM_POINTER_(type, 1);                                      \
        const type *__restrict carry = USM_POINTER_(const type, 2);                                \
        const uint64_t    n          = USM_VALUE_(uint64_t, 3);                                    \
        const param_type_ p          = USM_VALUE_(param_type_, 4);                                 \
                                                                                                   \
        for (size_t g = range->begin[0]; g < range->end[0]; g++) {                                 \
            uint64_t i   = (uint64_t)g * USM_TEMPLATE_LEAF;                                        \
            uint64_t end = n - i < USM_TEMPLATE_LEAF ? n - i : USM_TEMPLATE_LEAF;                  \
            size_t   k = g - range->offset[0], at = k * USM_TEMPLATE_LEAF;                         \
            type     left = g > 0 ? id##_join(carry[k], in[at], p) : in[at];                       \
                                                                                                   \
            out[at] = left;                                                                        \
            for (uint64_t j = 1; j < end; j++)                                                     \
                out[at + j] = left = id##_join(left, in[at + j], p);                               \
        }                                                                                          \
    }                                                                                              \
    static const usm_template_desc id = {.struct_size   = sizeof(usm_template_desc),               \
                                         .kind          = USM_TEMPLATE_SCAN,                       \
                                         .name          = #id,                                     \
                                         .in_type       = #type,                                   \
                                         .out_type      = #type,                                   \
                                         .param_type    = #param_type_,                            \
                                         .in_size       = sizeof(type),                            \
                                         .out_size      = sizeof(type),                            \
                                         .param_size    = sizeof(param_type_),                     \
                                         .nbodies       = 1,                                       \
                                         .bodies        = {#__VA_ARGS__},                          \
                                         .native        = id##_native,                             \
                                         .native_reduce = id##_native_reduce};

#define USM_SEARCH(id, in_type_, param_type_, ...)                                                 \
    static inline int id##_body(in_type_ x, uint64_t i, param_type_ p)                             \
    {                                                                                              \
        (void)x, (void)i, (void)p;                                                                 \
        __VA_ARGS__                                                                                \
    }                                                                                              \
    static void id##_native(const usm_range *range, void *const *args)                             \
    {                                                                                              \
        const in_type_   *in    = USM_POINTER_(const in_type_, 0);                                 \
        int64_t          *found = USM_POINTER_(int64_t, 1);                                        \
        const size_t      step  = USM_VALUE_(uint32_t, 2);                                         \
        const uint64_t    n     = USM_VALUE_(uint64_t, 3);                                         \
        const param_type_ p     = USM_VALUE_(param_type_, 4);                                      \
                                                                                                   \
        for (size_t g = range->begin[0]; g < range->end[0]; g++) {                                 \
            uint64_t        i = (uint64_t)g * USM_TEMPLATE_LEAF, k = 0;                            \
            uint64_t        end  = n - i < USM_TEMPLATE_LEAF ? n - i : USM_TEMPLATE_LEAF;          \
            const in_type_ *leaf = in + (g - range->offset[0]) * USM_TEMPLATE_LEAF * step;         \
                                                                                                   \
            while (k < end && !id##_body(leaf[k * step], i + k, p))                                \
                k++;                                                                               \
            if (k < end)                                                                           \
                found[g - range->offset[0]] = (int64_t)(i + k);                                    \
        }                                                                                          \
    }                                                                                              \
    static const usm_template_desc id = {.struct_size = sizeof(usm_template_desc),                 \
                                         .kind        = USM_TEMPLATE_SEARCH,                       \
                                         .name        = #id,                                       \
                                         .in_type     = #in_type_,                                 \
                                         .param_type  = #param_type_,                              \
                                         .in_size     = sizeof(in_type_),                          \
                                         .param_size  = sizeof(param_type_),                       \
                                         .nbodies     = 1,                                         \
                                         .bodies      = {#__VA_ARGS__},                            \
                                         .native      = id##_native};

static inline int64_t usm_clamp_(int64_t at, int64_t low, int64_t high)
{
    return at < low ? low : at > high ? high : at;
}

#define USM_AT(dx, dy)                                                                             \
    usm_in[(usm_clamp_(y + usm_clamp_((dy), -usm_radius, usm_radius), 0, height - 1) - y) *        \
               width +                                                                             \
           usm_clamp_(x + (dx), 0, width - 1)]

#define USM_STENCIL_BODY_(id, in_type, out_type, param_type, ...)                                  \
    static inline out_type id##_body(const in_type *usm_in, int64_t x, int64_t y, int64_t width,   \
                                     int64_t height, int64_t usm_radius, param_type p)             \
    {                                                                                              \
        (void)usm_in, (void)x, (void)y, (void)width, (void)height, (void)usm_radius, (void)p;      \
        __VA_ARGS__                                                                                \
    }
/* The rows and columns of a range: rows of one element are a launch of one dimension. */
#define USM_STENCIL_RANGE_                                                                         \
    const size_t rows  = width == 1 ? 0 : 1;                                                       \
    const size_t first = width == 1 ? 0 : range->begin[0];                                         \
    const size_t last  = width == 1 ? 1 : range->end[0];

#define USM_STENCIL(id, in_type_, out_type_, param_type_, radius_, ...)                            \
    USM_STENCIL_BODY_(id, in_type_, out_type_, param_type_, __VA_ARGS__)                           \
    static void id##_native(const usm_range *range, void *const *args)                             \
    {                                                                                              \
        const in_type_ *__restrict in = USM_POINTER_(const in_type_, 0);                           \
        out_type_ *__restrict out     = USM_POINTER_(out_type_, 1);                                \
        const int64_t     width = USM_VALUE_(int64_t, 2), height = USM_VALUE_(int64_t, 3);         \
        const param_type_ p = USM_VALUE_(param_type_, 4);                                          \
        USM_STENCIL_RANGE_                                                                         \
                                                                                                   \
        for (size_t y = range->begin[rows]; y < range->end[rows]; y++)                             \
            for (size_t x = first; x < last; x++) {                                                \
                size_t row = (y - range->offset[rows]) * (size_t)width;                            \
                                                                                                   \
                out[row + x] =                                                                     \
                    id##_body(in + row, (int64_t)x, (int64_t)y, width, height, (radius_), p);      \
            }                                                                                      \
    }                                                                                              \
    static const usm_template_desc id = {.struct_size = sizeof(usm_template_desc),                 \
                                         .kind        = USM_TEMPLATE_STENCIL,                      \
                                         .name        = #id,                                       \
                                         .in_type     = #in_type_,                                 \
                                         .out_type    = #out_type_,                                \
                                         .param_type  = #param_type_,                              \
                                         .in_size     = sizeof(in_type_),                          \
                                         .out_size    = sizeof(out_type_),                         \
                                         .param_size  = sizeof(param_type_),                       \
                                         .radius      = (radius_),                                 \
                                         .nbodies     = 1,                                         \
                                         .bodies      = {#__VA_ARGS__},                            \
                                         .native      = id##_native};

#define USM_ITERATE(id, type, param_type_, radius_, step, settled)                                 \
    USM_STENCIL_BODY_(id, type, type, param_type_, USM_STRIP_ step)                                \
    static inline int id##_settled(type before, type now, param_type_ p)                           \
    {                                                                                              \
        (void)before, (void)now, (void)p;                                                          \
        USM_STRIP_ settled                                                                         \
    }                                                                                              \
    static void id##_native(const usm_range *range, void *const *args)                             \
    {                                                                                              \
        const type *__restrict in = USM_POINTER_(const type, 0);                                   \
        type *__restrict out      = USM_POINTER_(type, 1);                                         \
        int32_t          *moving  = USM_POINTER_(int32_t, 2);                                      \
        const int64_t     width = USM_VALUE_(int64_t, 3), height = USM_VALUE_(int64_t, 4);         \
        const param_type_ p = USM_VALUE_(param_type_, 5);                                          \
        USM_STENCIL_RANGE_                                                                         \
                                                                                                   \
        for (size_t y = range->begin[rows]; y < range->end[rows]; y++)                             \
            for (size_t x = first; x < last; x++) {                                                \
                size_t row = (y - range->offset[rows]) * (size_t)width;                            \
                type   now =                                                                       \
                    id##_body(in + row, (int64_t)x, (int64_t)y, width, height, (radius_), p);      \
                                                                                                   \
                out[row + x] = now;                                                                \
                if (!id##_settled(in[row + x], now, p))                                            \
                    __atomic_store_n(moving, 1, __ATOMIC_RELAXED);                                 \
            }                                                                                      \
    }                                                                                              \
    static const usm_template_desc id = {.struct_size = sizeof(usm_template_desc),                 \
                                         .kind        = USM_TEMPLATE_ITERATE,                      \
                                         .name        = #id,                                       \
                                         .in_type     = #type,                                     \
                                         .out_type    = #type,                                     \
                                         .param_type  = #param_type_,                              \
                                         .in_size     = sizeof(type),                              \
                                         .out_size    = sizeof(type),                              \
                                         .param_size  = sizeof(param_type_),                       \
                                         .radius      = (radius_),                                 \
                                         .nbodies     = 2,                                         \
                                         .bodies      = {#step, #settled},                         \
                                         .native      = id##_native};

/** In a shared library: `usm-run` finds the template by its name. */
#define USM_TEMPLATE_EXPORT(id)                                                                    \
    extern const usm_template_desc *const usm_template_##id;                                       \
    const usm_template_desc *const        usm_template_##id = &id;

#endif
