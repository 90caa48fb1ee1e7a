// Reducescatters of every type, operation and shape, over every layout of ranks.
#include <doctest/doctest.h>

#include "base/dtype.h"
#include "collectives/checks.h"
#include "conformance/elements.h"

using namespace hvd;
using namespace hvd::test;

namespace {

struct Shape {
  size_t rows;
  size_t row;
};

struct Rows {
  size_t first, count;
};
Rows rows_of(const Shape& shape, int rank, int size) {
  const auto members = static_cast<size_t>(size);
  const auto index = static_cast<size_t>(rank);
  const size_t longer = shape.rows % members;
  return {index * (shape.rows / members) + std::min(index, longer),
          shape.rows / members + (index < longer ? 1 : 0)};
}

std::string check(Rank& rank, hvd_dtype dtype, int op, const std::vector<Shape>& shapes) {
  const size_t size = size_of(dtype);
  std::vector<Bytes> inputs, outputs;
  std::vector<hvd_batch_tensor> tensors;
  for (size_t t = 0; t < shapes.size(); ++t) {
    const size_t count = shapes[t].rows * shapes[t].row;
    inputs.emplace_back(count * size);
    for (size_t i = 0; i < count; ++i) {
      store(dtype, inputs[t].data() + i * size, element(dtype, op, rank.rank(), i + t));
    }
    outputs.emplace_back(rows_of(shapes[t], rank.rank(), rank.size()).count * shapes[t].row * size);
  }
  for (size_t t = 0; t < shapes.size(); ++t) {
    tensors.push_back({inputs[t].data(), outputs[t].data(),
                       static_cast<int64_t>(shapes[t].rows * shapes[t].row),
                       static_cast<int64_t>(shapes[t].row), nullptr, nullptr});
  }
  hvd_batch batch = batch_of(HVD_REDUCESCATTER, dtype, tensors);
  batch.reduce_op = op;
  if (const Status ran = rank.run(batch); !ran.ok()) return ran.message();
  for (size_t t = 0; t < shapes.size(); ++t) {
    const size_t first = rows_of(shapes[t], rank.rank(), rank.size()).first * shapes[t].row;
    for (size_t i = 0; i < outputs[t].size() / size; ++i) {
      double right = element(dtype, op, 0, first + i + t);
      for (int r = 1; r < rank.size(); ++r) {
        right = combine(dtype, op, right, element(dtype, op, r, first + i + t));
      }
      const double got = load(dtype, outputs[t].data() + i * size);
      if (got != right) {
        return cat(name_of(dtype), " ", name_of(static_cast<hvd_reduce_op>(op)), " tensor ", t,
                   " element ", i, ": ", got, " and not ", right);
      }
    }
  }
  return {};
}

}  // namespace

TEST_CASE("a reducescatter of every type, operation and shape matches the oracle") {
  for (const auto& hosts : all_worlds()) {
    CAPTURE(name_of_world(hosts));
    World world(hosts);
    require_all_ok(world.run([](Rank& rank) -> Status {
      for (int dtype = 0; dtype < kDtypeCount; ++dtype) {
        for (const int op : {HVD_SUM, HVD_MIN, HVD_MAX, HVD_PRODUCT}) {
          for (const auto& shapes : std::vector<std::vector<Shape>>{
                   {{1, 1}}, {{0, 5}}, {{7, 3}}, {{5, 0}, {2, 2}, {0, 1}, {1000, 7}}}) {
            const std::string complaint = check(rank, static_cast<hvd_dtype>(dtype), op, shapes);
            if (!complaint.empty()) return as_status(complaint);
          }
        }
      }
      for (const hvd_dtype dtype : {HVD_FLOAT32, HVD_BFLOAT16, HVD_UINT64}) {
        for (const auto& shapes : std::vector<std::vector<Shape>>{
                 {{40'001, 3}}, {{3, 100'000}}, {{70'000, 1}, {5, 5}, {333, 100}}}) {
          const std::string complaint = check(rank, dtype, HVD_SUM, shapes);
          if (!complaint.empty()) return as_status(complaint);
        }
      }
      return {};
    }));
  }
}

TEST_CASE("a reducescatter's factors are applied, and its integer average truncates toward zero") {
  for (const auto& hosts : all_worlds()) {
    CAPTURE(name_of_world(hosts));
    World world(hosts);
    require_all_ok(world.run([](Rank& rank) -> Status {
      const size_t size = static_cast<size_t>(rank.size());
      std::vector<float> values(2 * size, static_cast<float>(rank.rank() + 1));
      std::vector<float> scaled(2);
      std::vector<hvd_batch_tensor> tensors{
          {values.data(), scaled.data(), static_cast<int64_t>(values.size()), 1, nullptr, nullptr}};
      hvd_batch batch = batch_of(HVD_REDUCESCATTER, HVD_FLOAT32, tensors);
      batch.prescale = 0.5;
      batch.postscale = 4;
      HVD_RETURN_IF_ERROR(rank.run(batch));
      if (scaled[1] != static_cast<float>(size * (size + 1))) {
        return internal_error(cat("scaled: ", scaled[1]));
      }
      std::vector<int32_t> whole(size, rank.rank() % 2 == 0 ? -7 : -4);
      int32_t average = 0;
      tensors[0] = {whole.data(), &average, static_cast<int64_t>(size), 1, nullptr, nullptr};
      batch = batch_of(HVD_REDUCESCATTER, HVD_INT32, tensors);
      batch.postscale = 1.0 / rank.size();
      batch.divisor = rank.size();
      HVD_RETURN_IF_ERROR(rank.run(batch));
      int32_t sum = 0;
      for (int r = 0; r < rank.size(); ++r) sum += r % 2 == 0 ? -7 : -4;
      if (average != sum / rank.size()) return internal_error(cat("average: ", average));
      double quotient = 0;
      std::vector<double> sevenths(size, 1.0 / 7);
      tensors[0] = {sevenths.data(), &quotient, static_cast<int64_t>(size), 1, nullptr, nullptr};
      batch = batch_of(HVD_REDUCESCATTER, HVD_FLOAT64, tensors);
      batch.prescale = 7;
      batch.postscale = 1.0 / rank.size();
      batch.divisor = 3;  // the divisor, if both are set
      HVD_RETURN_IF_ERROR(rank.run(batch));
      if (quotient != static_cast<double>(size) / 3) {
        return internal_error(cat("quotient: ", quotient));
      }
      return {};
    }));
  }
}
