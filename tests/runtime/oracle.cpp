#include "runtime/oracle.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <numeric>

#include "base/dtype.h"
#include "base/half.h"
#include "base/text.h"

namespace hvd::test {
namespace {

size_t count_of(const std::vector<int64_t>& shape) {
  return static_cast<size_t>(
      std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>()));
}

Tensor empty(int32_t dtype, std::vector<int64_t> shape) {
  Tensor tensor{dtype, std::move(shape), {}};
  tensor.bytes.resize(count_of(tensor.shape) * size_of(static_cast<hvd_dtype>(dtype)));
  return tensor;
}

bool is_float(int32_t dtype) {
  return dtype == HVD_FLOAT16 || dtype == HVD_BFLOAT16 || dtype == HVD_FLOAT32 ||
         dtype == HVD_FLOAT64;
}
bool is_unsigned(int32_t dtype) {
  return dtype == HVD_UINT8 || dtype == HVD_UINT16 || dtype == HVD_UINT32 || dtype == HVD_UINT64;
}

// Calls f with a value of the dtype's type; half-precision values are their bits.
template <typename F>
auto with_type(int32_t dtype, F&& f) {
  switch (dtype) {
    case HVD_UINT8:
      return f(uint8_t{});
    case HVD_INT8:
      return f(int8_t{});
    case HVD_UINT16:
      return f(uint16_t{});
    case HVD_INT16:
      return f(int16_t{});
    case HVD_INT32:
      return f(int32_t{});
    case HVD_INT64:
      return f(int64_t{});
    case HVD_UINT32:
      return f(uint32_t{});
    case HVD_UINT64:
      return f(uint64_t{});
    case HVD_FLOAT32:
      return f(float{});
    case HVD_FLOAT64:
      return f(double{});
    case HVD_BOOL:
      return f(uint8_t{});
    default:
      return f(uint16_t{});
  }
}

// Scattered values from 0 to 6, so that a misplaced element shows.
unsigned scattered(const Step& step, size_t tensor, int rank, size_t index) {
  const uint64_t x = (index + 1) * 0x9e3779b97f4a7c15u + static_cast<uint64_t>(rank) * 0x2545f491u +
                     tensor * 0x1234567u + step.salt * 0x51ed27u;
  return static_cast<unsigned>((x ^ (x >> 29)) % 7);
}

double value_of(const Step& step, size_t tensor, int32_t dtype, int rank, size_t index) {
  const unsigned pick = scattered(step, tensor, rank, index);
  if (dtype == HVD_BOOL) return pick % 2;
  const bool negative = !is_unsigned(dtype);
  if (step.op == HVD_ALLREDUCE && step.reduce_op == HVD_PRODUCT) {
    const double magnitude = rank < 4 && pick % 2 == 0 ? 2 : 1;
    return negative && pick > 3 ? -magnitude : magnitude;
  }
  return static_cast<double>(pick) - (negative ? 3 : 0);
}

double scaled(int32_t dtype, double value, double factor) {
  return is_float(dtype) ? value * factor : std::trunc(value * factor);
}

double combined(const Step& step, int32_t dtype, double a, double b) {
  switch (step.reduce_op) {
    case HVD_MIN:
      return std::min(a, b);
    case HVD_MAX:
      return std::max(a, b);
    case HVD_PRODUCT:
      return a * b;
    default:
      return dtype == HVD_BOOL ? std::max(a, b) : a + b;
  }
}

double reduced(const Step& step, size_t tensor, int32_t dtype, size_t index, int size) {
  double result = 0;
  bool is_first = true;
  for (int rank = 0; rank < size; ++rank) {
    // A joined rank contributes no value, but counts in an average.
    if (!step.joined.empty() && step.joined[static_cast<size_t>(rank)]) continue;
    const double value = scaled(dtype, value_of(step, tensor, dtype, rank, index), step.prescale);
    result = is_first ? value : combined(step, dtype, result, value);
    is_first = false;
  }
  if (step.reduce_op == HVD_AVERAGE) {
    result /= size;
    if (!is_float(dtype)) result = std::trunc(result);
  }
  return scaled(dtype, result, step.postscale);
}

Tensor reduced_part(const Step& step, size_t tensor, int64_t first_row, int64_t rows, int size) {
  const TensorTerms& terms = step.tensors[tensor];
  std::vector<int64_t> shape = terms.shape;
  size_t skip = 0;
  if (step.op == HVD_REDUCESCATTER) {
    shape[0] = rows;
    skip = static_cast<size_t>(first_row) * count_of({shape.begin() + 1, shape.end()});
  }
  Tensor result = empty(terms.dtype, std::move(shape));
  for (size_t i = 0, n = count_of(result.shape); i < n; ++i) {
    set_element(&result, i, reduced(step, tensor, terms.dtype, skip + i, size));
  }
  return result;
}

Tensor gathered(const Step& step, size_t tensor, int rank, int size) {
  std::vector<int64_t> shape = step.tensors[tensor].shape;
  shape[0] = 0;
  std::vector<std::byte> bytes;
  const size_t row = count_of({shape.begin() + 1, shape.end()}) *
                     size_of(static_cast<hvd_dtype>(step.tensors[tensor].dtype));
  for (int from = 0; from < size; ++from) {
    const Tensor input = input_on(step, tensor, from);
    auto first = input.bytes.begin();
    auto last = input.bytes.end();
    if (step.op == HVD_ALLTOALL) {
      const auto& splits = step.rows[static_cast<size_t>(from)];
      const int64_t before = std::accumulate(splits.begin(), splits.begin() + rank, int64_t{0});
      first += static_cast<std::ptrdiff_t>(static_cast<size_t>(before) * row);
      last = first + static_cast<std::ptrdiff_t>(
                         static_cast<size_t>(splits[static_cast<size_t>(rank)]) * row);
      shape[0] += splits[static_cast<size_t>(rank)];
    } else {
      shape[0] += input.shape[0];
    }
    bytes.insert(bytes.end(), first, last);
  }
  return {step.tensors[tensor].dtype, std::move(shape), std::move(bytes)};
}

}  // namespace

double element(const Tensor& tensor, size_t index) {
  return with_type(tensor.dtype, [&](auto value) {
    std::memcpy(&value, tensor.bytes.data() + index * sizeof value, sizeof value);
    if (tensor.dtype == HVD_FLOAT16) return double{float_of_half(static_cast<uint16_t>(value))};
    if (tensor.dtype == HVD_BFLOAT16) {
      return double{float_of_bfloat(static_cast<uint16_t>(value))};
    }
    return static_cast<double>(value);
  });
}

void set_element(Tensor* tensor, size_t index, double from) {
  with_type(tensor->dtype, [&](auto value) {
    using T = decltype(value);
    if (tensor->dtype == HVD_FLOAT16) {
      value = static_cast<T>(half_of_float(static_cast<float>(from)));
    } else if (tensor->dtype == HVD_BFLOAT16) {
      value = static_cast<T>(bfloat_of_float(static_cast<float>(from)));
    } else {
      value = static_cast<T>(from);
    }
    std::memcpy(tensor->bytes.data() + index * sizeof value, &value, sizeof value);
  });
}

Tensor input_on(const Step& step, size_t tensor, int rank) {
  int32_t dtype = step.tensors[tensor].dtype;
  if (step.odd == Odd::kDtype && step.odd_rank == rank && tensor == 0) {
    dtype = dtype == HVD_FLOAT64 ? HVD_INT32 : HVD_FLOAT64;
  }
  Tensor input = empty(dtype, shape_on(step, tensor, rank));
  for (size_t i = 0, n = count_of(input.shape); i < n; ++i) {
    set_element(&input, i, value_of(step, tensor, dtype, rank, i));
  }
  return input;
}

Tensor output_on(const Step& step, size_t tensor, int rank, int size) {
  switch (step.op) {
    case HVD_BROADCAST:
      return input_on(step, tensor, step.root);
    case HVD_ALLGATHER:
    case HVD_ALLTOALL:
      return gathered(step, tensor, rank, size);
    case HVD_REDUCESCATTER: {
      const int64_t rows = step.tensors[tensor].shape[0];
      const int64_t more = rows % size;
      const int64_t first = rank * (rows / size) + std::min<int64_t>(rank, more);
      return reduced_part(step, tensor, first, rows / size + (rank < more ? 1 : 0), size);
    }
    default:
      return reduced_part(step, tensor, 0, 0, size);
  }
}

std::vector<int32_t> received_splits(const Step& step, int rank, int size) {
  std::vector<int32_t> splits;
  for (int from = 0; from < size; ++from) {
    splits.push_back(
        static_cast<int32_t>(step.rows[static_cast<size_t>(from)][static_cast<size_t>(rank)]));
  }
  return splits;
}

Verdict verdict_of(const Program& program, const Step& step) {
  switch (step.refused) {
    case Refused::kNothing:
      break;
    case Refused::kRoot:
      return {HVD_INVALID_ARGUMENT, {cat("invalid root rank ", program.size)}};
    case Refused::kReduction:
      return {HVD_INVALID_ARGUMENT, {"reduction 77"}};
    case Refused::kSplits:
      return {HVD_INVALID_ARGUMENT, {"splits"}};
    case Refused::kUneven:
      return {HVD_INVALID_ARGUMENT, {"evenly"}};
    case Refused::kSet:
      return {HVD_NOT_FOUND, {"does not exist"}};
    case Refused::kName:
      return {HVD_INVALID_ARGUMENT, {"name"}};
  }
  if (step.odd == Odd::kNothing) return {};
  const char* words[] = {"",
                         "Mismatched data types",
                         "Mismatched operations",
                         "tensor shapes",
                         "Mismatched prescale and/or postscale factors",
                         "Mismatched reduction operation",
                         "Mismatched BROADCAST root ranks",
                         "Mismatched group sizes"};
  // The error names both sides: the odd rank, and the lowest other rank.
  return {HVD_INVALID_ARGUMENT,
          {words[static_cast<int>(step.odd)], cat("on rank ", program.rank_of(step, step.odd_rank)),
           cat("on rank ", program.rank_of(step, step.odd_rank == 0 ? 1 : 0))}};
}

std::string difference(const Step& step, const Tensor& expected, const void* got) {
  if (expected.bytes.empty()) return {};
  if (got == nullptr) return "no output";
  Tensor result = expected;
  std::memcpy(result.bytes.data(), got, result.bytes.size());
  // Only an average of half-precision numbers is rounded twice.
  double tolerance = 0;
  double error_of_parts = 0;
  if (step.reduce_op == HVD_AVERAGE) {
    if (expected.dtype == HVD_FLOAT16) {
      // A few hosts send parts of the average, below 4 here, each rounded by up to 2^-11 * 2.
      constexpr double kHosts = 4;
      tolerance = 1e-3;
      error_of_parts = kHosts * 0x1p-10;
    }
    if (expected.dtype == HVD_BFLOAT16) tolerance = 8e-3;
  }
  for (size_t i = 0, n = count_of(expected.shape); i < n; ++i) {
    const double right = element(expected, i);
    const double value = element(result, i);
    if (std::abs(value - right) <= tolerance * std::abs(right) + error_of_parts) continue;
    return cat("element ", i, " of ", n, " is ", value, ", not ", right);
  }
  return {};
}

}  // namespace hvd::test
