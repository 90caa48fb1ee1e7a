// Computes an average of integers in a wider type, which can represent the number of ranks times
// the largest value. widen() copies the inputs to this type, narrow() copies the results back. The
// copies are acceptable, since averages of integers are rare. Owns the copies until the batch ends.
// Each BatchExecutor::Run and each GroupRunner::Group has a WideAverage; the progress thread calls it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/status.h"
#include "horovod/plugin_op.h"

namespace hvd::runtime {

// Returns int32 for 8 bits, int64 for 16 and 32 bits, and other types unchanged: 64-bit sums wrap around.
int32_t sum_type_of_average(int32_t dtype);

class WideAverage {
 public:
  // Replaces the tensors of type `dtype` by copies of type `wide`. `kept`: the number of elements of
  // each tensor's result.
  Status widen(int32_t dtype, int32_t wide, std::span<const int64_t> kept,
               std::span<hvd_batch_tensor> tensors);
  // Stores the results in the outputs that the tensors had before widen(). An out-of-range result
  // becomes the nearest value. Does nothing without widen().
  void narrow();
  void clear() {
    results_.clear();
    memory_.reset();
  }

 private:
  struct WideResult {
    const std::byte* wide;
    void* output;
    int64_t count;
  };
  int32_t dtype_ = HVD_UINT8;
  std::unique_ptr<std::byte[]> memory_;
  std::vector<WideResult> results_;
};

}  // namespace hvd::runtime
