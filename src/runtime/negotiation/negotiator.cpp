#include "runtime/negotiation/negotiator.h"

#include <algorithm>
#include <limits>
#include <map>

#include "base/check.h"
#include "base/text.h"
#include "runtime/negotiation/agreement.h"

namespace hvd::runtime {
namespace {

// Maximum number of ranks of one machine that report to the same rank.
constexpr size_t kFanIn = 8;

// The members of each machine; machines are in the order of their lowest members.
struct Layout {
  Layout(std::span<const int32_t> members, std::span<const int32_t> machines) {
    std::map<int32_t, size_t> number;
    for (const int32_t rank : members) {
      const auto [found, fresh] = number.emplace(machines[static_cast<size_t>(rank)], ranks.size());
      if (fresh) ranks.emplace_back();
      ranks[found->second].push_back(rank);
    }
  }

  // A node is a rank's place: the machine, and the index on this machine.
  struct Node {
    size_t machine;
    size_t local;
  };
  int32_t rank_of(Node node) const { return ranks[node.machine][node.local]; }

  std::vector<Node> children_of(Node node) const {
    std::vector<Node> children;
    const size_t count = ranks[node.machine].size();
    for (size_t i = kFanIn * node.local + 1; i <= kFanIn * (node.local + 1) && i < count; ++i) {
      children.push_back({node.machine, i});
    }
    if (node.local != 0) return children;
    // The children in the binomial tree are machine + 2^k for each 2^k below the lowest set bit of `machine`.
    const size_t machine = node.machine;
    for (size_t bit = 1; machine + bit < ranks.size() && (machine & bit) == 0; bit <<= 1) {
      children.push_back({machine + bit, 0});
    }
    return children;
  }

  int32_t parent_of(Node node) const {
    if (node.local != 0) return ranks[node.machine][(node.local - 1) / kFanIn];
    if (node.machine == 0) return -1;
    return ranks[node.machine & (node.machine - 1)][0];
  }

  void collect(Node node, std::vector<int32_t>* below) const {
    below->push_back(rank_of(node));
    for (const Node child : children_of(node)) collect(child, below);
  }

  Node find(int32_t rank) const {
    for (size_t machine = 0; machine < ranks.size(); ++machine) {
      const auto& local = ranks[machine];
      const auto found = std::lower_bound(local.begin(), local.end(), rank);
      if (found != local.end() && *found == rank) {
        return {machine, static_cast<size_t>(found - local.begin())};
      }
    }
    return {0, 0};
  }

  std::vector<std::vector<int32_t>> ranks;
};

bool is_among(uint32_t reporter, std::span<const uint32_t> reporters) {
  return std::find(reporters.begin(), reporters.end(), reporter) != reporters.end();
}

}  // namespace

TreePlace place_in_tree(int32_t rank, std::span<const int32_t> members,
                        std::span<const int32_t> machines) {
  const Layout layout(members, machines);
  const Layout::Node node = layout.find(rank);
  std::vector<std::vector<int32_t>> subtrees;
  for (const Layout::Node child : layout.children_of(node)) {
    layout.collect(child, &subtrees.emplace_back());
  }
  std::sort(subtrees.begin(), subtrees.end(),
            [](const auto& a, const auto& b) { return a.front() < b.front(); });
  TreePlace place;
  place.parent = layout.parent_of(node);
  for (auto& ranks : subtrees) {
    place.children.push_back(ranks.front());
    std::sort(ranks.begin(), ranks.end());
    place.subtrees.push_back(std::move(ranks));
  }
  return place;
}

std::vector<int32_t> parents_in_tree(std::span<const int32_t> members,
                                     std::span<const int32_t> machines) {
  const Layout layout(members, machines);
  std::vector<int32_t> parents(machines.size(), -1);
  for (size_t machine = 0; machine < layout.ranks.size(); ++machine) {
    for (size_t local = 0; local < layout.ranks[machine].size(); ++local) {
      const Layout::Node node{machine, local};
      parents[static_cast<size_t>(layout.rank_of(node))] = layout.parent_of(node);
    }
  }
  return parents;
}

Negotiator::Negotiator(int32_t rank, TreePlace place, ResponseCache* cache)
    : rank_(rank), place_(std::move(place)), reporters_(place_.children.size() + 1), cache_(cache) {
  reporters_[0].plans = std::numeric_limits<uint64_t>::max();
  for (size_t i = 0; i < place_.subtrees.size(); ++i) {
    reporters_[i + 1].ranks = place_.subtrees[i].size();
  }
}

uint32_t Negotiator::announce(const Submission& submission) {
  CacheEntry* entry = submission.name->cached;
  Status status;
  uint32_t id = 0;
  if (entry != nullptr && entry->request == submission.request) {
    id = entry->id;
    status = report_id(0, id);
  } else {
    Proposal proposal{submission.name->text, 1, {{rank_, submission.request}}, {}};
    if (has_rank_rows(submission.request.op)) {
      proposal.rows.push_back({rank_, rows_of(submission.request)});
    }
    status = report_full(0, std::move(proposal));
  }
  HVD_CHECK(status.ok());  // RuntimeCore announces one submission of a name at a time
  return id;
}

bool Negotiator::waits_for_others_with(std::span<const uint32_t> ids) const {
  return joined_reporters_ == 0 && open_ == ids.size() && ready_.empty() &&
         std::all_of(ids.begin(), ids.end(), [this](uint32_t id) {
           const CacheEntry* entry = cache_->find(id);
           return entry != nullptr && entry->full_reporters == 0 &&
                  entry->reporters == std::vector<uint32_t>{0};
         });
}

void Negotiator::join() {
  const Status status = report_joined(0, {&rank_, 1});
  HVD_CHECK(status.ok());  // the runtime core holds back later submissions
}

Status Negotiator::receive(int32_t child, Announcement* announcement) {
  uint32_t reporter = 0;
  HVD_RETURN_IF_ERROR(reporter_of(child, &reporter));
  for (const uint32_t id : announcement->ids) HVD_RETURN_IF_ERROR(report_id(reporter, id));
  for (Proposal& proposal : announcement->proposals) {
    HVD_RETURN_IF_ERROR(report_full(reporter, std::move(proposal)));
  }
  if (!announcement->joined.empty()) {
    HVD_RETURN_IF_ERROR(report_joined(reporter, announcement->joined));
  }
  received_plans(reporter, announcement->plans);
  return {};
}

void Negotiator::received_plans(uint32_t reporter, uint64_t plans) {
  reporters_[reporter].plans = plans;
  if (!cache_->remembers_forgotten()) return;
  uint64_t by_all = plans;
  for (const Reporter& other : reporters_) by_all = std::min(by_all, other.plans);
  cache_->bury(by_all);
}

Status Negotiator::reporter_of(int32_t child, uint32_t* reporter) const {
  const auto& children = place_.children;
  const auto found = std::find(children.begin(), children.end(), child);
  if (found == children.end()) {
    return internal_error(
        cat("rank ", child, " announced to rank ", rank_, ", which is not above it"));
  }
  *reporter = static_cast<uint32_t>(found - children.begin()) + 1;
  return {};
}

Status Negotiator::report_id(uint32_t reporter, uint32_t id) {
  CacheEntry* entry = cache_->find(id);
  if (entry == nullptr) {
    const CacheEntry* forgotten = cache_->find_forgotten(id);
    if (forgotten != nullptr) return report_full(reporter, expand(*forgotten, reporter));
    return internal_error(
        cat("a rank announced cache entry ", id, ", which rank ", rank_, " does not have"));
  }
  if (is_among(reporter, entry->reporters)) {
    return internal_error(cat("'", printable(entry->text), "' was announced twice"));
  }
  if (entry->reporters.empty() && entry->full_reporters == 0) ++open_;
  entry->reporters.push_back(reporter);
  if (is_whole(*entry)) complete(entry);
  return {};
}

Status Negotiator::report_full(uint32_t reporter, Proposal&& proposal) {
  CacheEntry* entry = cache_->find(std::string_view(proposal.name));
  auto [found, fresh] = partial_.try_emplace(proposal.name);
  Partial& partial = found->second;
  if (is_among(reporter, partial.reporters)) {
    return internal_error(cat("'", printable(proposal.name), "' was announced twice"));
  }
  if (fresh && (entry == nullptr || entry->reporters.empty())) ++open_;
  partial.reporters.push_back(reporter);
  merge(&partial.proposal, std::move(proposal));
  if (entry != nullptr) {
    ++entry->full_reporters;
    if (is_whole(*entry)) complete(entry);
  } else if (is_whole(partial)) {
    complete(found->first);
  }
  return {};
}

Status Negotiator::report_joined(uint32_t reporter, std::span<const int32_t> ranks) {
  Reporter& who = reporters_[reporter];
  if (ranks.size() > who.ranks - who.joined) {
    return internal_error(cat("more ranks have joined than are below rank ", rank_));
  }
  for (const int32_t rank : ranks) {
    const bool is_below =
        reporter == 0 || std::ranges::binary_search(place_.subtrees[reporter - 1], rank);
    if (!is_below) return internal_error(cat("rank ", rank, " has joined, and is not below"));
  }
  who.joined += ranks.size();
  ready_.joined.insert(ready_.joined.end(), ranks.begin(), ranks.end());
  if (who.has_joined()) {
    ++joined_reporters_;
    complete_what_is_whole();
  }
  return {};
}

bool Negotiator::is_whole(std::span<const uint32_t> by_id,
                          std::span<const uint32_t> in_full) const {
  if (joined_reporters_ == 0) return by_id.size() + in_full.size() == reporters_.size();
  for (uint32_t reporter = 0; reporter < reporters_.size(); ++reporter) {
    if (!reporters_[reporter].has_joined() && !is_among(reporter, by_id) &&
        !is_among(reporter, in_full)) {
      return false;
    }
  }
  return true;
}

bool Negotiator::is_whole(const CacheEntry& entry) const {
  if (entry.full_reporters == 0) return is_whole(entry.reporters, {});
  return is_whole(entry.reporters, partial_.find(entry.text)->second.reporters);
}

bool Negotiator::is_whole(const Partial& partial) const {
  const Request& request = partial.proposal.variants.front().request;
  if (!is_of_members(request.op)) return is_whole({}, partial.reporters);
  const auto announcers = announcers_of(request);
  for (uint32_t reporter = 0; reporter < reporters_.size(); ++reporter) {
    if (has_one_of(reporter, announcers) && !reporters_[reporter].has_joined() &&
        !is_among(reporter, partial.reporters)) {
      return false;
    }
  }
  return true;
}

bool Negotiator::has_one_of(uint32_t reporter, std::span<const int32_t> ranks) const {
  if (reporter == 0) return std::ranges::binary_search(ranks, rank_);
  return std::ranges::any_of(place_.subtrees[reporter - 1],
                             [&](int32_t rank) { return std::ranges::binary_search(ranks, rank); });
}

void Negotiator::complete(CacheEntry* entry) {
  if (entry->reporters.size() == reporters_.size()) {
    ready_.ids.push_back(entry->id);
    entry->reporters.clear();
    --open_;
    return;
  }
  Proposal& proposal = partial_[entry->text].proposal;
  for (const uint32_t reporter : entry->reporters) merge(&proposal, expand(*entry, reporter));
  entry->reporters.clear();
  entry->full_reporters = 0;
  complete(entry->text);
}

void Negotiator::complete(const std::string& text) {
  const auto found = partial_.find(text);
  ready_.proposals.push_back(std::move(found->second.proposal));
  partial_.erase(found);
  --open_;
}

// Completes reported names for which only joined ranks are missing, since a joined rank is always ready.
void Negotiator::complete_what_is_whole() {
  cache_->each([this](CacheEntry& entry) {
    if (entry.reporters.size() + entry.full_reporters > 0 && is_whole(entry)) complete(&entry);
  });
  std::vector<std::string> whole;
  for (const auto& [text, partial] : partial_) {
    if (cache_->find(std::string_view(text)) == nullptr && is_whole(partial)) {
      whole.push_back(text);
    }
  }
  std::sort(whole.begin(), whole.end());
  for (const std::string& text : whole) complete(text);
}

void Negotiator::forget(CacheEntry* entry, uint64_t plan) {
  if (!entry->reporters.empty()) {
    Partial& partial = partial_[entry->text];
    for (const uint32_t reporter : entry->reporters) {
      merge(&partial.proposal, expand(*entry, reporter));
      partial.reporters.push_back(reporter);
    }
  }
  entry->reporters.clear();
  entry->full_reporters = 0;
  cache_->forget(entry, plan);
  received_plans(0, std::numeric_limits<uint64_t>::max());
}

void Negotiator::all_have_joined() {
  for (Reporter& reporter : reporters_) reporter.joined = 0;
  joined_reporters_ = 0;
}

Proposal Negotiator::expand(const CacheEntry& entry, uint32_t reporter) const {
  const std::vector<int32_t> self{rank_};
  const auto& ranks = reporter == 0 ? self : place_.subtrees[reporter - 1];
  Proposal proposal{
      entry.text, static_cast<uint32_t>(ranks.size()), {{ranks.front(), entry.request}}, {}};
  for (const RankRows& rows : entry.rows) {
    if (std::binary_search(ranks.begin(), ranks.end(), rows.rank)) proposal.rows.push_back(rows);
  }
  return proposal;
}

std::vector<int32_t> Negotiator::missing(std::string_view name) const {
  std::vector<int32_t> ranks;
  const auto found = partial_.find(std::string(name));
  const CacheEntry* entry = cache_->find(name);
  for (size_t i = 0; i < place_.children.size(); ++i) {
    const auto reporter = static_cast<uint32_t>(i) + 1;
    if (reporters_[reporter].has_joined()) continue;
    if (found != partial_.end() && is_among(reporter, found->second.reporters)) continue;
    if (entry != nullptr && is_among(reporter, entry->reporters)) continue;
    ranks.insert(ranks.end(), place_.subtrees[i].begin(), place_.subtrees[i].end());
  }
  std::sort(ranks.begin(), ranks.end());
  return ranks;
}

}  // namespace hvd::runtime
