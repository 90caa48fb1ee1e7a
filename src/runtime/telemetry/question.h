// What a user's thread waits for while the ranks talk: filled with the progress lock held, read once
// `done` is true (acquire).
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

#include "base/status.h"

namespace hvd::runtime {

struct Question {
  Status status;
  std::string text;
  std::atomic<bool> done{false};

  void answer(Status with) {
    status = std::move(with);
    // Who writes this looks whether anybody sleeps on it, in that order (progress).
    done.store(true, std::memory_order_seq_cst);
  }
};

// Who asked, by a number of its own.
struct Ask {
  int32_t rank = 0;
  uint32_t ticket = 0;
};

}  // namespace hvd::runtime
