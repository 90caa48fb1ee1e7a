#include "launcher/link/agent_link.h"

#include <utility>

#include "base/text.h"
#include "launcher/link/agent_link_impl.h"

namespace hvd::launcher {

namespace {

constexpr uint64_t kStageWindow = 256 << 10;
constexpr auto kSuspendLimit = std::chrono::seconds(2);

}  // namespace

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

// As far ahead as a slow host may make it wait.
net::Task<Status> AgentLink::Impl::stage(const NextPart& next) {
  uint64_t sent = 0;
  for (;;) {
    const Status status = co_await wait_for(
        [&] { return !staged_.status.ok() || sent < staged_.taken + kStageWindow; });
    if (!status.ok()) co_return status;
    if (!staged_.status.ok()) break;
    const auto part = next();
    if (!part.ok()) co_return part.status();
    if (!*part) break;
    put(**part);
    sent += (*part)->path.size() + (*part)->bytes.size();
  }
  const Status status =
      co_await wait_for([&] { return !staged_.status.ok() || staged_.taken == sent; });
  co_return status.ok() ? staged_.status.with_context("--stage") : status;
}

net::Task<Status> AgentLink::Impl::prepare(HostJob job, NextPart code) {
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
  is_start_awaited_ = true;
  spawn(&Impl::read_link);
  spawn(&Impl::write_link);
  Status status = co_await wait_for([this] { return hello_.has_value(); });
  if (status.ok() && code) status = co_await stage(code);
  if (status.ok()) {
    is_addressed_ = true;
    put(Prepare{job_, kOutputWindow, kStoreWindow});
    if (job_.lease_seconds > 0) spawn(&Impl::ping);
    status = co_await wait_for([this] { return prepared_.has_value(); });
  }
  if (status.ok()) status = *prepared_;
  co_return status;
}

net::Task<Reached> AgentLink::Impl::test_reachability(MasterCandidates candidates) {
  const auto self = shared_from_this();
  reached_.reset();
  put(TestReachability{std::move(candidates)});
  const Status status = co_await wait_for([this] { return reached_.has_value(); });
  co_return status.ok() ? *reached_ : Reached{};
}

net::Task<Status> AgentLink::Impl::start(StartOrder order) {
  const auto self = shared_from_this();
  put(Start{std::move(order)});
  Status status = co_await wait_for([this] { return started_.has_value(); });
  is_start_awaited_ = false;
  if (status.ok()) status = *started_;
  // Lost right behind the answer, before this could go on.
  if (status.ok() && !is_finished_) status = lost_;
  co_return status;
}

net::Task<Status> AgentLink::Impl::suspend() {
  const auto self = shared_from_this();
  is_suspended_ = false;
  put(Suspend{});
  // The next ping ends the suspension: it must not come before the launcher has been stopped.
  hold_ping_back_ = true;
  ping_timer_.cancel();
  asio::steady_timer limit(executor_, kSuspendLimit);
  const auto is_too_late = std::make_shared<bool>(false);
  limit.async_wait([self, is_too_late](const net::error_code& error) {
    if (error) return;
    *is_too_late = true;
    self->answered_.notify();
  });
  Status status = co_await wait_for([&] { return is_suspended_ || *is_too_late; });
  limit.cancel();
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

AgentLink::AgentLink(net::asio::any_io_executor executor, std::unique_ptr<Duplex> duplex,
                     AgentEvents& events)
    : impl_(std::make_shared<Impl>(std::move(executor), std::move(duplex), events)) {}

AgentLink::~AgentLink() { impl_->close(); }

net::Task<Status> AgentLink::prepare(const HostJob& job, NextPart code) {
  return impl_->prepare(job, std::move(code));
}
Status AgentLink::state() const { return impl_->state(); }
const MasterCandidates& AgentLink::candidates() const { return impl_->candidates(); }
const std::vector<std::pair<std::string, std::string>>& AgentLink::versions() const {
  return impl_->versions();
}
uint32_t AgentLink::threads() const { return impl_->threads(); }
net::Task<Reached> AgentLink::test_reachability(const MasterCandidates& candidates) {
  return impl_->test_reachability(candidates);
}
net::Task<Status> AgentLink::start(const StartOrder& order) { return impl_->start(order); }
void AgentLink::signal(int number) { impl_->put(Signal{number}); }
void AgentLink::end(double grace_seconds, int signal) { impl_->put(End{grace_seconds, signal}); }
void AgentLink::consumed(int rank, OutputStream stream, size_t size) {
  impl_->consumed(rank, stream, size);
}
void AgentLink::inspect(uint32_t number, bool with_stacks) {
  impl_->put(Inspect{number, static_cast<uint8_t>(with_stacks)});
}
void AgentLink::pass(const Message& order) { impl_->put(order); }
void AgentLink::give_input(int rank, ByteView bytes) {
  impl_->put(Input{rank, std::string(as_text(bytes))});
}
net::Task<Status> AgentLink::suspend() { return impl_->suspend(); }
void AgentLink::close() { impl_->close(); }

}  // namespace hvd::launcher
