// The interface of a service of the job: timeline, stall inspector, metrics, autotuning, the order of
// batches on devices. The service's messages are sent along the combining tree, up to the root or down to all
// ranks. These messages stay in order with plans and announcements on each link: a message that the root sends
// before a plan arrives before this plan. The runtime core calls every function with the progress
// lock held.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <tuple>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/status.h"

namespace hvd::runtime {

enum class ServiceId : uint8_t {
  kTimeline = 0,
  kStall = 1,
  kMetrics = 2,
  kTuning = 3,
  kDeviceTurns = 4
};
constexpr size_t kServices = 5;

class Service {
 public:
  virtual ~Service() = default;
  // Receives a message of rank `from`: at the root, from RuntimeCore::to_root of any rank; at all ranks,
  // from RuntimeCore::to_all of the root. Must check the message, which may be malformed.
  virtual void receive(int32_t from, ByteView message) = 0;
  // Returns the time of the next call of on_alarm; max if never. The runtime core reads the time at each step.
  // A service that sets an earlier time outside a step must notify Progress. A service must not wake a rank
  // without pending work.
  virtual Clock::time_point alarm() const { return Clock::time_point::max(); }
  virtual void on_alarm(Clock::time_point) {}
  // The runtime core calls on_end once, when the job is over for this rank. No further message follows.
  virtual void on_end(const Status& why) { static_cast<void>(why); }
};

// The functions of the runtime core and of the progress engine that a service uses. Class Observation sets them.
struct ServiceLinks {
  std::function<void(ByteView)> to_root;
  std::function<void(ByteView)> to_all;
  // Queues a function, which runs with the progress lock held. Any thread.
  std::function<void(std::function<void()>)> post;
};

// The pending question of a user's thread. A service writes the answer with the progress lock held;
// the thread reads it once `done` is true (acquire).
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

// Identifies a question: the rank that asked, and a number that this rank chose.
struct Ask {
  int32_t rank = 0;
  uint32_t ticket = 0;
  static auto fields(auto& ask) { return std::tie(ask.rank, ask.ticket); }
};

}  // namespace hvd::runtime
