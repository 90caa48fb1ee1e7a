#include "runtime/negotiator.h"

#include <algorithm>

#include "base/check.h"
#include "base/text.h"
#include "runtime/agreement.h"

namespace hvd::runtime {

Negotiator::Negotiator(int32_t rank, TreePlace place, ResponseCache* cache)
    : rank_(rank), place_(std::move(place)), reporters_(place_.children.size() + 1),
      cache_(cache) {}

void Negotiator::announce(const Submission& submission) {
  CacheEntry* entry = submission.name->cached;
  Status status;
  if (entry != nullptr && entry->request == submission.request) {
    status = report_id(0, entry->id);
  } else {
    Proposal proposal{submission.name->text, {{rank_, submission.request}}, {}};
    if (has_rank_rows(submission.request.op)) {
      proposal.rows.push_back({rank_, rows_of(submission.request)});
    }
    status = report_full(0, std::move(proposal));
  }
  HVD_CHECK(status.ok());  // a name is in flight once on this rank: tensor_table sees to it
}

Status Negotiator::receive(int32_t child, Announcement* announcement) {
  uint32_t reporter = 0;
  HVD_RETURN_IF_ERROR(reporter_of(child, &reporter));
  for (const uint32_t id : announcement->ids) HVD_RETURN_IF_ERROR(report_id(reporter, id));
  for (Proposal& proposal : announcement->proposals) {
    HVD_RETURN_IF_ERROR(report_full(reporter, std::move(proposal)));
  }
  return {};
}

Status Negotiator::reporter_of(int32_t child, uint32_t* reporter) const {
  const auto& children = place_.children;
  const auto found = std::find(children.begin(), children.end(), child);
  if (found == children.end()) {
    return internal_error(cat("rank ", child, " announced to rank ", rank_,
                              ", which is not above it"));
  }
  *reporter = static_cast<uint32_t>(found - children.begin()) + 1;
  return {};
}

Status Negotiator::report_id(uint32_t reporter, uint32_t id) {
  CacheEntry* entry = cache_->find(id);
  if (entry == nullptr) {
    return internal_error(cat("a rank announced cache entry ", id, ", which rank ", rank_,
                              " does not have"));
  }
  entry->reporters.push_back(reporter);
  if (entry->reporters.size() + entry->full_reporters == reporters_) complete(entry);
  return {};
}

Status Negotiator::report_full(uint32_t reporter, Proposal&& proposal) {
  CacheEntry* entry = cache_->find(std::string_view(proposal.name));
  auto [found, fresh] = partial_.try_emplace(proposal.name);
  Partial& partial = found->second;
  if (std::find(partial.reporters.begin(), partial.reporters.end(), reporter) !=
      partial.reporters.end()) {
    return internal_error(cat("'", printable(proposal.name), "' was announced twice"));
  }
  partial.reporters.push_back(reporter);
  merge(&partial.proposal, std::move(proposal));
  if (entry != nullptr) {
    ++entry->full_reporters;
    if (entry->reporters.size() + entry->full_reporters == reporters_) complete(entry);
  } else if (partial.reporters.size() == reporters_) {
    ready_.proposals.push_back(std::move(partial.proposal));
    partial_.erase(found);
  }
  return {};
}

void Negotiator::complete(CacheEntry* entry) {
  if (entry->full_reporters == 0) {
    ready_.ids.push_back(entry->id);
  } else {
    const auto found = partial_.find(entry->text);
    Proposal proposal = std::move(found->second.proposal);
    partial_.erase(found);
    for (const uint32_t reporter : entry->reporters) merge(&proposal, expand(*entry, reporter));
    ready_.proposals.push_back(std::move(proposal));
  }
  entry->reporters.clear();
  entry->full_reporters = 0;
}

Proposal Negotiator::expand(const CacheEntry& entry, uint32_t reporter) const {
  const std::vector<int32_t> self{rank_};
  const auto& ranks = reporter == 0 ? self : place_.subtrees[reporter - 1];
  Proposal proposal{entry.text, {{ranks.front(), entry.request}}, {}};
  for (const RankRows& rows : entry.rows) {
    if (std::binary_search(ranks.begin(), ranks.end(), rows.rank)) proposal.rows.push_back(rows);
  }
  return proposal;
}

std::vector<int32_t> Negotiator::missing(std::string_view name) const {
  std::vector<int32_t> ranks;
  const auto found = partial_.find(std::string(name));
  for (size_t i = 0; i < place_.children.size(); ++i) {
    const auto reporter = static_cast<uint32_t>(i) + 1;
    const bool reported =
        found != partial_.end() &&
        std::find(found->second.reporters.begin(), found->second.reporters.end(), reporter) !=
            found->second.reporters.end();
    if (reported) continue;
    ranks.insert(ranks.end(), place_.subtrees[i].begin(), place_.subtrees[i].end());
  }
  std::sort(ranks.begin(), ranks.end());
  return ranks;
}

}  // namespace hvd::runtime
