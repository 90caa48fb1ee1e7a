// The name of a running batch in the timeline: the backend's prefix and the collective. Backends call
// it for hvd_op_v1.activity. Any thread.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "horovod/plugin_op.h"

namespace hvd::ops {

template <size_t size>
struct FixedString {
  consteval FixedString(const char (&text)[size]) {
    std::copy_n(text, size, letters);
  }  // NOLINT: implicit
  char letters[size];
};

// Both words and a terminating zero, in static storage.
template <FixedString prefix, FixedString suffix>
inline constexpr auto kJoinedWords = [] {
  std::array<char, sizeof prefix.letters + sizeof suffix.letters - 1> text{};
  char* const middle = std::copy_n(prefix.letters, sizeof prefix.letters - 1, text.data());
  std::copy_n(suffix.letters, sizeof suffix.letters, middle);
  return text;
}();

// activity_of<"MPI">(HVD_ALLREDUCE) is "MPI_ALLREDUCE".
template <FixedString prefix>
const char* activity_of(int32_t op) {
  switch (op) {
    case HVD_ALLREDUCE:
      return kJoinedWords<prefix, "_ALLREDUCE">.data();
    case HVD_ALLGATHER:
      return kJoinedWords<prefix, "_ALLGATHER">.data();
    case HVD_BROADCAST:
      return kJoinedWords<prefix, "_BCAST">.data();
    case HVD_ALLTOALL:
      return kJoinedWords<prefix, "_ALLTOALL">.data();
    case HVD_REDUCESCATTER:
      return kJoinedWords<prefix, "_REDUCESCATTER">.data();
    default:
      return nullptr;
  }
}

}  // namespace hvd::ops
