#include "launcher/agent/watchdog.h"

#include <sys/mman.h>

#include <algorithm>
#include <new>
#include <utility>

namespace hvd::launcher {
namespace {

constexpr int kTurns = 8;
constexpr double kShortestTurn = 0.1;
constexpr double kLongestTurn = 5;

}  // namespace

Watchdog::Watchdog() {
  void* const memory =
      ::mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory != MAP_FAILED) shared_ = new (memory) Shared;
}

Watchdog::~Watchdog() {
  if (shared_ != nullptr) ::munmap(shared_, sizeof(Shared));
}

void Watchdog::expect_within(double seconds) {
  if (shared_ == nullptr) return;
  shared_->seconds.store(seconds, std::memory_order_relaxed);
  shared_->calls.fetch_add(1, std::memory_order_release);
}

double Watchdog::turn_seconds() const {
  const double seconds = shared_ == nullptr ? 0 : shared_->seconds.load(std::memory_order_relaxed);
  return seconds > 0 ? std::clamp(seconds / kTurns, kShortestTurn, kLongestTurn) : kLongestTurn;
}

bool Watchdog::is_hung_after_turn() {
  if (shared_ == nullptr) return false;
  const uint64_t calls = shared_->calls.load(std::memory_order_acquire);
  const double seconds = shared_->seconds.load(std::memory_order_relaxed);
  if (calls != std::exchange(seen_calls_, calls) || seconds <= 0) {
    waited_seconds_ = 0;
    return false;
  }
  waited_seconds_ += turn_seconds();
  return waited_seconds_ > seconds;
}

}  // namespace hvd::launcher
