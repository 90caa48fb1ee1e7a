#include "runtime/negotiation/fusion_planner.h"

#include <algorithm>

#include "base/operations/op_traits.h"

namespace hvd::runtime {
namespace {

bool is_fusable(const Request& request) { return traits_of(request.op).fuses; }

bool can_fuse(const Request& request, const FusionOptions& options) {
  if (options.groups_alone && request.tensors.size() > 1) return false;
  return is_fusable(request);
}

bool match(const FusionUnit& a, const FusionUnit& b) {
  const Request& x = *a.request;
  const Request& y = *b.request;
  return a.unit.dtype == b.unit.dtype && x.op == y.op && x.reduce_op == y.reduce_op &&
         x.is_on_device() == y.is_on_device() && x.prescale == y.prescale &&
         x.postscale == y.postscale;
}

struct OpenBatch {
  const FusionUnit* first;
  size_t index;
  uint64_t bytes;
};

int64_t all_rows(const std::vector<RankRows>& rows, size_t tensor) {
  int64_t sum = 0;
  for (const RankRows& one : rows) sum += one.rows[tensor];
  return sum;
}

uint64_t bytes_of(const Request& request, const std::vector<RankRows>& rows, int32_t dtype) {
  uint64_t bytes = 0;
  for (size_t i = 0; i < request.tensors.size(); ++i) {
    const TensorSpec& tensor = request.tensors[i];
    if (tensor.dtype != dtype) continue;
    const bool is_gathered = traits_of(request.op).row_counts == RowCounts::kPerTensor;
    const int64_t count = is_gathered ? all_rows(rows, i) * tensor.row() : tensor.count();
    bytes += static_cast<uint64_t>(count) * dtype_size(dtype);
  }
  return bytes;
}

}  // namespace

bool may_share_batch(const FusionUnit& a, const FusionUnit& b) {
  return is_fusable(*a.request) && match(a, b);
}

std::vector<int32_t> dtypes_of(const Request& request) {
  std::vector<int32_t> dtypes;
  for (const TensorSpec& tensor : request.tensors) {
    if (std::find(dtypes.begin(), dtypes.end(), tensor.dtype) == dtypes.end()) {
      dtypes.push_back(tensor.dtype);
    }
  }
  return dtypes;
}

uint32_t unit_count(const Request& request) {
  return request.tensors.size() <= 1 ? 1 : static_cast<uint32_t>(dtypes_of(request).size());
}

void add_units(uint32_t item, const Request& request, const std::vector<RankRows>& rows,
               std::vector<FusionUnit>* units) {
  if (request.tensors.size() <= 1) {
    const int32_t dtype = request.tensors.empty() ? HVD_UINT8 : request.tensors[0].dtype;
    units->push_back({{item, dtype}, &request, bytes_of(request, rows, dtype)});
    return;
  }
  for (const int32_t dtype : dtypes_of(request)) {
    units->push_back({{item, dtype}, &request, bytes_of(request, rows, dtype)});
  }
}

void plan_fusion(std::span<const FusionUnit> units, const FusionOptions& options,
                 std::vector<std::vector<PlanUnit>>* batches) {
  std::vector<OpenBatch> open;  // at most one of each kind
  for (const FusionUnit& unit : units) {
    const bool fuses = can_fuse(*unit.request, options);
    const auto same =
        !fuses ? open.end() : std::find_if(open.begin(), open.end(), [&](const OpenBatch& batch) {
          return match(*batch.first, unit);
        });
    if (same != open.end() && same->bytes + unit.bytes <= options.threshold) {
      (*batches)[same->index].push_back(unit.unit);
      same->bytes += unit.bytes;
      continue;
    }
    const OpenBatch fresh{&unit, batches->size(), unit.bytes};
    batches->push_back({unit.unit});
    if (!fuses) continue;
    if (same != open.end())
      *same = fresh;
    else
      open.push_back(fresh);
  }
}

}  // namespace hvd::runtime
