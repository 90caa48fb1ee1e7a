// The table of the operations that the job's plugins run on device memory. hvd_init makes the table
// once; immutable. The C ABI reads the table, on any thread, before it submits.
#pragma once

#include <bitset>
#include <cstddef>
#include <cstdint>

#include "base/dtype.h"
#include "base/operations/op_traits.h"
#include "runtime/plugins/op_selector.h"

namespace hvd::runtime {

class DeviceSupport {
 public:
  DeviceSupport() = default;  // supports no operation
  // Queries the plugins for a set of `size` ranks (at least 2). Call it before other threads use the plugins.
  static DeviceSupport ask(const OpSelector& ops, int32_t size);

  // `reduce_op`: the user's value. A factor of 0 means 1.
  bool has(int32_t op, int32_t dtype, int32_t reduce_op, double prescale, double postscale) const;

 private:
  static constexpr size_t kDtypes = kDtypeCount, kReductions = 6;
  // Returns the index of a reduction, with or without factors, in the table.
  static size_t place(int32_t op, int32_t dtype, int32_t reduce_op, bool factors);
  std::bitset<kOpCount * kDtypes * kReductions * 2> runs_;
};

}  // namespace hvd::runtime
