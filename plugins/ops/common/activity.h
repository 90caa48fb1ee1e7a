// Names of running batches in the timeline: the backend's prefix and the collective. Backends call
// activity_of for hvd_op_v1.activity. Any thread.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "base/operations/op_traits.h"

namespace hvd::ops {

template <size_t size>
struct FixedString {
  consteval FixedString(const char (&text)[size]) {
    std::copy_n(text, size, letters);
  }  // NOLINT: implicit
  char letters[size];
};

// The names by hvd_op_kind: "<prefix>_ALLREDUCE", zero-terminated, in static storage.
template <FixedString prefix>
inline constexpr auto kActivities = [] {
  constexpr size_t kLongest = [] {
    size_t longest = 0;
    for (const OpTraits& traits : kOpTraits) longest = std::max(longest, traits.activity.size());
    return longest;
  }();
  std::array<std::array<char, sizeof prefix.letters + 1 + kLongest>, kOpCount> texts{};
  for (size_t op = 0; op < kOpCount; ++op) {
    char* end = std::copy_n(prefix.letters, sizeof prefix.letters - 1, texts[op].data());
    *end++ = '_';
    kOpTraits[op].activity.copy(end, kLongest);
  }
  return texts;
}();

// activity_of<"MPI">(HVD_ALLREDUCE) is "MPI_ALLREDUCE".
template <FixedString prefix>
const char* activity_of(int32_t op) {
  if (traits_of(op).activity.empty()) return nullptr;
  return kActivities<prefix>[static_cast<size_t>(op)].data();
}

}  // namespace hvd::ops
