#include "runtime/coordinator.h"

#include <algorithm>

#include "base/text.h"
#include "runtime/agreement.h"

namespace hvd::runtime {

Coordinator::Coordinator(const CoordinatorOptions& options, const ResponseCache* cache)
    : options_(options), cache_(cache) {}

const Request& Coordinator::request_of(const PlanItem& item) const {
  // The cache only grows, and ids come from it.
  return item.full ? item.request : cache_->find(item.id)->request;
}

void Coordinator::add(Announcement* ready) {
  for (const uint32_t id : ready->ids) {
    PlanItem& item = plan_.items.emplace_back();
    item.id = id;
    const Request& request = request_of(item);
    for (const TensorSpec& tensor : request.tensors) {
      ready_bytes_ += static_cast<uint64_t>(tensor.count()) * dtype_size(tensor.dtype);
    }
  }
  for (Proposal& proposal : ready->proposals) add_proposal(std::move(proposal));
  ready->clear();
}

void Coordinator::add_proposal(Proposal&& proposal) {
  PlanItem& item = plan_.items.emplace_back();
  item.full = true;
  Status status = verdict(proposal);
  if (status.ok()) status = arrange_rows(&proposal);
  item.name = std::move(proposal.name);
  item.request = std::move(proposal.variants.front().request);
  if (!status.ok()) {
    item.error_code = static_cast<int32_t>(status.code());
    item.error = status.message();
    return;
  }
  item.rows = std::move(proposal.rows);
  item.id = id_for(item.name);
  for (const TensorSpec& tensor : item.request.tensors) {
    ready_bytes_ += static_cast<uint64_t>(tensor.count()) * dtype_size(tensor.dtype);
  }
}

Status Coordinator::arrange_rows(Proposal* proposal) const {
  const Request& request = proposal->variants.front().request;
  if (!has_rank_rows(request.op)) return {};
  auto& rows = proposal->rows;
  std::sort(rows.begin(), rows.end(),
            [](const RankRows& a, const RankRows& b) { return a.rank < b.rank; });
  const size_t wanted = request.op == HVD_ALLTOALL ? static_cast<size_t>(options_.size)
                                                   : request.tensors.size();
  bool whole = rows.size() == static_cast<size_t>(options_.size);
  for (size_t i = 0; whole && i < rows.size(); ++i) {
    whole = rows[i].rank == static_cast<int32_t>(i) && rows[i].rows.size() == wanted;
  }
  if (whole) return {};
  return internal_error(cat("the rows that the ranks bring to '", printable(proposal->name),
                            "' did not all arrive"));
}

uint32_t Coordinator::id_for(const std::string& text) {
  if (const CacheEntry* entry = cache_->find(std::string_view(text))) return entry->id;
  if (next_id_ > options_.cache_capacity) return 0;
  if (seen_.erase(text) != 0) return next_id_++;
  seen_.insert(text);
  seen_order_.push_back(text);
  const size_t remembered = 4 * std::max<size_t>(options_.cache_capacity, 1024);
  if (seen_order_.size() > remembered) {
    seen_.erase(seen_order_.front());
    seen_order_.pop_front();
  }
  return 0;
}

const Plan& Coordinator::plan() {
  units_.clear();
  for (size_t i = 0; i < plan_.items.size(); ++i) {
    const PlanItem& item = plan_.items[i];
    if (item.error_code != HVD_OK) continue;
    const Request& request = request_of(item);
    const auto index = static_cast<uint32_t>(i);
    if (request.tensors.size() <= 1) {
      const int32_t dtype = request.tensors.empty() ? HVD_UINT8 : request.tensors[0].dtype;
      const uint64_t bytes = request.tensors.empty() ? 0 : bytes_of(request, dtype);
      units_.push_back({{index, dtype}, &request, bytes});
      continue;
    }
    for (const int32_t dtype : dtypes_of(request)) {
      units_.push_back({{index, dtype}, &request, bytes_of(request, dtype)});
    }
  }
  plan_.sequence = next_sequence_;
  plan_.batches.clear();
  plan_fusion(units_, options_.fusion_threshold, &plan_.batches);
  return plan_;
}

void Coordinator::planned() {
  next_sequence_ += plan_.batches.size();
  plan_.items.clear();
  plan_.batches.clear();
  ready_bytes_ = 0;
}

}  // namespace hvd::runtime
