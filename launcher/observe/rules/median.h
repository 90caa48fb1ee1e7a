// The median of a few numbers. Pure.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

namespace hvd::launcher {

// Returns the mean of the middle two for an even number of values, and 0 without values.
inline double median(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<ptrdiff_t>(values.size() / 2);
  std::ranges::nth_element(values, middle);
  if (values.size() % 2 == 1) return *middle;
  return (*middle + *std::max_element(values.begin(), middle)) / 2;
}

}  // namespace hvd::launcher
