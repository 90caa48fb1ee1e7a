#include "runtime/fusion_planner.h"

#include <algorithm>

namespace hvd::runtime {
namespace {

bool may_fuse(const FusionUnit& a, const FusionUnit& b) {
  const Request& x = *a.request;
  const Request& y = *b.request;
  return a.unit.dtype == b.unit.dtype && x.op == HVD_ALLREDUCE && y.op == HVD_ALLREDUCE &&
         x.reduce_op == y.reduce_op && x.device == y.device &&
         x.prescale == y.prescale && x.postscale == y.postscale;
}

struct OpenBatch {
  const FusionUnit* first;
  size_t index;
  uint64_t bytes;
};

}  // namespace

std::vector<int32_t> dtypes_of(const Request& request) {
  std::vector<int32_t> dtypes;
  for (const TensorSpec& tensor : request.tensors) {
    if (std::find(dtypes.begin(), dtypes.end(), tensor.dtype) == dtypes.end()) {
      dtypes.push_back(tensor.dtype);
    }
  }
  return dtypes;
}

uint64_t bytes_of(const Request& request, int32_t dtype) {
  uint64_t bytes = 0;
  for (const TensorSpec& tensor : request.tensors) {
    if (tensor.dtype == dtype) bytes += static_cast<uint64_t>(tensor.count()) * dtype_size(dtype);
  }
  return bytes;
}

void plan_fusion(std::span<const FusionUnit> units, uint64_t threshold,
                 std::vector<std::vector<PlanUnit>>* batches) {
  std::vector<OpenBatch> open;  // at most one of each kind
  for (const FusionUnit& unit : units) {
    const auto same = std::find_if(open.begin(), open.end(), [&](const OpenBatch& batch) {
      return may_fuse(*batch.first, unit);
    });
    if (same != open.end() && same->bytes + unit.bytes <= threshold) {
      (*batches)[same->index].push_back(unit.unit);
      same->bytes += unit.bytes;
      continue;
    }
    const OpenBatch fresh{&unit, batches->size(), unit.bytes};
    batches->push_back({unit.unit});
    if (same != open.end()) *same = fresh;
    else if (unit.request->op == HVD_ALLREDUCE) open.push_back(fresh);
  }
}

}  // namespace hvd::runtime
