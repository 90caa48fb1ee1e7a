#include "launcher/observe/loop_watch.h"

#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <system_error>
#include <thread>
#include <utility>

#include "base/clock.h"
#include "base/log/log.h"
#include "base/mutex.h"
#include "base/process/signals.h"
#include "base/text.h"
#include "launcher/observe/parts.h"
#include "launcher/output/report.h"

namespace hvd::launcher {
namespace {

// The loop misses a turn if it does not run a posted function in time. SIGSTOP followed by SIGCONT causes only one
// missed turn, because this thread stops too.
constexpr int kTurnsInLease = 6;
constexpr int kMissedTurns = 4;

}  // namespace

struct LoopWatch::State {
  State(net::asio::any_io_executor loop, double lease_seconds,
        std::function<void(const std::string&)> report)
      : loop(std::move(loop)), lease_seconds(lease_seconds), report(std::move(report)) {}

  const net::asio::any_io_executor loop;
  const double lease_seconds;
  const std::function<void(const std::string&)> report;
  Mutex mutex;
  std::condition_variable changed;
  bool has_turned HVD_GUARDED_BY(mutex) = true;
  bool is_over HVD_GUARDED_BY(mutex) = false;
};

LoopWatch::LoopWatch(net::asio::any_io_executor loop, double lease_seconds,
                     std::function<void(const std::string&)> report)
    : state_(std::make_shared<State>(std::move(loop), lease_seconds, std::move(report))) {
  if (lease_seconds <= 0) return;
  const AllSignalsBlocked blocked;  // so that signals reach the loop's thread
  try {
    // Detached, because the thread may block in a write to standard error.
    std::thread([state = state_] { watch(state); }).detach();
  } catch (const std::system_error& error) {
    log::info(cat("a blocked launcher will not be reported: ", error.what()));
  }
}

LoopWatch::LoopWatch(PartLaunch& launch)
    : LoopWatch(
          launch.executor(), launch.lease_seconds(),
          [area = launch.output().terminal().area_on_terminal()](const std::string& sentence) {
            std::fputs(cat(area->interrupt(), shown_line(sentence)).c_str(), stderr);
          }) {}

LoopWatch::~LoopWatch() {
  const MutexLock lock(state_->mutex);
  state_->is_over = true;
  state_->changed.notify_one();
}

void LoopWatch::watch(const std::shared_ptr<State>& state) {
  const auto turn = duration_of(state->lease_seconds / kTurnsInLease);
  MutexLock lock(state->mutex);
  for (int missed = 0; !state->is_over;) {
    if (std::exchange(state->has_turned, false)) {
      missed = 0;
      net::asio::post(state->loop, [state] {
        const MutexLock turned(state->mutex);
        state->has_turned = true;
      });
    } else if (++missed == kMissedTurns) {
      lock.unlock();
      state->report(cat(
          "the launcher has been blocked for ", state->lease_seconds * kMissedTurns / kTurnsInLease,
          " s; a file system that stalls or a lack of free memory can block it; after ",
          state->lease_seconds, " s (--heartbeat-timeout) the agents end their ranks"));
      lock.lock();
    }
    const auto next = Clock::now() + turn;
    while (!state->is_over &&
           state->changed.wait_until(lock.native(), next) == std::cv_status::no_timeout) {
    }
  }
}

std::shared_ptr<JobPart> loop_watch(PartLaunch& launch) {
  return std::make_shared<LoopWatch>(launch);
}

}  // namespace hvd::launcher
