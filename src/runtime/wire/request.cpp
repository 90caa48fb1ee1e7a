#include "runtime/wire/request.h"

#include <algorithm>

#include "base/dtype.h"
#include "base/operations/op_traits.h"
#include "base/text.h"

namespace hvd::runtime {
namespace {

template <typename T>
std::string list_of(std::span<const T> numbers) {
  std::string text = "[";
  for (size_t i = 0; i < numbers.size(); ++i) text += cat(i == 0 ? "" : ", ", numbers[i]);
  return text + "]";
}

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
  return is_dtype(dtype) ? name_of(static_cast<hvd_dtype>(dtype)) : "an unknown dtype";
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
  return is_known ? name_of(static_cast<hvd_reduce_op>(reduce_op)) : "an unknown reduction";
}

}  // namespace hvd::runtime
