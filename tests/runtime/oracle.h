// Plain arithmetic: what each rank puts into the tensors of a step, and what must come out. Small
// whole numbers, so that every dtype holds every result exactly but for averages. Ranks are indices
// in the step's process set, and `size` is that set's.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "runtime/program.h"

namespace hvd::test {

struct Tensor {
  int32_t dtype = HVD_FLOAT32;
  std::vector<int64_t> shape;
  std::vector<std::byte> bytes;
};

double element(const Tensor& tensor, size_t index);
void set_element(Tensor* tensor, size_t index, double value);

// The input of a rank. Its dtype and shape may be odd.
Tensor input_on(const Step& step, size_t tensor, int rank);
// The output that a rank must get.
Tensor output_on(const Step& step, size_t tensor, int rank, int size);
// The rows that a rank receives from each rank in an alltoall.
std::vector<int32_t> received_splits(const Step& step, int rank, int size);
// The code and a part of the sentence that a step must fail with; HVD_OK when it must not.
struct Verdict {
  int code = HVD_OK;
  std::vector<std::string> fragments;
};
Verdict verdict_of(const Program& program, const Step& step);

// Empty when `got` is right, else what is wrong.
std::string difference(const Step& step, const Tensor& expected, const void* got);

}  // namespace hvd::test
