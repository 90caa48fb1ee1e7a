// The pending question of a user's thread. A service writes the answer with the progress lock held;
// the thread reads it once `done` is true (acquire).
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <tuple>

#include "base/status.h"

namespace hvd::runtime {

struct Question {
  Status status;
  std::string text;
  std::atomic<bool> done{false};

  void answer(Status with) {
    status = std::move(with);
    // The writer checks for sleeping threads after this store: the order matters (progress.h).
    done.store(true, std::memory_order_seq_cst);
  }
};

// A question: the rank that asked, and the number that it chose.
struct Ask {
  int32_t rank = 0;
  uint32_t ticket = 0;
  static auto fields(auto& ask) { return std::tie(ask.rank, ask.ticket); }
};

}  // namespace hvd::runtime
