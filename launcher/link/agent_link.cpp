#include "launcher/link/agent_link.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <iterator>

#include "base/log/log.h"
#include "base/text.h"
#include "launcher/protocol/moves.h"
#include "net/frame.h"

namespace hvd::launcher {
namespace {

namespace asio = net::asio;

constexpr uint64_t kStageWindow = 256 << 10;
constexpr uint64_t kEnvironmentWindow = 1 << 20;
constexpr auto kSuspendLimit = std::chrono::seconds(2);
// Longer than kSuspendLimit, the longest time that the launcher waits for its hosts before it stops itself.
constexpr auto kNoPing = kSuspendLimit + std::chrono::seconds(1);

// Ignores the events of an abandoned host, whose ranks no longer matter.
class GivenUpHost : public AgentEvents {
 public:
  using Consumed = std::function<void(int rank, OutputStream stream, size_t size)>;
  GivenUpHost(Consumed consumed, std::function<void()> on_end)
      : consumed_(std::move(consumed)), on_end_(std::move(on_end)) {}
  // Output must be consumed, because an agent sends Finished only after all output of its ranks.
  void on_output(int rank, OutputStream stream, ByteView bytes) override {
    consumed_(rank, stream, bytes.size());
  }
  void on_report(const AgentReport& report) override {
    if (std::holds_alternative<Finished>(report)) on_end_();
  }

 private:
  const Consumed consumed_;
  const std::function<void()> on_end_;
};

}  // namespace

bool may_move(LinkState from, LinkState to) {
  using S = LinkState;
  static constexpr StateSet<S> kPreparation = {S::kPreparing, S::kEnvironment, S::kFiles,
                                               S::kForwarded};
  if (to == S::kClosed) return true;
  if (to == S::kFinished || to == S::kLost) return from > S::kNew && from < S::kFinished;
  static constexpr Move<S> kMoves[] = {
      {{S::kNew}, S::kHandshake},         {{S::kHandshake}, S::kPreparing},
      {{S::kPreparing}, S::kEnvironment}, {{S::kEnvironment, S::kForwarded}, S::kFiles},
      {{S::kFiles}, S::kForwarded},       {kPreparation, S::kPackage},
      {kPreparation, S::kPrepared},       {{S::kPackage}, S::kPrepared},
      {{S::kPrepared}, S::kHeld},         {{S::kPrepared, S::kHeld}, S::kStarting},
      {{S::kStarting}, S::kStarted},      {{S::kStarting}, S::kFailed},
      {{S::kStarted}, S::kRunning},       {{S::kFinished}, S::kEnded},
  };
  return is_legal(kMoves, from, to);
}

std::string_view to_string(LinkState state) {
  constexpr std::string_view kNames[] = {
      "new",     "handshake", "preparing", "environment", "files",   "forwarded",
      "package", "prepared",  "held",      "starting",    "started", "failed",
      "running", "finished",  "ended",     "lost",        "closed"};
  static_assert(std::size(kNames) == static_cast<size_t>(LinkState::kClosed) + 1);
  return kNames[static_cast<size_t>(state)];
}

AgentLink::AgentLink(asio::any_io_executor executor, std::unique_ptr<Duplex> duplex,
                     AgentEvents& events)
    : executor_(std::move(executor)),
      frames_(executor_, std::move(duplex)),
      events_(&events),
      answered_(executor_),
      pings_(executor_, {.send = [this](uint64_t number) { send(Ping{number}); },
                         .on_silence =
                             [this](double seconds) {
                               frames_.on_silence(seconds);
                               events_->on_silence(seconds);
                             },
                         .on_answer = [this] { events_->on_answer(); }}),
      outputs_(events),
      stores_(std::make_shared<StoreStreams>(
          executor_,
          [this](net::FrameType type, uint32_t stream, uint32_t credit, ByteView payload) {
            frames_.put(type, stream, credit, payload, net::Urgency::kStore);
          },
          [this](net::StreamSocket socket) { events_->on_store_connection(std::move(socket)); })) {}

std::shared_ptr<AgentLink> AgentLink::open(asio::any_io_executor executor,
                                           std::unique_ptr<Duplex> duplex, AgentEvents& events) {
  auto link = std::make_shared<AgentLink>(std::move(executor), std::move(duplex), events);
  return {link.get(), [link](AgentLink*) { link->close(); }};
}

void AgentLink::to(LinkState next) {
  if (!may_move(state_, next))
    refuse_move(cat("the link to host ", job_.host_name), to_string(state_), to_string(next));
  state_ = next;
}

Status AgentLink::arrive(LinkState next) {
  if (!may_move(state_, next)) {
    return internal_error(cat("the agent's message moves the link from ", to_string(state_), " to ",
                              to_string(next)));
  }
  state_ = next;
  return {};
}

void AgentLink::spawn(net::Task<void> (AgentLink::*body)()) {
  asio::co_spawn(executor_, (this->*body)(),
                 [self = shared_from_this()](const std::exception_ptr& error) {
                   if (error) self->lose(internal_error("the link to the agent failed"));
                 });
}

template <typename Claim>
net::Task<Status> AgentLink::wait_for(Claim is_there) {
  while (!is_there()) {
    if (state_ == LinkState::kClosed) co_return aborted("the link to the agent was closed");
    if (!loss_.ok()) co_return loss_;
    co_await answered_.wait();
    const auto state = co_await asio::this_coro::cancellation_state;
    if (state.cancelled() != asio::cancellation_type::none) {
      co_return aborted("the wait for the agent was cancelled");
    }
  }
  co_return Status();
}

net::Task<Status> AgentLink::leave(LinkState state) {
  return wait_for([this, state] { return state_ != state && state_ <= LinkState::kPrepared; });
}

net::Task<Status> AgentLink::stage(const NextPart& next, std::string_view what, uint64_t window) {
  uint64_t sent = 0;
  staged_ = {};
  for (;;) {
    const Status status =
        co_await wait_for([&] { return !staged_.status.ok() || sent < staged_.taken + window; });
    if (!status.ok()) co_return status;
    if (!staged_.status.ok()) break;
    if (staged_.taken > sent) co_return internal_error("the agent has taken more than was sent");
    const auto part = next();
    if (!part.ok()) co_return part.status();
    if (!*part) break;
    send(**part);
    sent += (*part)->path.size() + (*part)->bytes.size();
  }
  const Status status =
      co_await wait_for([&] { return !staged_.status.ok() || staged_.taken == sent; });
  co_return status.ok() ? staged_.status.with_context(std::string(what)) : status;
}

net::Task<Status> AgentLink::send_package(PackageParts package, std::string_view what) {
  if (!package) co_return failed_precondition("the agent wants a package that was not offered");
  const auto next = co_await package();
  if (!next.ok()) co_return next.status();
  co_return co_await stage(*next, what, kStageWindow);
}

void AgentLink::offer_stack_tool(const StackToolOffer& offer, PackageParts parts) {
  stack_tool_ = std::move(parts);
  send(offer);
}

net::Task<void> AgentLink::send_stack_tool() {
  const auto self = shared_from_this();
  const Status status =
      co_await send_package(std::exchange(stack_tool_, nullptr), "sending py-spy");
  if (!status.ok()) log::info(cat("host ", job_.host_name, ": ", status.message()));
}

// Sends the address of the host that forwards the files, then the files that the agent does not get from that host.
net::Task<Status> AgentLink::send_environment(Environment environment) {
  if (!environment) {
    co_return failed_precondition("the agent wants an environment that the job lacks");
  }
  const auto feed = co_await environment(std::get<EnvironmentWanted>(wanted_));
  if (!feed.ok()) co_return feed.status();
  send((*feed)->offer());
  Status status = co_await leave(LinkState::kEnvironment);
  if (!status.ok() || state_ != LinkState::kFiles) co_return status;
  const EnvironmentSource source = (*feed)->join(std::get<EnvironmentFilesWanted>(wanted_).server);
  const bool is_forwarded = source.server.port != 0;
  if (is_forwarded) to(LinkState::kForwarded);
  send(source);
  uint64_t first = 0;
  if (is_forwarded) {
    status = co_await leave(LinkState::kForwarded);
    if (!status.ok() || state_ != LinkState::kFiles) co_return status;
    const auto& wanted = std::get<EnvironmentFilesWanted>(wanted_);
    (*feed)->on_detour(wanted.why);
    first = wanted.first;
  }
  status = co_await stage((*feed)->parts(first), "--stage-env", kEnvironmentWindow);
  if (status.ok()) status = co_await leave(LinkState::kFiles);
  co_return status;
}

net::Task<Status> AgentLink::prepare(HostJob job, NextPart code, PackageParts package,
                                     Environment environment) {
  const auto self = shared_from_this();
  if (state_ != LinkState::kNew) {
    co_return failed_precondition("the agent has already been prepared");
  }
  to(LinkState::kHandshake);
  job_ = std::move(job);
  outputs_.open(job_.ranks);
  spawn(&AgentLink::read_link);
  spawn(&AgentLink::write_link);
  Status status = co_await leave(LinkState::kHandshake);
  if (status.ok() && code) status = co_await stage(code, "--stage", kStageWindow);
  if (status.ok()) {
    frames_.address(job_);
    send(Prepare{job_, kOutputWindow, kStoreWindow});
    if (job_.lease_seconds > 0 || job_.host_timeout_seconds > 0) spawn(&AgentLink::ping);
    status = co_await leave(LinkState::kPreparing);
  }
  if (status.ok() && state_ == LinkState::kEnvironment) {
    status = co_await send_environment(std::move(environment));
  }
  if (status.ok() && state_ == LinkState::kPackage) {
    status = co_await send_package(std::move(package), "sending the package horovod");
    if (status.ok()) status = co_await leave(LinkState::kPackage);
  }
  if (status.ok() && state_ != LinkState::kPrepared) {
    status = internal_error("the agent left out a step of its preparation");
  }
  co_return status.ok() ? prepared_.status : status;
}

std::string AgentLink::version_of(std::string_view name) const {
  const auto found =
      std::ranges::find(prepared_.versions, name, &std::pair<std::string, std::string>::first);
  return found == prepared_.versions.end() ? "" : found->second;
}

net::Task<Reached> AgentLink::test_reachability(MasterCandidates candidates) {
  const auto self = shared_from_this();
  reached_.reset();
  send(TestReachability{std::move(candidates)});
  const Status status = co_await wait_for([this] { return reached_.has_value(); });
  co_return status.ok() ? *reached_ : Reached{};
}

Status AgentLink::hold() {
  if (state_ == LinkState::kPrepared) to(LinkState::kHeld);
  return loss_;
}

net::Task<Status> AgentLink::start(StartOrder order) {
  const auto self = shared_from_this();
  if (may_move(state_, LinkState::kStarting)) to(LinkState::kStarting);
  send(Start{std::move(order)});
  Status status = co_await wait_for([this] { return started_.has_value(); });
  if (status.ok()) status = *started_;
  // The link may have been lost after the answer.
  if (status.ok() && (state_ == LinkState::kLost || state_ == LinkState::kClosed)) status = loss_;
  if (state_ == LinkState::kStarted) to(LinkState::kRunning);
  co_return status;
}

net::Task<Status> AgentLink::suspend() {
  const auto self = shared_from_this();
  is_suspended_ = false;
  send(Suspend{});
  // The next ping ends the suspension, so it must not precede the stop of the launcher.
  pings_.hold_back(kNoPing);
  asio::steady_timer limit(executor_, kSuspendLimit);
  limit.async_wait([self](const net::error_code&) { self->answered_.notify(); });
  Status status =
      co_await wait_for([&] { return is_suspended_ || limit.expiry() <= Clock::now(); });
  limit.cancel();
  if (status.ok() && !is_suspended_) {
    status = deadline_exceeded("the agent did not acknowledge that the launcher is being stopped");
  }
  co_return status;
}

net::Task<void> AgentLink::wait_for_end() {
  const auto self = shared_from_this();
  if (state_ == LinkState::kFinished) static_cast<void>(co_await wait_for([] { return false; }));
}

void AgentLink::give_up(std::function<void()> on_end) {
  if (state_ >= LinkState::kEnded) return;
  given_up_ = std::make_unique<GivenUpHost>(
      [this](int rank, OutputStream stream, size_t size) { consumed(rank, stream, size); },
      std::move(on_end));
  events_ = given_up_.get();
  outputs_.redirect(*given_up_);
  stores_->close();
  send(End{});
}

void AgentLink::consumed(int rank, OutputStream stream, size_t size) {
  const auto grant = outputs_.consumed(rank, stream, size);
  if (grant)
    frames_.put(net::FrameType::kCredit, grant->stream, grant->credit, {}, net::Urgency::kControl);
}

void AgentLink::send(const Message& order) {
  const Bytes bytes = encode(order);
  if (bytes.size() > net::kMaxPayload) {
    return lose(invalid_argument(
        cat("the orders for host ", job_.host_name, " take ", bytes.size() >> 20,
            " MiB, more than the ", net::kMaxPayload >> 20,
            " MiB that one message carries; start fewer ranks there, or give them a smaller "
            "environment (-x, --env-file) or command")));
  }
  frames_.put(net::FrameType::kControl, 0, 0, bytes, net::Urgency::kControl);
}

net::Task<void> AgentLink::write_link() {
  const auto self = shared_from_this();
  co_await frames_.write();
}

net::Task<void> AgentLink::read_link() {
  const auto self = shared_from_this();
  const Status why = co_await frames_.read(
      [this] { pings_.on_received(); }, [this](const net::Frame& frame) { return handle(frame); });
  if (!why.ok()) lose(why);
}

net::Task<void> AgentLink::ping() {
  const auto self = shared_from_this();
  const double limit = job_.host_timeout_seconds;
  const Status silent =
      co_await pings_.run(limit > 0 ? limit : job_.lease_seconds, job_.lease_seconds);
  if (!silent.ok()) lose(silent);
}

Status AgentLink::handle(const net::Frame& frame) {
  const net::FrameHeader& header = frame.header;
  if (state_ == LinkState::kFinished) send(Ping{});  // repeats the ping that answers Finished
  if (header.type == net::FrameType::kControl) {
    auto message = decode(frame.payload);
    if (!message.ok()) return message.status();
    HVD_RETURN_IF_ERROR(std::visit(
        [this]<typename T>(T& each) {
          if constexpr (T::kType.sender == Sender::kAgent)
            return receive(each);
          else
            return internal_error("the agent sent a message that only a launcher sends");
        },
        *message));
    answered_.notify();
    return {};
  }
  if (state_ == LinkState::kHandshake) {
    return internal_error("the agent sent something before its hello");
  }
  if (header.stream >= kFirstStoreStream) {
    return given_up_ ? Status() : stores_->handle(header, frame.payload);
  }
  return outputs_.handle(header, frame.payload);
}

Status AgentLink::receive(AgentHello& hello) {
  HVD_RETURN_IF_ERROR(check_agent_version(hello.version));
  machine_ = std::move(hello.machine);
  return arrive(LinkState::kPreparing);
}

Status AgentLink::receive(Staged& staged) {
  staged_ = std::move(staged);
  return {};
}

Status AgentLink::receive(EnvironmentWanted& wanted) {
  wanted_ = std::move(wanted);
  return arrive(LinkState::kEnvironment);
}

Status AgentLink::receive(EnvironmentFilesWanted& wanted) {
  wanted_ = std::move(wanted);
  return arrive(LinkState::kFiles);
}

Status AgentLink::receive(Prepared& prepared) {
  prepared_ = std::move(prepared);
  return arrive(LinkState::kPrepared);
}

Status AgentLink::receive(ReachabilityTested& tested) {
  reached_ = std::move(tested.reached);
  return {};
}

Status AgentLink::receive(const Started& started) {
  HVD_RETURN_IF_ERROR(arrive(started.status.ok() ? LinkState::kStarted : LinkState::kFailed));
  started_ = started.status;
  if (started.status.ok()) {
    frames_.survive(job_.lease_seconds > 0 ? job_.lease_seconds : kSurviveSeconds,
                    shortest_silence(job_));
  }
  return {};
}

Status AgentLink::receive(const Suspended&) {
  is_suspended_ = true;
  return {};
}

Status AgentLink::receive(const StackToolWanted&) {
  if (!stack_tool_) return internal_error("the agent wants a py-spy that was not offered");
  spawn(&AgentLink::send_stack_tool);
  return {};
}

Status AgentLink::receive(const AgentReport& report) {
  // After a failed start, the agent ends the ranks that already run, so ignore its reports.
  if (!has_failed_start()) events_->on_report(report);
  return {};
}

Status AgentLink::receive(const Pong& answer) {
  agents_silence_ = answer.silent_seconds;
  if (answer.silent_seconds == 0 || given_up_) return {};
  log::info(cat("host ", job_.host_name, ": its ranks were stopped, because the launcher had been ",
                "silent for ", std::lround(answer.silent_seconds), " s"));
  send(Ping{.continues_ranks = 1});
  return {};
}

Status AgentLink::receive(const Failed& failed) {
  const bool was_silent = pings_.silence_seconds() > agents_silence_ / 2;
  if (job_.lease_seconds > 0 && agents_silence_ >= job_.lease_seconds && !was_silent &&
      reports_loss()) {
    events_->on_standstill(std::max(agents_silence_, pings_.standstill_seconds()));
  }
  return unavailable(failed.sentence);
}

Status AgentLink::receive(const Finished& finished) {
  HVD_RETURN_IF_ERROR(arrive(LinkState::kFinished));
  if (!finished.left_behind.empty()) {
    log::warning(cat("host ", job_.host_name, ": ", printable(finished.left_behind, 1000)));
  }
  pings_.stop();
  send(Ping{});  // the agent stays until it knows that the launcher got this message
  if (!has_failed_start()) events_->on_report(finished);
  return {};
}

void AgentLink::lose(Status why) {
  if (state_ >= LinkState::kEnded) return;
  const bool is_reported = reports_loss();
  loss_ = Status(why.code(), why.message() + frames_.last_words());
  to(state_ == LinkState::kFinished ? LinkState::kEnded : LinkState::kLost);
  shut();
  if (is_reported) events_->on_lost(loss_);
}

void AgentLink::close() {
  if (state_ == LinkState::kClosed) return;
  to(LinkState::kClosed);
  shut();
}

void AgentLink::shut() {
  frames_.close();
  pings_.stop();
  answered_.notify();
  stores_->close();
}

}  // namespace hvd::launcher
