/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/** @file
 * The managers that programs make, for usm/rambrain.hpp, which includes this file. */
#ifndef USM_RAMBRAIN_MANAGERS_HPP
#define USM_RAMBRAIN_MANAGERS_HPP

#include <usm/rambrain/memory.hpp>

#include <utility>

namespace rambrain
{

/** The manager that programs use.  The library's engine decides what is read ahead and written
 * early; setPreemptiveLoading(false) suppresses the hints of adhereTo's constructor. */
class cyclicManagedMemory : public managedMemory
{
  public:
    using managedMemory::managedMemory;

    bool setPreemptiveLoading(bool preemptive)
    {
        return loads_.exchange(preemptive);
    }
    bool setPreemptiveUnloading(bool preemptive)
    {
        return std::exchange(unloads_, preemptive);
    }
    void printCycle() const
    {
        printMemUsage();
    }

  private:
    bool unloads_ = true;
};

namespace detail
{
struct no_swap {
    managedDummySwap none{0};
};
} // namespace detail

/** A manager that has no memory. */
class dummyManagedMemory : private detail::no_swap, public managedMemory
{
  public:
    dummyManagedMemory() : managedMemory(&none, 0)
    {
    }
};

} // namespace rambrain
#endif
