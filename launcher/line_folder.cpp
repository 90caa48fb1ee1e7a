#include "launcher/line_folder.h"

#include <algorithm>

#include "base/text.h"

namespace hvd::launcher {

void LineFolder::add(int rank, std::string_view line, Clock::time_point now) {
  Number& last = last_[static_cast<size_t>(rank)];
  const auto known = latest_.find(line);
  // One that is before this rank's last line would change the order of what it said.
  if (known != latest_.end() && known->second > last) {
    last = known->second;
    std::vector<int>& ranks = at(last).ranks;
    ranks.insert(std::upper_bound(ranks.begin(), ranks.end(), rank), rank);
    return;
  }
  last = first_ + lines_.size();
  lines_.push_back({std::string(line), {rank}, {}, now});
  latest_[lines_.back().line] = last;
  held_ += line.size();
}

bool LineFolder::consume(int rank, size_t size) {
  const Number last = last_[static_cast<size_t>(rank)];
  if (last < first_) return false;
  at(last).consumed.emplace_back(rank, size);
  return true;
}

bool LineFolder::take(Clock::time_point now, bool all, FoldedLine& out) {
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

}  // namespace hvd::launcher
