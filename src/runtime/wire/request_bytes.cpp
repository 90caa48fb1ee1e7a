#include "runtime/wire/request_bytes.h"

namespace hvd::runtime {
namespace {

// Maximum number of dimensions of a valid request, more than any framework allows.
constexpr uint32_t kMostExtents = 64;

}  // namespace

void put_request(const Request& request, ByteWriter& out) {
  out.put(static_cast<uint8_t>(request.op))
      .put(static_cast<uint8_t>(request.reduce_op))
      .put(request.root)
      .put(request.device)
      .put(request.prescale)
      .put(request.postscale)
      .put(static_cast<uint32_t>(request.tensors.size()));
  for (const TensorSpec& tensor : request.tensors) {
    out.put(static_cast<uint8_t>(tensor.dtype)).put(static_cast<uint8_t>(tensor.shape.size()));
    for (const int64_t extent : tensor.shape) out.put(extent);
  }
  out.put(static_cast<uint32_t>(request.splits.size()));
  for (const int32_t rows : request.splits) out.put(rows);
  out.put_text(request.refusal);
}

Status get_request(ByteReader& in, Request* request) {
  request->op = in.get<uint8_t>();
  request->reduce_op = in.get<uint8_t>();
  request->root = in.get<int32_t>();
  request->device = in.get<int32_t>();
  request->prescale = in.get<double>();
  request->postscale = in.get<double>();
  request->tensors.resize(in.get_count(2));
  for (TensorSpec& tensor : request->tensors) {
    tensor.dtype = in.get<uint8_t>();
    const uint32_t dimensions = in.get<uint8_t>();
    if (!in.failed() && (dtype_size(tensor.dtype) == 0 || dimensions > kMostExtents)) {
      return invalid_argument("a request has an unknown dtype or too many dimensions");
    }
    tensor.shape.resize(dimensions);
    // Limit also the elements of one row: a shape without rows has no elements, even if a row is large.
    const auto size = static_cast<int64_t>(dtype_size(tensor.dtype));
    int64_t bytes = size;
    int64_t row_bytes = size;
    for (size_t i = 0; i < tensor.shape.size(); ++i) {
      const auto extent = tensor.shape[i] = in.get<int64_t>();
      if (extent < 0 || __builtin_mul_overflow(bytes, extent, &bytes) ||
          (i > 0 && __builtin_mul_overflow(row_bytes, extent, &row_bytes))) {
        return invalid_argument("a request has an impossible shape");
      }
    }
  }
  request->splits.resize(in.get_count(sizeof(int32_t)));
  for (int32_t& rows : request->splits) rows = in.get<int32_t>();
  request->refusal = in.get_text();
  return {};
}

void put_rows(const std::vector<RankRows>& all, ByteWriter& out) {
  out.put(static_cast<uint32_t>(all.size()));
  for (const RankRows& one : all) {
    out.put(one.rank).put(static_cast<uint32_t>(one.rows.size()));
    for (const int64_t rows : one.rows) out.put(rows);
  }
}

Status get_rows(ByteReader& in, std::vector<RankRows>* all) {
  all->resize(in.get_count(8));
  for (RankRows& one : *all) {
    one.rank = in.get<int32_t>();
    one.rows.resize(in.get_count(sizeof(int64_t)));
    for (int64_t& rows : one.rows) {
      rows = in.get<int64_t>();
      if (rows < 0) return invalid_argument("a rank brings a negative number of rows");
    }
  }
  return {};
}

}  // namespace hvd::runtime
