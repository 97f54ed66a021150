/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/** @file
 * Programs, kernels and launches.
 *
 * A program holds images of one computation: OpenCL C, SPIR-V, or native
 * functions over ranges of work-items.  Each device uses the best image that it
 * can run.  A launch names a kernel, an ND-range and typed arguments.  A launch
 * carries its own arguments, so many threads can launch the same kernel.
 *
 * OpenCL devices compile text, and most accept SPIR-V too; Level Zero accepts
 * SPIR-V and no text; the host accepts only native functions.
 * usm_add_kernels() in CMake makes a bundle of text and SPIR-V from one file.
 *
 * Built programs are cached in the context and in USM_CACHE_DIR. */
#ifndef USM_PROGRAM_H
#define USM_PROGRAM_H

#include <usm/types.h>

#ifdef __cplusplus
#include <memory>
#include <type_traits>
#endif

USM_BEGIN_DECLS

/** The work-items that a native kernel is to compute: begin[d] <= id[d] < end[d]
 * for d < 3.  Ids include the launch's offset.  If the launch gave a local
 * size, a range consists of whole work-groups. */
typedef struct usm_range {
    uint32_t dims;
    size_t   offset[3]; /**< of the launch                                  */
    size_t   global[3]; /**< of the launch; 1 in unused dimensions          */
    size_t   local[3];  /**< of the launch; 0 if the launch did not give it */
    size_t   begin[3];
    size_t   end[3];
} usm_range;

/** A native kernel.  args[i] points to the value of argument i (as in `*(float
 * **)args[0]`); for local memory, to a pointer to the scratch block of one
 * work-group.  Several threads call the function at once, with disjoint ranges. */
typedef void (*usm_native_fn)(const usm_range *range, void *const *args);

typedef enum usm_arg_kind {
    USM_ARG_NONE    = 0,
    USM_ARG_POINTER = 1, /**< USM; may be an interior pointer or NULL */
    USM_ARG_VALUE   = 2, /**< bytes, copied at the launch             */
    USM_ARG_LOCAL   = 3, /**< `size` bytes of local memory for each work-group; the launch needs
                              a local size */
    USM_ARG_ACCESS  = 4  /**< a usm_accessor (usm/buffer.h): the kernel receives a pointer to the
                              first byte of its range */
} usm_arg_kind;

typedef struct usm_native_kernel {
    const char         *name;
    usm_native_fn       fn;
    size_t              nargs;
    const usm_arg_kind *kinds; /**< nargs entries; NULL: only the number of arguments is checked */
} usm_native_kernel;

typedef enum usm_image_type {
    USM_IMAGE_OPENCL_C = 1, /**< data: text of `size` bytes; need not end with 0      */
    USM_IMAGE_SPIRV    = 2, /**< data: SPIR-V 1.0 or later with the Kernel capability */
    USM_IMAGE_NATIVE   = 3, /**< data: usm_native_kernel[], size: bytes of the array  */
    USM_IMAGE_BUNDLE   = 4, /**< data: output of usm_add_kernels(): several images    */
    USM_IMAGE_BINARY   = 5  /**< data: the driver's own binary, for one device        */
} usm_image_type;

typedef struct usm_image {
    usm_image_type type;
    const void    *data; /**< borrowed during the call; a table of native kernels: as long as the
                              program lives */
    size_t         size;
} usm_image;

/** `options` are not used when SPIR-V is compiled, except on Level Zero, and
 * there without the options for text (-D, -I, -w, -W, -cl-std). */
typedef struct usm_program_desc {
    size_t           struct_size;
    size_t           nimages;
    const usm_image *images;   /**< within one type, preferred first                 */
    const char      *options;  /**< for the OpenCL C compiler, e.g. "-DN=4"; or NULL */
    char            *log;      /**< receives the build log, terminated by 0; or NULL */
    size_t           log_size; /**< bytes of log                                     */
} usm_program_desc;
#define USM_PROGRAM_DESC_INIT                                                                      \
    {                                                                                              \
        sizeof(usm_program_desc), 0, NULL, NULL, NULL, 0                                           \
    }

/** Builds the images for every device of the context.  A device that cannot run
 * any image is left out, unless no device remains.  The caller owns *program.
 *   USM_E_BUILD     an image does not compile (log and usm_last_error() say why)
 *   USM_E_NO_IMAGE  no device can run any of the images
 *   USM_E_INVALID   a damaged bundle, an image without data */
USM_API USM_NODISCARD usm_status usm_program_create(usm_context *ctx, const usm_program_desc *desc,
                                                    usm_program **program);
/** Destroys a program, or does nothing if it is NULL.  Kernels created from it
 * stay usable. */
USM_API void usm_program_destroy(usm_program *program);
/** Returns the type of the image that runs on `dev`.
 *   USM_E_NO_IMAGE  no image does */
USM_API USM_NODISCARD usm_status usm_program_get_image(usm_program *program, usm_device *dev,
                                                       usm_image_type *type);

/** Creates a kernel.  The caller owns *kernel.
 *   USM_E_NO_KERNEL  no such kernel; the error message lists those that exist */
USM_API USM_NODISCARD usm_status usm_kernel_create(usm_program *program, const char *name,
                                                   usm_kernel **kernel);
/** Destroys a kernel, or does nothing if it is NULL.  Launches in flight go on. */
USM_API void usm_kernel_destroy(usm_kernel *kernel);

typedef struct usm_arg {
    usm_arg_kind kind;
    size_t       size;  /**< bytes of a value or of local memory             */
    const void  *value; /**< the pointer itself, or the address of the value */
} usm_arg;

#ifdef __cplusplus
extern "C++" {
namespace usm
{
namespace detail
{
/* The argument points to x if x is a variable.  A temporary is copied to a
 * variable that exists once per thread and per use of the macro: `Place` is a
 * distinct type for each use. */
template <class T, class Place> usm_arg value_argument(T &&x, Place)
{
    if constexpr (std::is_lvalue_reference<T>::value) {
        return usm_arg{USM_ARG_VALUE, sizeof(x), static_cast<const void *>(std::addressof(x))};
    } else {
        static thread_local typename std::remove_const<T>::type kept;

        kept = x;
        return usm_arg{USM_ARG_VALUE, sizeof(kept), static_cast<const void *>(&kept)};
    }
}
} // namespace detail
} // namespace usm
}
#define USM_ARG_OF_(kind, size, value)                                                             \
    usm_arg                                                                                        \
    {                                                                                              \
        kind, size, value                                                                          \
    }
#define USM_ARG_VAL(x) ::usm::detail::value_argument((x), [] {})
#else
#define USM_ARG_OF_(kind, size, value) ((usm_arg){kind, size, value})
#define USM_ARG_VAL(x)                                                                             \
    USM_ARG_OF_(USM_ARG_VALUE, sizeof(x), &((const struct { __typeof__(x) is; }){(x)}))
#endif
/* All of these are values of type usm_arg:
 *   usm_arg args[] = {USM_ARG_PTR(p), USM_ARG_VAL(2.0f)};
 *   args[0] = USM_ARG_PTR(p);
 *
 * USM_ARG_VAL(x): x is a variable or any expression.  Before the launch, x must
 * not change, and the block that encloses the macro must not end: the value is
 * stored in that block.  The body of an `if` or a loop is a block, too.
 * USM_ARG_REF(variable) has no such limit: the launch reads the variable
 * itself. */
#define USM_ARG_PTR(p)        USM_ARG_OF_(USM_ARG_POINTER, sizeof(void *), (p))
#define USM_ARG_REF(variable) USM_ARG_OF_(USM_ARG_VALUE, sizeof(variable), &(variable))
#define USM_ARG_SCRATCH(n)    USM_ARG_OF_(USM_ARG_LOCAL, (n), NULL)
/** accessor: a variable of type usm_accessor, which is read during the launch. */
#define USM_ARG_BUFFER(accessor) USM_ARG_OF_(USM_ARG_ACCESS, sizeof(accessor), &(accessor))

/** Kinds of memory.  Pointers that a kernel reaches through other memory must be
 * declared: each of them, or all of a kind. */
typedef enum usm_indirect {
    USM_INDIRECT_HOST   = 1 << 0,
    USM_INDIRECT_DEVICE = 1 << 1,
    USM_INDIRECT_SHARED = 1 << 2
} usm_indirect;

/** A launch of a kernel.  Level Zero runs whole work-groups: if `local` is 0,
 * the library chooses a size that divides `global`, which is a single item if
 * `global` is a large prime. */
typedef struct usm_launch {
    size_t             struct_size;
    usm_kernel        *kernel;
    uint32_t           dims;      /**< 1..3                                       */
    size_t             offset[3]; /**< first global id                            */
    size_t             global[3]; /**< work-items                                 */
    size_t             local[3];  /**< of a work-group; all 0: the driver chooses */
    size_t             nargs;
    const usm_arg     *args;
    uint32_t           indirect_kinds; /**< usm_indirect */
    size_t             nindirect;
    const void *const *indirect; /**< pointers into USM that are reached indirectly */
} usm_launch;
#define USM_LAUNCH_INIT                                                                            \
    {                                                                                              \
        sizeof(usm_launch), NULL, 1, {0, 0, 0}, {1, 1, 1}, {0, 0, 0}, 0, NULL, 0, 0, NULL          \
    }

/** Queues a launch; ndeps, deps and ev are as in usm/command.h.
 *   USM_E_ARGUMENTS        wrong number, kind or size of arguments; the error
 *                          message names the first
 *   USM_E_INVALID          dims, or a local size that does not divide the global
 *                          size
 *   USM_E_INVALID_POINTER  an argument is not USM, and the device has no system
 *                          allocations
 *   USM_E_WRONG_CONTEXT    a pointer or the kernel belongs to another context
 *   USM_E_NO_IMAGE         the program has no image for the queue's device
 *   USM_E_NOT_SUPPORTED    an offset, and the Level Zero driver has no extension
 *                          for it */
USM_API USM_NODISCARD usm_status usm_queue_submit(usm_queue *q, const usm_launch *launch,
                                                  size_t ndeps, usm_event *const *deps,
                                                  usm_event **ev);

USM_END_DECLS
#endif
