#include "launcher/link/frame_channel.h"

#include <time.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>

#include "base/text.h"

namespace hvd::launcher {
namespace {

constexpr size_t kBatch = 64 << 10;

constexpr double kLongestInterval = 1;
// Minimum number of pings within a time limit, so that one late answer loses no host.
constexpr int kFewestPings = 3;

double boot_seconds() {
  timespec time{};
  ::clock_gettime(CLOCK_BOOTTIME, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

}  // namespace

void FrameChannel::put(net::FrameType type, uint32_t stream, uint32_t credit, ByteView payload,
                       net::Urgency urgency) {
  if (is_closed_) return;
  net::FrameHeader header;
  header.type = type;
  if (job_) {
    header.job = job_->job;
    header.generation = job_->generation;
    header.host = job_->host;
  }
  header.stream = stream;
  header.credit = credit;
  writer_.put(header, payload, urgency);
  outgoing_.notify();
}

net::Task<void> FrameChannel::write() {
  while (!is_closed_) {
    if (writer_.empty()) {
      co_await outgoing_.wait();
      continue;
    }
    const Bytes batch = writer_.take(kBatch);
    const Status status = co_await duplex_->write(batch);
    // read() reports the error: the agent's last frames may still arrive, and may contain the cause.
    if (!status.ok()) co_return;
  }
}

net::Task<Status> FrameChannel::read(OnBytes on_bytes, OnFrame on_frame) {
  std::array<std::byte, kBatch> buffer;
  for (;;) {
    const auto size = co_await duplex_->read_some(buffer);
    if (is_closed_) co_return Status();
    if (!size.ok()) co_return size.error();
    if (*size == 0) co_return unavailable("the agent's end of the link was closed");
    on_bytes();
    parser_.feed(ByteView(buffer).first(*size));
    for (;;) {
      auto frame = parser_.next();
      Status status = frame.status();
      if (status.ok() && !frame->has_value()) break;
      if (status.ok()) status = on_frame(**frame);
      if (is_closed_) co_return Status();
      if (!status.ok()) co_return status;
    }
  }
}

void FrameChannel::close() {
  is_closed_ = true;
  duplex_->close();
  outgoing_.notify();
}

std::string FrameChannel::last_words() const {
  const std::string words(trim(duplex_->last_words()));
  return words.empty() ? "" : cat(" (", printable(words), ")");
}

double LeasePings::late_seconds() const {
  return next_seconds_ > 0 ? boot_seconds() - next_seconds_ : 0;
}

double LeasePings::standstill_seconds() const {
  return std::max(standstill_seconds_, late_seconds());
}

net::Task<Status> LeasePings::run(double host_timeout_seconds, double lease_seconds) {
  const double shortest =
      lease_seconds > 0 ? std::min(lease_seconds, host_timeout_seconds) : host_timeout_seconds;
  const double interval = std::min(kLongestInterval, shortest / kFewestPings);
  const auto between = duration_of(interval);
  // Count pings, not time: a stop of the launcher itself must not look like a silent agent.
  const int most = static_cast<int>(std::lround(std::ceil(host_timeout_seconds / interval)));
  while (!is_stopped_) {
    const Clock::duration wait = std::exchange(held_back_, {}).value_or(between);
    timer_.expires_after(wait);
    next_seconds_ = boot_seconds() + std::chrono::duration<double>(wait).count();
    const auto [error] = co_await timer_.async_wait(net::use_tuple);
    standstill_seconds_ = late_seconds();
    // After hold_back(), wait for the whole time, even if this ping was due.
    if (error || held_back_) continue;
    if (unanswered_ >= most) {
      co_return deadline_exceeded(cat("the host did not answer for ", host_timeout_seconds, " s"));
    }
    silence_seconds_ = unanswered_ * interval;
    if (unanswered_ > 0) callbacks_.on_silence(silence_seconds_);
    if (is_stopped_) break;
    ++unanswered_;
    callbacks_.send(++sent_);
  }
  co_return Status();
}

void LeasePings::on_received() {
  silence_seconds_ = 0;
  if (std::exchange(unanswered_, 0) > 0) callbacks_.on_answer();
}

void LeasePings::hold_back(Clock::duration time) {
  held_back_ = time;
  timer_.cancel();
}

void LeasePings::stop() {
  is_stopped_ = true;
  timer_.cancel();
}

}  // namespace hvd::launcher
