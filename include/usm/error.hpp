/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/** @file
 * Failures as exceptions: what the other headers of the C++ face throw.
 *
 * usm::error for a function of libusm that failed; usm::bad_alloc, which is a std::bad_alloc, where
 * the standard library expects one (usm::allocator, usm::pool_resource).  Destructors and functions
 * that give back do not throw. */
#ifndef USM_ERROR_HPP
#define USM_ERROR_HPP

#include <usm/status.h>

#include <cstddef>
#include <cstdint>
#include <new>
#include <stdexcept>
#include <string>

namespace usm
{

/** what() is the story of usm_last_error(). */
class error : public std::runtime_error
{
  public:
    explicit error(usm_status status) : error(status, usm_last_error())
    {
    }
    error(usm_status status, const std::string &story)
        : std::runtime_error(std::string(usm_status_name(status)) + ": " + story), status_(status)
    {
    }
    usm_status status() const noexcept
    {
        return status_;
    }

  private:
    usm_status status_;
};

/** Throws unless `status` is USM_OK. */
inline void check(usm_status status)
{
    if (status != USM_OK)
        throw error(status);
}

/** Memory for a container could not be had; what() is the name of the status, which is
 * USM_E_NO_MEMORY, USM_E_BUDGET, or whatever else kept it. */
class bad_alloc : public std::bad_alloc
{
  public:
    explicit bad_alloc(usm_status status) noexcept : status_(status)
    {
    }
    usm_status status() const noexcept
    {
        return status_;
    }
    const char *what() const noexcept override
    {
        return usm_status_name(status_);
    }

  private:
    usm_status status_;
};

namespace detail
{

inline std::size_t bytes(std::size_t n, std::size_t size)
{
    if (n > SIZE_MAX / size)
        throw error(USM_E_SIZE, std::to_string(n) + " elements of " + std::to_string(size) +
                                    " bytes are more than there are addresses");
    return n * size;
}

} // namespace detail

} // namespace usm

#endif
