#include "launcher/agent/link/redialler.h"

#include <algorithm>
#include <memory>
#include <utility>

namespace hvd::launcher {

namespace {

constexpr double kFirstPause = 0.1;
constexpr double kLongestPause = 1;
// If nothing has listened on the port for this long, the launcher has ended.
constexpr std::chrono::seconds kRefused{5};

}  // namespace

void Redialler::begin() {
  refused_since_.reset();
  pause_ = kFirstPause;
  if (!call_.is_running()) dial_at_ = Deadline::after_seconds(0);
}

void Redialler::continue_later() {
  dial_at_ = Deadline::after_seconds(pause_);
  pause_ = std::min(2 * pause_, kLongestPause);
}

void Redialler::stop() {
  call_.abandon();
  dial_at_ = Deadline::never();
}

void Redialler::on_deadline() {
  if (!dial_at_.passed()) return;
  dial_at_ = Deadline::never();
  const auto result = std::make_shared<std::optional<Result<Returned>>>();
  if (!call_.start([result, dial = dial_] { result->emplace(dial()); },
                   [this, result] { on_result(**result); })) {
    continue_later();
  }
}

void Redialler::on_result(Result<Returned>& result) {
  if (result.ok()) return on_dialled_(std::move(result));
  if (result.status().code() != Code::kNotFound) {
    refused_since_.reset();
  } else if (!refused_since_) {
    refused_since_ = Clock::now();
  } else if (Clock::now() - *refused_since_ >= kRefused) {
    return on_dialled_(result.status());
  }
  continue_later();
}

}  // namespace hvd::launcher
