#include "runtime/wire/request.h"

#include <algorithm>

#include "base/dtype.h"
#include "base/text.h"

namespace hvd::runtime {
namespace {

template <typename T>
std::string list_of(std::span<const T> numbers) {
  std::string text = "[";
  for (size_t i = 0; i < numbers.size(); ++i) text += cat(i == 0 ? "" : ", ", numbers[i]);
  return text + "]";
}

// Maximum number of dimensions of a tensor in a valid request.
constexpr uint32_t kMostExtents = 64;

}  // namespace

std::string list_text(std::span<const int64_t> numbers) { return list_of(numbers); }
std::string list_text(std::span<const int32_t> numbers) { return list_of(numbers); }

void put_set(const std::vector<int32_t>& ranks, Request* request) {
  request->splits.push_back(static_cast<int32_t>(ranks.size()));
  request->splits.insert(request->splits.end(), ranks.begin(), ranks.end());
}

std::vector<std::vector<int32_t>> sets_of(const Request& request) {
  std::vector<std::vector<int32_t>> sets;
  const std::span<const int32_t> all(request.splits);
  for (size_t at = 0; at < all.size();) {
    const size_t wanted = all[at] < 0 ? 0 : static_cast<size_t>(all[at]);
    const size_t count = std::min(wanted, all.size() - at - 1);
    const auto ranks = all.subspan(at + 1, count);
    sets.emplace_back(ranks.begin(), ranks.end());
    at += count + 1;
  }
  return sets;
}

std::span<const int32_t> announcers_of(const Request& request) {
  const std::span<const int32_t> all(request.splits);
  return all.empty() ? all : all.subspan(1);
}

std::vector<int64_t> rows_of(const Request& request) {
  std::vector<int64_t> rows;
  const RowCounts counts = traits_of(request.op).row_counts;
  if (counts == RowCounts::kPerTensor) {
    rows.reserve(request.tensors.size());
    for (const TensorSpec& tensor : request.tensors) {
      rows.push_back(tensor.shape.empty() ? 1 : tensor.shape[0]);
    }
  } else if (counts == RowCounts::kPerRank) {
    rows.assign(request.splits.begin(), request.splits.end());
  }
  return rows;
}

size_t dtype_size(int32_t dtype) {
  return is_dtype(dtype) ? size_of(static_cast<hvd_dtype>(dtype)) : 0;
}

std::string_view dtype_name(int32_t dtype) {
  return is_dtype(dtype) ? hvd::name_of(static_cast<hvd_dtype>(dtype)) : "an unknown dtype";
}

std::string_view op_name(int32_t op) {
  if (op == kAddProcessSets || op == kAddNamedSet) return "add_process_set";
  if (op == kRemoveProcessSet || op == kRemoveNamedSet) return "remove_process_set";
  const std::string_view name = traits_of(op).name;
  return name.empty() ? "an unknown operation" : name;
}

std::string operation_text(int32_t op, std::string_view name) {
  if (name.empty() || name.front() == '<') return std::string(op_name(op));
  if (traits_of(op).is_point_to_point) return std::string(name);
  return cat(op_name(op), " '", printable(name), "'");
}

std::string message_text(int32_t op, int32_t peer, int32_t tag) {
  return cat(op_name(op), op == HVD_SEND ? " to " : " from ",
             peer == HVD_ANY_RANK ? std::string("any rank") : cat("rank ", peer), ", tag ", tag);
}

std::string_view reduce_op_name(int32_t reduce_op) {
  const bool is_known = reduce_op >= HVD_AVERAGE && reduce_op <= HVD_PRODUCT;
  return is_known ? hvd::name_of(static_cast<hvd_reduce_op>(reduce_op)) : "an unknown reduction";
}

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
