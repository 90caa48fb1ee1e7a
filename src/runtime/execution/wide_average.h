// An average of integers is summed in a type that holds the number of ranks times the largest value: the inputs of
// its tensors in that type, and the way of the results back. Copies, since few averages are of integers. Owns
// the memory until the batch is over. A batch of the executor and a group have one; the progress thread calls it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/status.h"
#include "horovod/plugin_op.h"

namespace hvd::runtime {

// int32 for 8 bits and int64 for 16 and 32 bits; any other type itself: a sum of 64 bits wraps around.
int32_t sum_type_of_average(int32_t dtype);

class WideAverage {
 public:
  // Replaces the tensors of type `dtype` by copies of the type `wide`. kept: the number of elements in the result
  // of each tensor.
  Status widen(int32_t dtype, int32_t wide, std::span<const int64_t> kept,
               std::span<hvd_batch_tensor> tensors);
  // Stores the results in the outputs that the tensors had, the nearest number where they do not fit. Without
  // widen, does nothing.
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
