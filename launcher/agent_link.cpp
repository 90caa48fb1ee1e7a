#include "launcher/agent_link.h"

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <utility>

#include "base/clock.h"
#include "base/log.h"
#include "base/text.h"
#include "launcher/agent/bell.h"
#include "launcher/agent/protocol.h"
#include "launcher/agent/store_streams.h"
#include "net/frame.h"

namespace hvd::launcher {

namespace {

namespace asio = net::asio;

// What a rank may write ahead of its reader; of a whole host, times twice its ranks.
constexpr uint32_t kOutputWindow = 256 << 10;
constexpr size_t kBatch = 64 << 10;
// Pings in a lease. As many unanswered ones in a row mean that the host is gone: counted, not
// timed, so that a launcher that was stopped itself does not blame the agent.
constexpr int kPingsInLease = 3;
constexpr auto kSuspendPatience = std::chrono::seconds(2);

}  // namespace

class AgentLink::Impl : public std::enable_shared_from_this<Impl> {
 public:
  Impl(asio::any_io_executor executor, std::unique_ptr<Duplex> duplex, AgentEvents& events)
      : executor_(std::move(executor)),
        duplex_(std::move(duplex)),
        events_(&events),
        answered_(executor_),
        outgoing_(executor_),
        ping_timer_(executor_),
        stores_(std::make_shared<StoreStreams>(
            executor_,
            [this](net::FrameType type, uint32_t stream, uint32_t credit, ByteView payload) {
              put(type, stream, credit, payload, net::Urgency::kStore);
            },
            [this](net::StreamSocket socket) {
              events_->on_store_connection(std::move(socket));
            })) {}

  net::Task<Status> prepare(HostJob job);
  net::Task<Status> start();
  net::Task<Status> suspend();
  void put(const Message& message);
  void consumed(int rank, OutputStream stream, size_t size);
  void close();

 private:
  struct Output {
    int rank;
    OutputStream stream;
    net::Window window{kOutputWindow};
  };

  // Runs a coroutine of this object, which lives at least as long.
  void spawn(net::Task<void> (Impl::*body)());
  net::Task<void> read_link();
  net::Task<void> write_link();
  net::Task<void> ping();
  // Until `is_there` or the link is gone; then its failure.
  template <typename Claim>
  net::Task<Status> wait_for(Claim is_there);

  void put(net::FrameType type, uint32_t stream, uint32_t credit, ByteView payload,
           net::Urgency urgency);
  Status handle(const net::Frame& frame);
  Status handle_output(const net::FrameHeader& header, ByteView payload);
  Status obey(Message message);
  void lose(Status why);
  void shut();
  std::string last_words() const;

  asio::any_io_executor executor_;
  std::unique_ptr<Duplex> duplex_;
  AgentEvents* events_;
  Bell answered_, outgoing_;
  asio::steady_timer ping_timer_;
  net::FrameWriter writer_;
  net::FrameParser parser_;
  HostJob job_;
  std::map<uint32_t, Output> outputs_;
  std::map<int, size_t> index_of_rank_;
  const std::shared_ptr<StoreStreams> stores_;

  bool is_running_ = false;   // the coroutines are
  bool is_addressed_ = false; // frames carry the job
  std::optional<Greeting> greeting_;
  std::optional<Status> prepared_, started_;
  bool is_waited_for_ = false;  // prepare or start will report a loss
  bool is_suspended_ = false;
  bool hold_ping_back_ = false;
  bool is_finished_ = false;
  bool is_closed_ = false;
  Status lost_;
  int unanswered_ = 0;  // pings
  uint64_t pings_ = 0;
};

void AgentLink::Impl::spawn(net::Task<void> (Impl::*body)()) {
  asio::co_spawn(executor_, (this->*body)(),
                 [self = shared_from_this()](const std::exception_ptr& error) {
                   if (error) self->lose(internal_error("the link to the agent failed"));
                 });
}

template <typename Claim>
net::Task<Status> AgentLink::Impl::wait_for(Claim is_there) {
  while (!is_there()) {
    if (is_closed_) co_return aborted("the link to the agent was closed");
    if (!lost_.ok()) co_return lost_;
    co_await answered_.wait();
    const auto state = co_await asio::this_coro::cancellation_state;
    if (state.cancelled() != asio::cancellation_type::none) {
      co_return aborted("waiting for the agent was given up");
    }
  }
  co_return Status();
}

net::Task<Status> AgentLink::Impl::prepare(HostJob job) {
  const auto self = shared_from_this();
  if (is_running_) co_return failed_precondition("the agent has already been prepared");
  job_ = std::move(job);
  for (size_t i = 0; i < job_.ranks.size(); ++i) {
    index_of_rank_[job_.ranks[i].rank] = i;
    for (const OutputStream stream : {OutputStream::kStdout, OutputStream::kStderr}) {
      outputs_.emplace(output_stream(i, stream), Output{job_.ranks[i].rank, stream});
    }
  }
  is_running_ = true;
  is_waited_for_ = true;
  spawn(&Impl::read_link);
  spawn(&Impl::write_link);
  Status status = co_await wait_for([this] { return greeting_.has_value(); });
  if (status.ok()) {
    is_addressed_ = true;
    put(Prepare{job_, kOutputWindow, kStoreWindow});
    if (job_.lease_seconds > 0) spawn(&Impl::ping);
    status = co_await wait_for([this] { return prepared_.has_value(); });
  }
  is_waited_for_ = false;
  if (status.ok()) status = *prepared_;
  co_return status;
}

net::Task<Status> AgentLink::Impl::start() {
  const auto self = shared_from_this();
  is_waited_for_ = true;
  put(Start{});
  Status status = co_await wait_for([this] { return started_.has_value(); });
  is_waited_for_ = false;
  if (status.ok()) status = *started_;
  co_return status;
}

net::Task<Status> AgentLink::Impl::suspend() {
  const auto self = shared_from_this();
  is_suspended_ = false;
  put(Suspend{});
  // The next ping ends the suspension: it must not come before the launcher has been stopped.
  hold_ping_back_ = true;
  ping_timer_.cancel();
  asio::steady_timer patience(executor_, kSuspendPatience);
  const auto is_too_late = std::make_shared<bool>(false);
  patience.async_wait([self, is_too_late](const net::error_code& error) {
    if (error) return;
    *is_too_late = true;
    self->answered_.ring();
  });
  Status status = co_await wait_for([&] { return is_suspended_ || *is_too_late; });
  patience.cancel();
  if (status.ok() && !is_suspended_) {
    status = deadline_exceeded("the agent did not acknowledge that the launcher is being stopped");
  }
  co_return status;
}

void AgentLink::Impl::consumed(int rank, OutputStream stream, size_t size) {
  const auto index = index_of_rank_.find(rank);
  if (index == index_of_rank_.end() || is_closed_) return;
  const uint32_t id = output_stream(index->second, stream);
  const uint32_t credit = outputs_.at(id).window.consumed(size);
  if (credit > 0) put(net::FrameType::kCredit, id, credit, {}, net::Urgency::kControl);
}

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
  outgoing_.ring();
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
  if (!greeting_) return internal_error("the agent sent something before its greeting");
  if (header.stream >= kFirstStoreStream) return stores_->handle(header, frame.payload);
  return handle_output(header, frame.payload);
}

Status AgentLink::Impl::obey(Message message) {
  if (auto* greeting = std::get_if<Greeting>(&message)) {
    greeting_ = std::move(*greeting);
  } else if (const auto* prepared = std::get_if<Prepared>(&message)) {
    prepared_ = prepared->status;
  } else if (const auto* started = std::get_if<Started>(&message)) {
    started_ = started->status;
  } else if (std::holds_alternative<Suspended>(message)) {
    is_suspended_ = true;
  } else if (const auto* exited = std::get_if<Exited>(&message)) {
    events_->on_exit(exited->exit);
  } else if (const auto* failed = std::get_if<Failed>(&message)) {
    return unavailable(failed->sentence);
  } else if (const auto* finished = std::get_if<Finished>(&message)) {
    if (!finished->left_behind.empty()) {
      log::warning(cat("host ", job_.host_name, ": ", printable(finished->left_behind)));
    }
    is_finished_ = true;
    ping_timer_.cancel();
    events_->on_finished();
  } else if (!std::holds_alternative<Pong>(message)) {
    return internal_error("the agent sent a message that only a launcher sends");
  }
  answered_.ring();
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
      return internal_error(cat("the agent sent more of rank ", output.rank,
                                "'s output than was granted"));
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
  if (!is_expected && !is_waited_for_) events_->on_lost(lost_);
}

void AgentLink::Impl::close() {
  if (is_closed_) return;
  is_closed_ = true;
  shut();
}

void AgentLink::Impl::shut() {
  duplex_->close();
  ping_timer_.cancel();
  answered_.ring();
  outgoing_.ring();
  stores_->close();
}

AgentLink::AgentLink(net::asio::any_io_executor executor, std::unique_ptr<Duplex> duplex,
                     AgentEvents& events)
    : impl_(std::make_shared<Impl>(std::move(executor), std::move(duplex), events)) {}

AgentLink::~AgentLink() { impl_->close(); }

net::Task<Status> AgentLink::prepare(const HostJob& job) { return impl_->prepare(job); }
net::Task<Status> AgentLink::start() { return impl_->start(); }
void AgentLink::signal(int number) { impl_->put(Signal{number}); }
void AgentLink::end(double grace_seconds) { impl_->put(End{grace_seconds}); }
void AgentLink::consumed(int rank, OutputStream stream, size_t size) {
  impl_->consumed(rank, stream, size);
}
net::Task<Status> AgentLink::suspend() { return impl_->suspend(); }
void AgentLink::close() { impl_->close(); }

}  // namespace hvd::launcher
