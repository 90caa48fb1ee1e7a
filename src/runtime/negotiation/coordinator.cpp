#include "runtime/negotiation/coordinator.h"

#include <algorithm>

#include "base/check.h"
#include "base/text.h"
#include "runtime/negotiation/agreement.h"

namespace hvd::runtime {

Coordinator::Coordinator(CoordinatorOptions options, const ResponseCache* cache)
    : options_(std::move(options)), cache_(cache), policy_(options_.cache_capacity) {
  plan_.set = options_.set;
}

const Request& Coordinator::request_of(const PlanItem& item) const {
  // The id of a ready entry is not revoked, so the cache has the entry.
  return item.full ? item.request : cache_->find(item.id)->request;
}

const std::vector<RankRows>& Coordinator::rows_of(const PlanItem& item) const {
  return item.full ? item.rows : cache_->find(item.id)->rows;
}

void Coordinator::add(Announcement* ready) {
  for (const uint32_t id : ready->ids) add_id(id);
  for (Proposal& proposal : ready->proposals) add_proposal(std::move(proposal));
  joined_.insert(joined_.end(), ready->joined.begin(), ready->joined.end());
  if (joined_.size() == options_.members.size()) add_join();
  ready->clear();
}

void Coordinator::add_id(uint32_t id) {
  PlanItem& item = plan_.items.emplace_back();
  item.id = id;
  policy_.use(id);
  count_bytes(request_of(item));
}

void Coordinator::count_bytes(const Request& request) {
  for (const TensorSpec& tensor : request.tensors) {
    ready_bytes_ += static_cast<uint64_t>(tensor.count()) * dtype_size(tensor.dtype);
  }
}

void Coordinator::add_proposal(Proposal&& proposal) {
  PlanItem& item = plan_.items.emplace_back();
  item.full = true;
  const Status status = judge(&proposal);
  item.name = std::move(proposal.name);
  if (!proposal.variants.empty()) item.request = std::move(proposal.variants.front().request);
  if (!status.ok()) {
    item.error_code = static_cast<int32_t>(status.code());
    item.error = status.message();
    return;
  }
  item.rows = std::move(proposal.rows);
  count_bytes(item.request);
}

// Adds the item for the join of all ranks: after it, no rank counts as joined.
void Coordinator::add_join() {
  PlanItem& item = plan_.items.emplace_back();
  item.full = true;
  item.name = kJoinName;
  item.request.op = HVD_JOIN;
  item.request.root = joined_.back();
  joined_.clear();
}

Status Coordinator::judge(Proposal* proposal) const {
  const bool is_partial =
      !proposal->variants.empty() && is_of_members(proposal->variants.front().request.op);
  const bool alone = !is_partial && proposal->askers < options_.members.size();
  HVD_RETURN_IF_ERROR(verdict(*proposal, alone ? joined_text() : std::string()));
  return arrange_rows(proposal);
}

std::string Coordinator::joined_text() const {
  std::string text = joined_.size() == 1 ? "rank " : "ranks ";
  for (size_t i = 0; i < joined_.size(); ++i) text += cat(i == 0 ? "" : ", ", joined_[i]);
  return text;
}

Status Coordinator::arrange_rows(Proposal* proposal) const {
  const Request& request = proposal->variants.front().request;
  if (!has_rank_rows(request.op)) return {};
  auto& rows = proposal->rows;
  std::sort(rows.begin(), rows.end(),
            [](const RankRows& a, const RankRows& b) { return a.rank < b.rank; });
  return check_rows(proposal->name, request, rows, options_.members);
}

// Call this when all items of the plan are known: a later item must not use an id that this function revokes. Handles
// items with an id first, so that their ids are not revoked for another item of this plan.
void Coordinator::give_ids() {
  new_names_.clear();
  for (PlanItem& item : plan_.items) {
    const bool is_work = item.request.op != HVD_JOIN && !is_registration(item.request.op);
    if (!item.full || item.error_code != HVD_OK || !is_work) continue;
    if (const CacheEntry* entry = cache_->find(std::string_view(item.name))) {
      item.id = entry->id;
      policy_.use(entry->id);
    } else {
      new_names_.push_back(&item);
    }
  }
  for (PlanItem* item : new_names_) {
    uint32_t forgotten = 0;
    item->id = policy_.admit(item->name, &forgotten);
    if (forgotten != 0) plan_.forgotten.push_back(forgotten);
  }
}

const Plan& Coordinator::plan() {
  give_ids();
  units_.clear();
  for (size_t i = 0; i < plan_.items.size(); ++i) {
    const PlanItem& item = plan_.items[i];
    if (item.error_code != HVD_OK) continue;
    const Request& request = request_of(item);
    if (request.op == HVD_JOIN || is_registration(request.op)) continue;
    add_units(static_cast<uint32_t>(i), request, rows_of(item), &units_);
  }
  plan_.batches.clear();
  plan_fusion(units_, options_.fusion, &plan_.batches);
  return plan_;
}

const Plan& Coordinator::last_plan() {
  plan_.items.clear();
  plan_.batches.clear();
  plan_.forgotten.clear();
  plan_.last = true;
  return plan_;
}

void Coordinator::planned() {
  ++plan_.sequence;
  plan_.items.clear();
  plan_.batches.clear();
  plan_.forgotten.clear();
  plan_.eager_data = {};
  ready_bytes_ = 0;
}

}  // namespace hvd::runtime
