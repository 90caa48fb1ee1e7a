#include "launcher/protocol/pair_rule.h"

#include <algorithm>
#include <cmath>
#include <set>

namespace hvd::launcher {
namespace {

using Cells = std::map<std::pair<int, int>, double>;  // logarithms, by sender and receiver

// Takes the median of each sender's cells (or receiver's) out of the cells and adds it to the effects, whose own median
// is then 0.
void sweep(Cells& cells, std::map<int, double>& effects, bool by_sender) {
  std::map<int, std::vector<double>> lines;
  const auto line_of = [&](const std::pair<int, int>& ends) {
    return by_sender ? ends.first : ends.second;
  };
  for (const auto& [ends, value] : cells) lines[line_of(ends)].push_back(value);
  std::map<int, double> medians;
  for (const auto& [line, values] : lines) medians[line] = median_of(values);
  for (auto& [ends, value] : cells) value -= medians[line_of(ends)];
  std::vector<double> all;
  for (auto& [line, median] : medians) all.push_back(effects[line] += median);
  const double center = median_of(std::move(all));
  for (const auto& [line, median] : medians) effects[line] -= center;
}

}  // namespace

double median_of(std::vector<double> values) {
  const size_t half = values.size() / 2;
  std::ranges::sort(values);
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

SlowParts find_slow_parts(std::span<const PairSpeed> speeds, double slow_share) {
  Cells cells;
  std::set<int> hosts;
  for (const PairSpeed& pair : speeds) {
    hosts.insert({pair.from, pair.to});
    // A link that carried nothing counts as very slow.
    cells[{pair.from, pair.to}] = std::log(std::max(pair.speed, 1.0));
  }
  SlowParts slow;
  if (hosts.size() < kFewestHosts) return slow;
  std::map<int, double> senders, receivers;
  constexpr int kSweeps = 10;
  for (int i = 0; i < kSweeps; ++i) {
    sweep(cells, senders, true);
    sweep(cells, receivers, false);
  }
  const double limit = std::log(slow_share);
  const auto collect = [&](const std::map<int, double>& effects, std::map<int, double>& result) {
    for (const auto& [host, effect] : effects) {
      if (effect < limit) result[host] = std::exp(effect);
    }
  };
  collect(senders, slow.senders);
  collect(receivers, slow.receivers);
  std::vector<double> rest;
  for (const auto& [ends, value] : cells) rest.push_back(value);
  const double center = median_of(std::move(rest));
  for (const auto& [ends, value] : cells) {
    const bool is_explained =
        slow.senders.contains(ends.first) || slow.receivers.contains(ends.second);
    if (!is_explained && value - center < limit) slow.links[ends] = std::exp(value - center);
  }
  return slow;
}

}  // namespace hvd::launcher
