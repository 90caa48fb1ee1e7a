#include "launcher/observe/rules/late_places.h"

#include <algorithm>

#include "base/text.h"

namespace hvd::launcher {
namespace {

// A line needs this number of samples, and this share of them, to explain a late rank.
constexpr int kLeastSamples = 3;
constexpr double kLeastShare = 0.4;

}  // namespace

void LatePlaces::take(int rank, const RankPlace& place) {
  if (place.line.empty()) return;
  Rank& of = ranks_[rank];
  ++of.samples;
  if (place.is_collective == 0) ++of.lines[cat(place.function, ", ", place.line)];
}

LateLine LatePlaces::line_of(const std::vector<int>& ranks) const {
  LateLine most;
  for (const int rank : ranks) {
    const auto found = ranks_.find(rank);
    if (found == ranks_.end()) continue;
    for (const auto& [line, samples] : found->second.lines) {
      if (samples > most.samples) most = {line, samples, found->second.samples};
    }
  }
  const bool stands_out = most.samples >= kLeastSamples && most.samples >= kLeastShare * most.of;
  return stands_out ? most : LateLine{};
}

}  // namespace hvd::launcher
