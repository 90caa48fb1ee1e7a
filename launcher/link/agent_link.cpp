#include "launcher/link/agent_link.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <type_traits>
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
constexpr auto kSuspendLimit = std::chrono::seconds(2);
// Longer than kSuspendLimit, which the launcher spends waiting for the slowest host: it has stopped by then.
constexpr auto kNoPing = kSuspendLimit + std::chrono::seconds(1);

}  // namespace

// The last message of each kind.
template <typename... T>
struct LastMessages {
  template <typename U>
  static constexpr bool kHas = (std::is_same_v<T, U> || ...);
  std::tuple<std::optional<T>...> all;
};
// The agent's answers that calls of AgentLink wait for.
using AgentAnswers =
    LastMessages<AgentHello, Prepared, Started, Staged, PackageWanted, EnvironmentWanted,
                 EnvironmentFilesWanted, ReachabilityTested, Suspended>;
template <typename T>
concept AgentAnswer = AgentAnswers::kHas<T>;

// Ignores the events of an abandoned host, whose ranks no longer matter.
class GivenUpHost : public AgentEvents {
 public:
  using Consumed = std::function<void(int rank, OutputStream stream, size_t size)>;
  GivenUpHost(Consumed consumed, std::function<void()> on_end)
      : consumed_(std::move(consumed)), on_end_(std::move(on_end)) {}
  // Output must be consumed, because an agent ends only after its ranks' output.
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
  net::Task<Status> stage(const NextPart& next, std::string_view what,
                          uint64_t window = kStageWindow);
  const Status& state() const { return lost_; }
  Status hold();
  template <AgentAnswer T>
  std::optional<T>& answer() {
    return std::get<std::optional<T>>(answers_.all);
  }
  const Prepared& prepared() {
    static const Prepared kNone;
    return answer<Prepared>() ? *answer<Prepared>() : kNone;
  }
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
  // Starts a coroutine of this object, and keeps the object alive until the coroutine returns.
  void spawn(net::Task<void> (Impl::*body)());
  net::Task<void> read_link();
  net::Task<void> write_link();
  net::Task<void> ping();
  // Whether the agent is prepared or requests the package, both of which come after the environment.
  bool is_past_environment() { return answer<Prepared>() || answer<PackageWanted>(); }
  // Waits until is_there() returns true. Returns an error if the link is lost.
  template <typename Claim>
  net::Task<Status> wait_for(Claim is_there);

  void put(net::FrameType type, uint32_t stream, uint32_t credit, ByteView payload,
           net::Urgency urgency);
  Status handle(const net::Frame& frame);
  // Returns an error for a message in the wrong state. An overload may also note the message's contents.
  Status check(const auto&) { return {}; }
  Status check(const AgentHello& hello) { return check_agent_version(hello.version); }
  Status check(const Started& started);
  template <AgentAnswer T>
  Status receive(T& message) {
    HVD_RETURN_IF_ERROR(check(message));
    std::get<std::optional<T>>(answers_.all) = std::move(message);
    return {};
  }
  Status receive(const StackToolWanted&);
  Status receive(const Failed& failed);
  Status receive(const Finished& finished);
  Status receive(const Pong& answer);
  // For all other messages of an agent.
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
  AgentAnswers answers_;
  PackageParts stack_tool_;        // null after the agent has requested it
  bool is_start_awaited_ = false;  // prepare, state or start will return the reason of a loss
  std::optional<GivenUpHost> given_up_;
  double agents_silence_ = 0;  // how long this process was silent, as reported by the agent
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

// Sends files at the speed of the host: at most `window` bytes are in flight.
net::Task<Status> AgentLink::Impl::stage(const NextPart& next, std::string_view what,
                                         uint64_t window) {
  uint64_t sent = 0;
  Staged& staged = answer<Staged>().emplace();
  for (;;) {
    const Status status =
        co_await wait_for([&] { return !staged.status.ok() || sent < staged.taken + window; });
    if (!status.ok()) co_return status;
    if (!staged.status.ok()) break;
    if (staged.taken > sent) co_return internal_error("the agent has taken more than was sent");
    const auto part = next();
    if (!part.ok()) co_return part.status();
    if (!*part) break;
    put(**part);
    sent += (*part)->path.size() + (*part)->bytes.size();
  }
  const Status status =
      co_await wait_for([&] { return !staged.status.ok() || staged.taken == sent; });
  co_return status.ok() ? staged.status.with_context(std::string(what)) : status;
}

net::Task<Status> AgentLink::Impl::send_package(PackageParts package, std::string_view what) {
  if (!package) co_return failed_precondition("the agent wants a package that was not offered");
  const auto next = co_await package();
  if (!next.ok()) co_return next.status();
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
  const auto feed = co_await environment(*answer<EnvironmentWanted>());
  if (!feed.ok()) co_return feed.status();
  put((*feed)->offer());
  const Status status = co_await wait_for(
      [this] { return is_past_environment() || answer<EnvironmentFilesWanted>(); });
  if (!status.ok() || !answer<EnvironmentFilesWanted>()) co_return status;
  co_return co_await send_environment(**feed);
}

// Sends the address of the host that forwards the files, then the files that the agent does not get from that host.
net::Task<Status> AgentLink::Impl::send_environment(EnvironmentFeed& feed) {
  auto& wanted = answer<EnvironmentFilesWanted>();
  const EnvironmentSource source = feed.join(wanted->server);
  uint64_t first = 0;
  wanted.reset();
  put(source);
  if (source.server.port != 0) {
    const Status status = co_await wait_for([&] { return is_past_environment() || wanted; });
    if (!status.ok() || is_past_environment()) co_return status;
    feed.on_detour(wanted->why);
    first = wanted->first;
  }
  const Status sent = co_await stage(feed.parts(first), "--stage-env", kEnvironmentWindow);
  if (!sent.ok()) co_return sent;
  co_return co_await wait_for([this] { return is_past_environment(); });
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
  Status status = co_await wait_for([this] { return answer<AgentHello>().has_value(); });
  if (status.ok() && code) status = co_await stage(code, "--stage");
  if (status.ok()) {
    frames_.address(job_);
    put(Prepare{job_, kOutputWindow, kStoreWindow});
    if (job_.lease_seconds > 0 || job_.host_timeout_seconds > 0) spawn(&Impl::ping);
    status =
        co_await wait_for([this] { return is_past_environment() || answer<EnvironmentWanted>(); });
  }
  if (status.ok() && answer<EnvironmentWanted>()) {
    status = co_await offer_environment(std::move(environment));
  }
  if (status.ok() && answer<PackageWanted>()) {
    status = co_await send_package(std::move(package), "sending the package horovod");
    if (status.ok()) status = co_await wait_for([this] { return answer<Prepared>().has_value(); });
  }
  if (status.ok()) status = answer<Prepared>()->status;
  co_return status;
}

net::Task<Reached> AgentLink::Impl::test_reachability(MasterCandidates candidates) {
  const auto self = shared_from_this();
  answer<ReachabilityTested>().reset();
  put(TestReachability{std::move(candidates)});
  const Status status =
      co_await wait_for([this] { return answer<ReachabilityTested>().has_value(); });
  co_return status.ok() ? answer<ReachabilityTested>()->reached : Reached{};
}

Status AgentLink::Impl::hold() {
  is_start_awaited_ = !lost_.ok();
  return lost_;
}

net::Task<Status> AgentLink::Impl::start(StartOrder order) {
  const auto self = shared_from_this();
  is_start_awaited_ = true;
  put(Start{std::move(order)});
  Status status = co_await wait_for([this] { return answer<Started>().has_value(); });
  is_start_awaited_ = false;
  if (status.ok()) status = answer<Started>()->status;
  // The link may have been lost after the answer.
  if (status.ok() && !is_finished_) status = lost_;
  co_return status;
}

net::Task<Status> AgentLink::Impl::suspend() {
  const auto self = shared_from_this();
  answer<Suspended>().reset();
  put(Suspend{});
  // The next ping ends the suspension, so it must not precede the stop of the launcher.
  pings_.hold_back(kNoPing);
  asio::steady_timer limit(executor_, kSuspendLimit);
  const auto is_too_late = std::make_shared<bool>(false);
  limit.async_wait([self, is_too_late](const net::error_code& error) {
    if (error) return;
    *is_too_late = true;
    self->answered_.notify();
  });
  Status status = co_await wait_for([&] { return answer<Suspended>() || *is_too_late; });
  limit.cancel();
  if (status.ok() && !answer<Suspended>()) {
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
const MasterCandidates& AgentLink::candidates() const { return impl_->prepared().candidates; }
const std::vector<std::pair<std::string, std::string>>& AgentLink::versions() const {
  return impl_->prepared().versions;
}
std::string AgentLink::version_of(std::string_view name) const {
  const auto found =
      std::ranges::find(versions(), name, &std::pair<std::string, std::string>::first);
  return found == versions().end() ? "" : found->second;
}
std::string AgentLink::machine() const {
  const auto& hello = impl_->answer<AgentHello>();
  return hello ? hello->machine : "";
}
uint32_t AgentLink::threads() const { return impl_->prepared().threads; }
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
  if (is_finished_) put(Ping{});  // as after Finished
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
  if (!answer<AgentHello>()) return internal_error("the agent sent something before its hello");
  if (header.stream >= kFirstStoreStream) {
    return given_up_ ? Status() : stores_->handle(header, frame.payload);
  }
  return outputs_.handle(header, frame.payload);
}

Status AgentLink::Impl::check(const Started& started) {
  if (started.status.ok()) {
    frames_.survive(job_.lease_seconds > 0 ? job_.lease_seconds : kSurviveSeconds,
                    shortest_silence(job_));
  }
  return {};
}

Status AgentLink::Impl::receive(const StackToolWanted&) {
  if (!stack_tool_) return internal_error("the agent wants a py-spy that was not offered");
  spawn(&Impl::send_stack_tool);
  return {};
}

Status AgentLink::Impl::receive(const AgentReport& report) {
  // After a failed start, the agent ends the ranks that already run, so ignore its reports.
  const auto& started = answer<Started>();
  if (!started || started->status.ok()) events_->on_report(report);
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
    log::warning(cat("host ", job_.host_name, ": ", printable(finished.left_behind, 1000)));
  }
  is_finished_ = true;
  pings_.stop();
  put(Ping{});  // the agent stays until it knows that the launcher got this message
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
