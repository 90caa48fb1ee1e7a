#include "launcher/link/agent_link.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/log/log.h"
#include "base/text.h"
#include "launcher/link/frame_channel.h"
#include "launcher/link/lease_pings.h"
#include "launcher/link/rank_outputs.h"
#include "launcher/link/store_streams.h"
#include "launcher/protocol/host_job.h"
#include "launcher/protocol/protocol.h"
#include "net/frame.h"
#include "net/notification.h"

namespace hvd::launcher {
namespace {

namespace asio = net::asio;

constexpr uint64_t kStageWindow = 256 << 10;
constexpr uint64_t kEnvironmentWindow = 1 << 20;
// The most hashes in one message.
constexpr size_t kMostDigests = 1 << 16;
constexpr auto kSuspendLimit = std::chrono::seconds(2);
// The launcher has stopped by then: it waits for the slowest host.
constexpr auto kNoPing = kSuspendLimit + std::chrono::seconds(1);

}  // namespace

// The events of a host that was given up: nobody is interested in its ranks.
class GivenUpHost : public AgentEvents {
 public:
  using Consumed = std::function<void(int rank, OutputStream stream, size_t size)>;
  GivenUpHost(Consumed consumed, std::function<void()> on_end)
      : consumed_(std::move(consumed)), on_end_(std::move(on_end)) {}
  // Agents end after the output of their ranks.
  void on_output(int rank, OutputStream stream, ByteView bytes) override {
    consumed_(rank, stream, bytes.size());
  }
  void on_report(const AgentReport& report) override {
    if (std::holds_alternative<Finished>(report)) on_end_();
  }
  void on_output_end(int, OutputStream) override {}
  void on_lost(const Status&) override {}
  void on_store_connection(net::StreamSocket) override {}

 private:
  const Consumed consumed_;
  const std::function<void()> on_end_;
};

class AgentLink::Impl : public std::enable_shared_from_this<Impl> {
 public:
  Impl(asio::any_io_executor executor, std::unique_ptr<Duplex> duplex, AgentEvents& events)
      : executor_(std::move(executor)),
        frames_(executor_, std::move(duplex)),
        events_(&events),
        answered_(executor_),
        pings_(executor_, {.send = [this](uint64_t number) { put(Ping{number}); },
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
              put(type, stream, credit, payload, net::Urgency::kStore);
            },
            [this](net::StreamSocket socket) {
              events_->on_store_connection(std::move(socket));
            })) {}

  net::Task<Status> prepare(HostJob job, NextPart code, PackageParts package,
                            Environment environment);
  net::Task<Status> offer_environment(Environment environment);
  net::Task<Status> send_environment(EnvironmentFeed& feed);
  net::Task<Status> send_package(PackageParts package, std::string_view what);
  void offer_stack_tool(const StackToolOffer& offer, PackageParts parts);
  net::Task<void> send_stack_tool();
  net::Task<Status> stage(const NextPart& next, std::string_view what);
  const Status& state() const { return lost_; }
  Status hold();
  const MasterCandidates& candidates() const { return candidates_; }
  const std::vector<std::pair<std::string, std::string>>& versions() const { return versions_; }
  std::string machine() const { return hello_ ? hello_->machine : ""; }
  uint32_t threads() const { return threads_; }
  const LeasePings& pings() const { return pings_; }
  net::Task<Reached> test_reachability(MasterCandidates candidates);
  net::Task<Status> start(StartOrder order);
  net::Task<Status> suspend();
  net::Task<void> wait_for_end();
  void give_up(std::function<void()> on_end);
  void put(const Message& message);
  void consumed(int rank, OutputStream stream, size_t size);
  void close();

 private:
  // Starts a coroutine of this object, and keeps the object alive until it returns.
  void spawn(net::Task<void> (Impl::*body)());
  net::Task<void> read_link();
  net::Task<void> write_link();
  net::Task<void> ping();
  // Waits until is_there() is true, or returns an error when the link is lost.
  template <typename Claim>
  net::Task<Status> wait_for(Claim is_there);

  void put(net::FrameType type, uint32_t stream, uint32_t credit, ByteView payload,
           net::Urgency urgency);
  Status handle(const net::Frame& frame);
  // An overload for each message of the agent that this object answers itself.
  Status receive(AgentHello& hello);
  Status receive(Prepared& prepared);
  Status receive(Staged& staged);
  Status receive(const PackageWanted&);
  Status receive(EnvironmentWanted& wanted);
  Status receive(EnvironmentFilesWanted& wanted);
  Status receive(EnvironmentChunksWanted& wanted);
  Status receive(const StackToolWanted&);
  Status receive(ReachabilityTested& tested);
  Status receive(const Started& started);
  Status receive(const Suspended&);
  Status receive(const Failed& failed);
  Status receive(const Finished& finished);
  Status receive(const Pong& answer);
  // Each other message of an agent.
  Status receive(const AgentReport& report);
  void lose(Status why);
  void shut();

  asio::any_io_executor executor_;
  FrameChannel frames_;
  AgentEvents* events_;
  net::Notification answered_;
  LeasePings pings_;
  HostJob job_;
  RankOutputs outputs_;
  const std::shared_ptr<StoreStreams> stores_;

  bool is_running_ = false;  // the coroutines have started
  std::optional<AgentHello> hello_;
  std::optional<Status> prepared_, started_;
  Staged staged_;
  bool is_package_wanted_ = false;
  std::optional<EnvironmentWanted> environment_wanted_;
  std::optional<EnvironmentFilesWanted> files_wanted_;
  std::optional<EnvironmentChunksWanted> chunks_wanted_;
  PackageParts stack_tool_;  // until the agent wants it
  MasterCandidates candidates_;
  std::vector<std::pair<std::string, std::string>> versions_;
  uint32_t threads_ = 0;
  std::optional<Reached> reached_;
  bool is_start_awaited_ = false;  // prepare, state or start will report a loss
  bool is_suspended_ = false;
  std::optional<GivenUpHost> given_up_;
  double agents_silence_ = 0;  // of this process, for which the agent ends its ranks
  bool is_finished_ = false;
  bool is_closed_ = false;
  Status lost_;
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
      co_return aborted("the wait for the agent was cancelled");
    }
  }
  co_return Status();
}

// Sends files. A slow host holds them back: at most kStageWindow bytes are in flight.
net::Task<Status> AgentLink::Impl::stage(const NextPart& next, std::string_view what) {
  uint64_t sent = 0;
  for (;;) {
    const Status status = co_await wait_for(
        [&] { return !staged_.status.ok() || sent < staged_.taken + kStageWindow; });
    if (!status.ok()) co_return status;
    if (!staged_.status.ok()) break;
    if (staged_.taken > sent) co_return internal_error("the agent has taken more than was sent");
    const auto part = next();
    if (!part.ok()) co_return part.status();
    if (!*part) break;
    put(**part);
    sent += (*part)->path.size() + (*part)->bytes.size();
  }
  const Status status =
      co_await wait_for([&] { return !staged_.status.ok() || staged_.taken == sent; });
  co_return status.ok() ? staged_.status.with_context(std::string(what)) : status;
}

net::Task<Status> AgentLink::Impl::send_package(PackageParts package, std::string_view what) {
  if (!package) co_return failed_precondition("the agent wants a package that was not offered");
  const auto next = co_await package();
  if (!next.ok()) co_return next.status();
  staged_ = {};
  co_return co_await stage(*next, what);
}

void AgentLink::Impl::offer_stack_tool(const StackToolOffer& offer, PackageParts parts) {
  stack_tool_ = std::move(parts);
  put(offer);
}

net::Task<void> AgentLink::Impl::send_stack_tool() {
  const auto self = shared_from_this();
  const Status status =
      co_await send_package(std::exchange(stack_tool_, nullptr), "sending py-spy");
  if (!status.ok()) log::info(cat("host ", job_.host_name, ": ", status.message()));
}

net::Task<Status> AgentLink::Impl::offer_environment(Environment environment) {
  if (!environment) {
    co_return failed_precondition("the agent wants an environment that the job lacks");
  }
  const auto feed = co_await environment(*environment_wanted_);
  if (!feed.ok()) co_return feed.status();
  put((*feed)->offer());
  const Status status =
      co_await wait_for([this] { return prepared_ || is_package_wanted_ || files_wanted_; });
  if (!status.ok() || !files_wanted_) co_return status;
  co_return co_await send_environment(**feed);
}

// Sends hashes as they come, and the chunks that the agent does not get from another host.
net::Task<Status> AgentLink::Impl::send_environment(EnvironmentFeed& feed) {
  staged_ = {};
  put(feed.join(files_wanted_->server, [this] { answered_.notify(); }));
  size_t digests = 0;
  uint64_t sent = 0;  // bytes
  const auto may_send = [&] {
    return chunks_wanted_ && chunks_wanted_->first < feed.chunks() &&
           sent < staged_.taken + kEnvironmentWindow;
  };
  for (;;) {
    const Status status = co_await wait_for([&] {
      return prepared_ || is_package_wanted_ || digests < feed.digests().size() || may_send();
    });
    if (!status.ok() || prepared_ || is_package_wanted_) co_return status;
    if (staged_.taken > sent) co_return internal_error("the agent has taken more than was sent");
    if (chunks_wanted_ && !chunks_wanted_->why.empty()) {
      feed.on_detour(std::exchange(chunks_wanted_->why, {}));
    }
    std::optional<EnvironmentChunk> chunk;
    if (may_send()) {
      if (chunks_wanted_->first > feed.digests().size()) {
        co_return internal_error("the agent wants a part of the environment before its turn");
      }
      auto bytes = feed.read(chunks_wanted_->first);
      if (!bytes.ok()) co_return bytes.status();
      chunk = EnvironmentChunk{chunks_wanted_->first++, *std::move(bytes)};
    }
    while (digests < feed.digests().size()) {
      const auto begin = feed.digests().begin() + static_cast<ptrdiff_t>(digests);
      const size_t size = std::min(feed.digests().size() - digests, kMostDigests);
      put(EnvironmentDigests{{begin, begin + static_cast<ptrdiff_t>(size)}});
      digests += size;
    }
    if (chunk) {
      sent += chunk->bytes.size();
      put(*chunk);
    }
  }
}

net::Task<Status> AgentLink::Impl::prepare(HostJob job, NextPart code, PackageParts package,
                                           Environment environment) {
  const auto self = shared_from_this();
  if (is_running_) co_return failed_precondition("the agent has already been prepared");
  job_ = std::move(job);
  outputs_.open(job_.ranks);
  is_running_ = true;
  is_start_awaited_ = true;
  spawn(&Impl::read_link);
  spawn(&Impl::write_link);
  Status status = co_await wait_for([this] { return hello_.has_value(); });
  if (status.ok() && code) status = co_await stage(code, "--stage");
  if (status.ok()) {
    frames_.address(job_);
    put(Prepare{job_, kOutputWindow, kStoreWindow});
    if (job_.lease_seconds > 0 || job_.host_timeout_seconds > 0) spawn(&Impl::ping);
    status = co_await wait_for(
        [this] { return prepared_ || is_package_wanted_ || environment_wanted_; });
  }
  if (status.ok() && environment_wanted_) {
    status = co_await offer_environment(std::move(environment));
  }
  if (status.ok() && is_package_wanted_) {
    status = co_await send_package(std::move(package), "sending the package horovod");
    if (status.ok()) status = co_await wait_for([this] { return prepared_.has_value(); });
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

Status AgentLink::Impl::hold() {
  is_start_awaited_ = !lost_.ok();
  return lost_;
}

net::Task<Status> AgentLink::Impl::start(StartOrder order) {
  const auto self = shared_from_this();
  is_start_awaited_ = true;
  put(Start{std::move(order)});
  Status status = co_await wait_for([this] { return started_.has_value(); });
  is_start_awaited_ = false;
  if (status.ok()) status = *started_;
  // The link may be lost between the answer and this line.
  if (status.ok() && !is_finished_) status = lost_;
  co_return status;
}

net::Task<Status> AgentLink::Impl::suspend() {
  const auto self = shared_from_this();
  is_suspended_ = false;
  put(Suspend{});
  // The next ping ends the suspension: it must not come before the launcher has been stopped.
  pings_.hold_back(kNoPing);
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

net::Task<void> AgentLink::Impl::wait_for_end() {
  const auto self = shared_from_this();
  if (is_finished_) static_cast<void>(co_await wait_for([] { return false; }));
}

void AgentLink::Impl::give_up(std::function<void()> on_end) {
  if (is_closed_ || !lost_.ok()) return;
  given_up_.emplace(
      [this](int rank, OutputStream stream, size_t size) { consumed(rank, stream, size); },
      std::move(on_end));
  events_ = &*given_up_;
  outputs_.redirect(*given_up_);
  stores_->close();
  put(End{});
}

void AgentLink::Impl::consumed(int rank, OutputStream stream, size_t size) {
  if (is_closed_) return;
  const auto grant = outputs_.consumed(rank, stream, size);
  if (grant) put(net::FrameType::kCredit, grant->stream, grant->credit, {}, net::Urgency::kControl);
}

AgentLink::AgentLink(net::asio::any_io_executor executor, std::unique_ptr<Duplex> duplex,
                     AgentEvents& events)
    : impl_(std::make_shared<Impl>(std::move(executor), std::move(duplex), events)) {}

AgentLink::~AgentLink() { impl_->close(); }

net::Task<Status> AgentLink::prepare(const HostJob& job, NextPart code, PackageParts package,
                                     Environment environment) {
  return impl_->prepare(job, std::move(code), std::move(package), std::move(environment));
}
Status AgentLink::state() const { return impl_->state(); }
Status AgentLink::hold() { return impl_->hold(); }
const MasterCandidates& AgentLink::candidates() const { return impl_->candidates(); }
const std::vector<std::pair<std::string, std::string>>& AgentLink::versions() const {
  return impl_->versions();
}
std::string AgentLink::version_of(std::string_view name) const {
  const auto found =
      std::ranges::find(versions(), name, &std::pair<std::string, std::string>::first);
  return found == versions().end() ? "" : found->second;
}
std::string AgentLink::machine() const { return impl_->machine(); }
uint32_t AgentLink::threads() const { return impl_->threads(); }
net::Task<Reached> AgentLink::test_reachability(const MasterCandidates& candidates) {
  return impl_->test_reachability(candidates);
}
net::Task<Status> AgentLink::start(const StartOrder& order) { return impl_->start(order); }
void AgentLink::send(const Message& order) { impl_->put(order); }
void AgentLink::give_up(std::function<void()> on_end) { impl_->give_up(std::move(on_end)); }
void AgentLink::consumed(int rank, OutputStream stream, size_t size) {
  impl_->consumed(rank, stream, size);
}
void AgentLink::offer_stack_tool(const StackToolOffer& offer, PackageParts parts) {
  impl_->offer_stack_tool(offer, std::move(parts));
}
bool AgentLink::is_unanswered() const { return impl_->pings().is_unanswered(); }
double AgentLink::silence_seconds() const { return impl_->pings().silence_seconds(); }
net::Task<Status> AgentLink::suspend() { return impl_->suspend(); }
net::Task<void> AgentLink::wait_for_end() { return impl_->wait_for_end(); }
void AgentLink::close() { impl_->close(); }

void AgentLink::Impl::put(const Message& message) {
  const Bytes bytes = encode(message);
  if (bytes.size() > net::kMaxPayload) {
    return lose(invalid_argument(
        cat("the orders for host ", job_.host_name, " take ", bytes.size() >> 20,
            " MiB, more than the ", net::kMaxPayload >> 20,
            " MiB that one message carries; start fewer ranks there, or give them a smaller "
            "environment (-x, --env-file) or command")));
  }
  put(net::FrameType::kControl, 0, 0, bytes, net::Urgency::kControl);
}

void AgentLink::Impl::put(net::FrameType type, uint32_t stream, uint32_t credit, ByteView payload,
                          net::Urgency urgency) {
  frames_.put(type, stream, credit, payload, urgency);
}

net::Task<void> AgentLink::Impl::write_link() {
  const auto self = shared_from_this();
  co_await frames_.write();
}

net::Task<void> AgentLink::Impl::read_link() {
  const auto self = shared_from_this();
  const Status why = co_await frames_.read(
      [this] { pings_.on_received(); }, [this](const net::Frame& frame) { return handle(frame); });
  if (!why.ok()) lose(why);
}

net::Task<void> AgentLink::Impl::ping() {
  const auto self = shared_from_this();
  const double limit = job_.host_timeout_seconds;
  const Status silent =
      co_await pings_.run(limit > 0 ? limit : job_.lease_seconds, job_.lease_seconds);
  if (!silent.ok()) lose(silent);
}

Status AgentLink::Impl::handle(const net::Frame& frame) {
  const net::FrameHeader& header = frame.header;
  if (is_finished_) put(Ping{});  // as behind Finished
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
  if (!hello_) return internal_error("the agent sent something before its hello");
  if (header.stream >= kFirstStoreStream) {
    return given_up_ ? Status() : stores_->handle(header, frame.payload);
  }
  return outputs_.handle(header, frame.payload);
}

Status AgentLink::Impl::receive(AgentHello& hello) {
  HVD_RETURN_IF_ERROR(check_agent_version(hello.version));
  hello_ = std::move(hello);
  return {};
}

Status AgentLink::Impl::receive(Prepared& prepared) {
  prepared_ = prepared.status;
  candidates_ = std::move(prepared.candidates);
  versions_ = std::move(prepared.versions);
  threads_ = prepared.threads;
  return {};
}

Status AgentLink::Impl::receive(Staged& staged) {
  staged_ = std::move(staged);
  return {};
}

Status AgentLink::Impl::receive(EnvironmentWanted& wanted) {
  environment_wanted_ = std::move(wanted);
  return {};
}

Status AgentLink::Impl::receive(EnvironmentFilesWanted& wanted) {
  files_wanted_ = std::move(wanted);
  return {};
}

Status AgentLink::Impl::receive(EnvironmentChunksWanted& wanted) {
  if (chunks_wanted_) return internal_error("the agent asked for parts of an environment twice");
  chunks_wanted_ = std::move(wanted);
  return {};
}

Status AgentLink::Impl::receive(const PackageWanted&) {
  is_package_wanted_ = true;
  return {};
}

Status AgentLink::Impl::receive(const StackToolWanted&) {
  if (!stack_tool_) return internal_error("the agent wants a py-spy that was not offered");
  spawn(&Impl::send_stack_tool);
  return {};
}

Status AgentLink::Impl::receive(ReachabilityTested& tested) {
  reached_ = std::move(tested.reached);
  return {};
}

Status AgentLink::Impl::receive(const Started& started) {
  started_ = started.status;
  if (started_->ok()) {
    frames_.survive(job_.lease_seconds > 0 ? job_.lease_seconds : kSurviveSeconds,
                    shortest_silence(job_));
  }
  return {};
}

Status AgentLink::Impl::receive(const Suspended&) {
  is_suspended_ = true;
  return {};
}

Status AgentLink::Impl::receive(const AgentReport& report) {
  // After a start that failed, the agent ends the ranks that ran already.
  if (!started_ || started_->ok()) events_->on_report(report);
  return {};
}

Status AgentLink::Impl::receive(const Pong& answer) {
  agents_silence_ = answer.silent_seconds;
  if (answer.silent_seconds == 0 || given_up_) return {};
  log::info(cat("host ", job_.host_name, ": its ranks were stopped, because the launcher had been ",
                "silent for ", std::lround(answer.silent_seconds), " s"));
  put(Ping{.continues_ranks = 1});
  return {};
}

Status AgentLink::Impl::receive(const Failed& failed) {
  const bool was_silent = pings_.silence_seconds() > agents_silence_ / 2;
  if (job_.lease_seconds > 0 && agents_silence_ >= job_.lease_seconds && !was_silent &&
      !is_start_awaited_) {
    events_->on_standstill(std::max(agents_silence_, pings_.standstill_seconds()));
  }
  return unavailable(failed.sentence);
}

Status AgentLink::Impl::receive(const Finished& finished) {
  if (!finished.left_behind.empty()) {
    log::warning(cat("host ", job_.host_name, ": ", printable(finished.left_behind)));
  }
  is_finished_ = true;
  pings_.stop();
  put(Ping{});  // the agent stays until it knows that this message has arrived
  return receive(AgentReport(finished));
}

void AgentLink::Impl::lose(Status why) {
  if (is_closed_ || !lost_.ok()) return;
  const bool is_expected = is_finished_;
  lost_ = Status(why.code(), why.message() + frames_.last_words());
  shut();
  if (!is_expected && !is_start_awaited_) events_->on_lost(lost_);
}

void AgentLink::Impl::close() {
  if (is_closed_) return;
  is_closed_ = true;
  shut();
}

void AgentLink::Impl::shut() {
  frames_.close();
  pings_.stop();
  answered_.notify();
  stores_->close();
}

}  // namespace hvd::launcher
