// Finds slow hosts and slow links in the speeds that pairs of hosts have measured. The speed of a pair is modelled as
// overall * sender * receiver (median polish of the logarithms): a host that is slow to all its partners has a small
// factor, and a slow link is small beside the factors of its two ends. Pure.
#pragma once

#include <map>
#include <span>
#include <utility>
#include <vector>

namespace hvd::launcher {

struct PairSpeed {
  int from = 0, to = 0;  // indices of hosts
  double speed = 0;      // bytes per second
};

// Below this share of the usual speed, a host or a link is slow.
inline constexpr double kSlowShare = 0.8;
// Fewer hosts cannot outvote a slow one.
inline constexpr int kFewestHosts = 4;

// The slow ones, each with its share of the usual speed.
struct SlowParts {
  std::map<int, double> senders{}, receivers{};
  std::map<std::pair<int, int>, double>
      links{};  // between hosts that are not slow in this direction
};

// Returns nothing for fewer than kFewestHosts hosts. If a pair has several speeds, the last counts.
SlowParts find_slow_parts(std::span<const PairSpeed> speeds, double slow_share = kSlowShare);

// Returns the mean of the middle two for an even number of values. `values` is not empty.
double median_of(std::vector<double> values);

}  // namespace hvd::launcher
