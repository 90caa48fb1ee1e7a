#include "launcher/output/line_folder.h"

#include <algorithm>
#include <utility>

#include "base/text.h"

namespace hvd::launcher {

void LineFolder::add(int rank, std::string_view line, Clock::time_point now) {
  Cut& cut = cut_[static_cast<size_t>(rank)];
  if (!cut.line.empty()) {
    const bool is_its_end = line == "\n";
    settle(rank, is_its_end ? line : "");
    if (is_its_end) return;
  }
  if (!line.ends_with('\r')) return append(rank, line, now);
  cut = {std::string(line), 0, now};
  ++cuts_;
  held_ += line.size();
}

// Ends the rank's unfinished line, and appends it to its lines.
void LineFolder::settle(int rank, std::string_view end) {
  Cut& held = cut_[static_cast<size_t>(rank)];
  if (held.line.empty()) return;
  const Cut cut = std::exchange(held, {});
  --cuts_;
  held_ -= cut.line.size();
  append(rank, cat(cut.line, end), cut.since);
  if (cut.consumed > 0) consume(rank, cut.consumed);
}

void LineFolder::settle_all() {
  for (size_t rank = 0; rank < cut_.size(); ++rank) settle(static_cast<int>(rank), "");
}

bool LineFolder::is_any_due(Clock::time_point now) const {
  return cuts_ > 0 && std::any_of(cut_.begin(), cut_.end(), [&](const Cut& cut) {
           return !cut.line.empty() && now - cut.since >= kFoldFor;
         });
}

void LineFolder::append(int rank, std::string_view line, Clock::time_point since) {
  Number& last = last_[static_cast<size_t>(rank)];
  const auto known = latest_.find(line);
  // Join only a line that is newer than this rank's last line: otherwise the order of the rank's output would change.
  if (known != latest_.end() && known->second > last) {
    last = known->second;
    std::vector<int>& ranks = at(last).ranks;
    ranks.insert(std::upper_bound(ranks.begin(), ranks.end(), rank), rank);
    return;
  }
  last = first_ + lines_.size();
  lines_.push_back({std::string(line), {rank}, {}, since});
  latest_[lines_.back().line] = last;
  held_ += line.size();
}

bool LineFolder::consume(int rank, size_t size) {
  Cut& cut = cut_[static_cast<size_t>(rank)];
  if (!cut.line.empty()) {
    cut.consumed += size;
    return true;
  }
  const Number last = last_[static_cast<size_t>(rank)];
  if (last < first_) return false;
  at(last).consumed.emplace_back(rank, size);
  return true;
}

bool LineFolder::take(Clock::time_point now, bool all, FoldedLine& out) {
  // Also end the unfinished lines of other ranks, whose texts may be equal.
  if (all || held_ > kMaxFolded || is_any_due(now)) settle_all();
  if (lines_.empty()) return false;
  const FoldedLine& front = lines_.front();
  if (!all && held_ <= kMaxFolded && front.ranks.size() < last_.size() &&
      now - front.since < kFoldFor) {
    return false;
  }
  const auto known = latest_.find(front.line);
  if (known->second == first_) latest_.erase(known);
  held_ -= front.line.size();
  out = std::move(lines_.front());
  lines_.pop_front();
  ++first_;
  return true;
}

std::string ranks_text(const std::vector<int>& ranks) {
  std::string text;
  for (size_t i = 0; i < ranks.size();) {
    size_t end = i + 1;
    while (end < ranks.size() && ranks[end] == ranks[end - 1] + 1) ++end;
    text += cat(i == 0 ? "" : ",", ranks[i]);
    if (end - i > 1) text += cat("-", ranks[end - 1]);
    i = end;
  }
  return text;
}

std::string ranks_on_hosts(const std::vector<int>& ranks, const std::vector<std::string>& host_of) {
  constexpr size_t kMostHosts = 3;
  std::vector<std::string> hosts;
  for (const int rank : ranks) {
    const std::string& host = host_of[static_cast<size_t>(rank)];
    if (std::ranges::find(hosts, host) == hosts.end()) hosts.push_back(host);
  }
  const size_t more = hosts.size() > kMostHosts ? hosts.size() - kMostHosts : 0;
  hosts.resize(hosts.size() - more);
  return cat(ranks.size() == 1 ? "rank " : "ranks ", ranks_text(ranks), " on ", join(hosts, ", "),
             more > 0 ? cat(" and ", more, more == 1 ? " more host" : " more hosts") : "");
}

}  // namespace hvd::launcher
