// The bytes of an agent's link: what is read and what it means, what is written, when it is lost.
#include <array>
#include <chrono>

#include "base/clock.h"
#include "base/log/log.h"
#include "base/text.h"
#include "launcher/link/agent_link_impl.h"

namespace hvd::launcher {

namespace {

constexpr size_t kBatch = 64 << 10;
// Pings in a lease. As many unanswered ones in a row mean that the host is gone: counted, not
// timed, so that a launcher that was stopped itself does not blame the agent.
constexpr int kPingsInLease = 3;

}  // namespace

void AgentLink::Impl::put(const Message& message) {
  put(net::FrameType::kControl, 0, 0, encode(message), net::Urgency::kControl);
}

void AgentLink::Impl::put(net::FrameType type, uint32_t stream, uint32_t credit, ByteView payload,
                          net::Urgency urgency) {
  if (is_closed_ || !lost_.ok()) return;
  net::FrameHeader header;
  header.type = type;
  if (is_addressed_) {
    header.job = job_.job;
    header.generation = job_.generation;
    header.host = job_.host;
  }
  header.stream = stream;
  header.credit = credit;
  writer_.put(header, payload, urgency);
  outgoing_.notify();
}

net::Task<void> AgentLink::Impl::write_link() {
  const auto self = shared_from_this();
  while (!is_closed_ && lost_.ok()) {
    if (writer_.empty()) {
      co_await outgoing_.wait();
      continue;
    }
    const Bytes batch = writer_.take(kBatch);
    const Status status = co_await duplex_->write(batch);
    // What the agent said last may still be on its way, and says more than a broken pipe.
    if (!status.ok()) co_return;
  }
}

net::Task<void> AgentLink::Impl::read_link() {
  const auto self = shared_from_this();
  std::array<std::byte, kBatch> buffer;
  for (;;) {
    const auto size = co_await duplex_->read_some(buffer);
    if (is_closed_) co_return;
    if (!size.ok()) {
      lose(size.error());
      co_return;
    }
    if (*size == 0) {
      lose(unavailable("the agent's end of the link was closed"));
      co_return;
    }
    unanswered_ = 0;
    parser_.feed(ByteView(buffer).first(*size));
    for (;;) {
      auto frame = parser_.next();
      Status status = frame.status();
      if (status.ok() && !frame->has_value()) break;
      if (status.ok()) status = handle(**frame);
      if (is_closed_) co_return;
      if (!status.ok()) {
        lose(status);
        co_return;
      }
    }
  }
}

net::Task<void> AgentLink::Impl::ping() {
  const auto self = shared_from_this();
  const auto interval = std::chrono::duration_cast<Clock::duration>(
      std::chrono::duration<double>(job_.lease_seconds / kPingsInLease));
  while (!is_closed_ && !is_finished_ && lost_.ok()) {
    ping_timer_.expires_after(interval);
    const auto [error] = co_await ping_timer_.async_wait(net::use_tuple);
    // Suspended: the whole interval again, also when this ping was just due.
    const bool is_held_back = std::exchange(hold_ping_back_, false);
    if (error || is_held_back) continue;
    if (unanswered_ >= kPingsInLease) {
      lose(deadline_exceeded(cat("the host gave no sign of life for ", job_.lease_seconds, " s")));
      break;
    }
    ++unanswered_;
    put(Ping{++pings_});
  }
}

Status AgentLink::Impl::handle(const net::Frame& frame) {
  const net::FrameHeader& header = frame.header;
  if (header.type == net::FrameType::kControl) {
    auto message = decode(frame.payload);
    if (!message.ok()) return message.status();
    return obey(std::move(*message));
  }
  if (!hello_) return internal_error("the agent sent something before its hello");
  if (header.stream >= kFirstStoreStream) return stores_->handle(header, frame.payload);
  return handle_output(header, frame.payload);
}

Status AgentLink::Impl::obey(Message message) {
  if (auto* hello = std::get_if<AgentHello>(&message)) {
    hello_ = std::move(*hello);
  } else if (auto* prepared = std::get_if<Prepared>(&message)) {
    prepared_ = prepared->status;
    candidates_ = std::move(prepared->candidates);
    versions_ = std::move(prepared->versions);
    threads_ = prepared->threads;
  } else if (auto* staged = std::get_if<Staged>(&message)) {
    staged_ = std::move(*staged);
  } else if (auto* tested = std::get_if<ReachabilityTested>(&message)) {
    reached_ = std::move(tested->reached);
  } else if (const auto* started = std::get_if<Started>(&message)) {
    started_ = started->status;
  } else if (std::holds_alternative<Suspended>(message)) {
    is_suspended_ = true;
  } else if (const auto* exited = std::get_if<Exited>(&message)) {
    events_->on_exit(exited->exit);
  } else if (const auto* joined = std::get_if<Joined>(&message)) {
    events_->on_joined(joined->rank, joined->world_rank, joined->world_size);
  } else if (const auto* taken = std::get_if<InputTaken>(&message)) {
    events_->on_input_taken(taken->rank, taken->size);
  } else if (const auto* inspected = std::get_if<Inspected>(&message)) {
    events_->on_inspected(inspected->number, inspected->text);
  } else if (const auto* said = std::get_if<Said>(&message)) {
    events_->on_said(*said);
  } else if (const auto* ran = std::get_if<Ran>(&message)) {
    events_->on_ran(*ran);
  } else if (const auto* ending = std::get_if<Ending>(&message)) {
    events_->on_ending(ending->sentence);
  } else if (const auto* signalled = std::get_if<Signalled>(&message)) {
    events_->on_signalled(signalled->number);
  } else if (const auto* failed = std::get_if<Failed>(&message)) {
    return unavailable(failed->sentence);
  } else if (const auto* finished = std::get_if<Finished>(&message)) {
    if (!finished->left_behind.empty()) {
      log::warning(cat("host ", job_.host_name, ": ", printable(finished->left_behind)));
    }
    is_finished_ = true;
    ping_timer_.cancel();
    if (!started_ || started_->ok()) events_->on_finished();  // else start() says why it ended
  } else if (!std::holds_alternative<Pong>(message)) {
    return internal_error("the agent sent a message that only a launcher sends");
  }
  answered_.notify();
  return {};
}

Status AgentLink::Impl::handle_output(const net::FrameHeader& header, ByteView payload) {
  const auto found = outputs_.find(header.stream);
  if (found == outputs_.end()) {
    return internal_error(cat("the agent speaks of the unknown stream ", header.stream));
  }
  Output& output = found->second;
  if (header.type == net::FrameType::kData) {
    if (!output.window.arrived(payload.size())) {
      return internal_error(
          cat("the agent sent more of rank ", output.rank, "'s output than was granted"));
    }
    events_->on_output(output.rank, output.stream, payload);
  } else if (header.type == net::FrameType::kEnd) {
    events_->on_output_end(output.rank, output.stream);
  } else {
    return internal_error("the agent sent a frame that does not belong to output");
  }
  return {};
}

std::string AgentLink::Impl::last_words() const {
  const std::string words(trim(duplex_->last_words()));
  return words.empty() ? "" : cat(" (", printable(words), ")");
}

void AgentLink::Impl::lose(Status why) {
  if (is_closed_ || !lost_.ok()) return;
  const bool is_expected = is_finished_;
  lost_ = Status(why.code(), why.message() + last_words());
  shut();
  if (!is_expected && !is_start_awaited_) events_->on_lost(lost_);
}

void AgentLink::Impl::close() {
  if (is_closed_) return;
  is_closed_ = true;
  shut();
}

void AgentLink::Impl::shut() {
  duplex_->close();
  ping_timer_.cancel();
  answered_.notify();
  outgoing_.notify();
  stores_->close();
}

}  // namespace hvd::launcher
