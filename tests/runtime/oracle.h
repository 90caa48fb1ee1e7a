// Reference arithmetic: each rank's inputs of a step, and the expected outputs. Small integers, so
// that every dtype holds every result exactly, except averages. Ranks are indices in the step's
// process set, and `size` is that set's size.
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

// Returns the input of a rank. Its dtype and shape may be odd.
Tensor input_on(const Step& step, size_t tensor, int rank);
// Returns the expected output of a rank.
Tensor output_on(const Step& step, size_t tensor, int rank, int size);
// Returns the rows that a rank receives from each rank in an alltoall.
std::vector<int32_t> received_splits(const Step& step, int rank, int size);
// The expected error of a step: its code and parts of its message; HVD_OK if the step succeeds.
struct Verdict {
  int code = HVD_OK;
  std::vector<std::string> fragments;
};
Verdict verdict_of(const Program& program, const Step& step);

// Returns an empty string if `got` is right, else a description of the difference.
std::string difference(const Step& step, const Tensor& expected, const void* got);

}  // namespace hvd::test
