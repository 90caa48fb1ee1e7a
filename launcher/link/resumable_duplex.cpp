#include "launcher/link/resumable_duplex.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/log/log.h"
#include "base/secrets/secret.h"
#include "base/text.h"
#include "launcher/link/admission.h"
#include "launcher/protocol/host_job.h"
#include "launcher/protocol/record.h"
#include "launcher/protocol/resumable_stream.h"
#include "net/notification.h"

namespace hvd::launcher {
namespace {

namespace asio = net::asio;

// The pauses between attempts to run the command again, which double from the first to the longest pause.
constexpr std::chrono::milliseconds kFirstPause{100};
constexpr std::chrono::milliseconds kLongestPause{1000};
// The pause after an attempt that failed early, while the current connection is still open.
constexpr std::chrono::milliseconds kPauseBeside{3000};
// The time limits of the attempts, which grow, because a slow login needs more time. After a network outage, a new
// attempt connects sooner than an old one, whose pauses between SYNs grow to 8 s and more.
constexpr std::chrono::seconds kFirstAttempt{10};
constexpr std::chrono::seconds kLongerAttempt{5};
constexpr std::chrono::seconds kLongestAttempt{30};
// The time limit for sending the last record of a closed stream.
constexpr std::chrono::seconds kGoodbye{1};

SessionKey random_key() {
  SessionKey key;
  fill_random(key);
  return key;
}

// Reads the agent's offer to resume, or an error from the new agent process.
net::Task<Result<Resume>> read_offer(Duplex& connection) {
  const auto message = co_await read_message(connection);
  if (!message.ok()) co_return message.status().with_context("the new agent process");
  if (const auto* offer = std::get_if<Resume>(&*message)) co_return *offer;
  if (const auto* refusal = std::get_if<Failed>(&*message)) {
    co_return aborted(printable(refusal->sentence));
  }
  co_return internal_error("the new agent process did not answer with an offer");
}

net::Task<void> send_goodbye(std::shared_ptr<Duplex> connection, Bytes record) {
  const auto executor = co_await asio::this_coro::executor;
  asio::steady_timer limit(executor, kGoodbye);
  limit.async_wait([connection](const net::error_code& error) {
    if (!error) connection->close();
  });
  static_cast<void>(co_await connection->write(record));
  limit.cancel();
  connection->close();
}

// Seconds for which an agent waits for another connection after a loss, before it ends its ranks.
constexpr double kAgentWaits = 5;

}  // namespace

class ResumableDuplex::Running : public std::enable_shared_from_this<Running> {
 public:
  Running(asio::any_io_executor executor, std::unique_ptr<Duplex> first, Reconnection reconnection)
      : Running(std::move(executor), random_key(), std::move(first), std::move(reconnection)) {}

  void start() { asio::co_spawn(executor_, hold(push()), asio::detached); }
  const SessionId& session() const { return stream_.id(); }
  net::Task<Result<size_t>> read_some(std::span<std::byte> buffer);
  net::Task<Status> write(ByteView bytes);
  net::Task<Status> resume(std::unique_ptr<Duplex>& connection, Resume offer, Nonce of_launcher);
  void survive(double seconds, double silence_seconds);
  void on_silence(double seconds);
  void close();
  std::string last_words() const { return connection_ ? connection_->last_words() : words_; }

 private:
  Running(asio::any_io_executor executor, const SessionKey& key, std::unique_ptr<Duplex> first,
          Reconnection reconnection)
      : executor_(std::move(executor)),
        stream_(key),
        reconnection_(std::move(reconnection)),
        connection_(std::move(first)),
        opening_(framed(OpenSession{key, reconnection_.agent_wait_seconds})),
        changed_(executor_),
        limit_(executor_),
        pause_(executor_) {}

  // Keeps this object alive while `task` runs.
  net::Task<void> hold(net::Task<void> task) {
    const auto self = shared_from_this();
    co_await std::move(task);
  }
  // Writes the stream's pending bytes. If a write is in progress, that write continues with them.
  net::Task<void> push();
  // `connection` is lost: waits for another connection, or ends the stream.
  void lose(const std::shared_ptr<Duplex>& connection, Status why);
  void begin_respawn();
  net::Task<void> respawn();
  net::Task<Status> try_respawn(std::chrono::seconds limit);
  net::Task<Status> open_another();
  bool is_silent() const { return silence_ >= replace_after_; }
  // Returns whether the network may be cut off. The stream then has no time limit of its own, see the header.
  bool may_be_cut_off() const { return is_silent() || silence_ >= kUnnoticedSeconds; }
  // Returns whether the stream needs no new connection.
  bool is_settled() const { return is_closed_ || !failure_.ok() || (connection_ && !is_silent()); }
  net::Task<Status> reattach(std::unique_ptr<Duplex>& connection);
  void fail(Status why);

  const asio::any_io_executor executor_;
  ResumableStream stream_;
  const Reconnection reconnection_;
  std::shared_ptr<Duplex> connection_;  // null while the stream waits for a connection
  Bytes opening_;                       // bytes before the first record
  net::Notification changed_;
  asio::steady_timer limit_, pause_;
  std::shared_ptr<asio::cancellation_signal>
      cancel_;  // ends the running attempt to reconnect; null: none runs
  bool is_respawning_ = false;
  double seconds_ = 0;         // time limit of the wait for a new connection
  double replace_after_ = 0;   // seconds of silence after which another connection is opened
  double silence_ = 0;         // seconds of the agent's silence on connection_
  double silence_before_ = 0;  // seconds of silence before connection_ was opened
  Status broken_;              // why the last connection is lost
  Status failure_;             // why the stream has ended
  std::string words_;
  uint64_t losses_ = 0, offers_ = 0;
  bool is_pushing_ = false;
  bool is_mute_ = false;  // a write on connection_ failed; the read reports why
  bool is_closed_ = false;
};

net::Task<void> ResumableDuplex::Running::push() {
  while (!is_pushing_ && connection_ && !is_mute_ && !is_closed_) {
    const auto connection = connection_;
    const Bytes record = opening_.empty() ? stream_.take() : std::exchange(opening_, {});
    if (record.empty()) co_return;
    is_pushing_ = true;
    const Status status = co_await connection->write(record);
    is_pushing_ = false;
    if (!status.ok() && connection == connection_) is_mute_ = true;
    changed_.notify();
  }
}

net::Task<Result<size_t>> ResumableDuplex::Running::read_some(std::span<std::byte> buffer) {
  const auto self = shared_from_this();
  for (;;) {
    if (is_closed_) co_return aborted("the stream was closed");
    if (!failure_.ok()) co_return failure_;
    if (stream_.has_ended()) co_return size_t{0};
    if (!connection_) {
      const bool was_notified = co_await changed_.wait();
      if (!was_notified) co_return aborted("the read was cancelled");
      continue;
    }
    const auto connection = connection_;
    const auto size = co_await connection->read_some(buffer);
    // Ignore bytes of a replaced connection: the agent sends them again.
    if (connection != connection_) continue;
    if (!size.ok() || *size == 0) {
      lose(connection,
           size.ok() ? unavailable("the agent's end of the link was closed") : size.status());
      continue;
    }
    silence_ = silence_before_ = 0;
    const auto payload = stream_.receive(buffer.first(*size));
    if (!payload.ok()) co_return payload.status();
    changed_.notify();
    co_await push();
    if (*payload > 0) co_return *payload;
  }
}

net::Task<Status> ResumableDuplex::Running::write(ByteView bytes) {
  const auto self = shared_from_this();
  for (;;) {
    if (is_closed_) co_return aborted("the stream was closed");
    if (!failure_.ok()) co_return failure_;
    const size_t size = std::min(bytes.size(), stream_.room());
    stream_.put(bytes.first(size));
    bytes = bytes.subspan(size);
    co_await push();
    if (is_closed_ || !failure_.ok()) continue;
    if (bytes.empty() && !stream_.has_unsent() && !is_pushing_) co_return Status();
    if (!bytes.empty() && stream_.room() > 0) continue;
    const bool was_notified = co_await changed_.wait();
    if (!was_notified) co_return aborted("the write was cancelled");
  }
}

void ResumableDuplex::Running::lose(const std::shared_ptr<Duplex>& connection, Status why) {
  if (connection != connection_ || !connection_) return;
  words_ = connection_->last_words();
  std::exchange(connection_, nullptr)->close();
  broken_ = std::move(why);
  const uint64_t loss = ++losses_;
  const bool can_resume = reconnection_.respawn || reconnection_.is_by_agent;
  if (seconds_ <= 0 || !can_resume || stream_.has_ended()) return fail(broken_);
  log::info(cat("host ", reconnection_.host,
                ": the link broke and waits for another connection: ", broken_.message()));
  changed_.notify();
  pause_.cancel();
  begin_respawn();
  if (may_be_cut_off()) return;
  limit_.expires_after(std::chrono::duration_cast<std::chrono::nanoseconds>(
      std::chrono::duration<double>(seconds_)));
  limit_.async_wait([self = shared_from_this(), loss](const net::error_code& error) {
    if (error || loss != self->losses_ || self->connection_) return;
    self->fail(deadline_exceeded(cat(
        self->broken_.message(), ", and the link did not resume within ", self->seconds_, " s")));
  });
}

void ResumableDuplex::Running::on_silence(double seconds) {
  silence_ = seconds - silence_before_;
  if (seconds_ <= 0 || !connection_ || !is_silent()) return;
  // Only the agent can open a connection, and it does so when this connection is closed.
  if (reconnection_.is_by_agent) return lose(connection_, unavailable("the host did not answer"));
  begin_respawn();
}

void ResumableDuplex::Running::begin_respawn() {
  if (!reconnection_.respawn || std::exchange(is_respawning_, true)) return;
  asio::co_spawn(executor_, hold(respawn()), asio::detached);
}

net::Task<void> ResumableDuplex::Running::respawn() {
  auto pause = kFirstPause;
  auto limit = kFirstAttempt;
  while (!is_settled()) {
    const Status status = co_await try_respawn(limit);
    if (is_settled()) break;
    log::info(
        cat("host ", reconnection_.host, ": the link has not resumed yet: ", status.message()));
    // While a silent connection is open, try again: the new process may be in another network namespace, where it does
    // not find the agent.
    if (status.code() == Code::kAborted && !connection_) {
      fail(unavailable(cat(broken_.message(), "; ", status.message())));
      break;
    }
    const bool is_late = status.code() == Code::kDeadlineExceeded;
    pause_.expires_after(connection_ && !is_late ? kPauseBeside : pause);
    co_await pause_.async_wait(net::use_tuple);
    pause = std::min(2 * pause, kLongestPause);
    limit = std::min(limit + kLongerAttempt, kLongestAttempt);
  }
  is_respawning_ = false;
}

net::Task<Status> ResumableDuplex::Running::try_respawn(std::chrono::seconds limit) {
  const auto cancel = cancel_ = std::make_shared<asio::cancellation_signal>();
  const auto is_late = std::make_shared<bool>(false);
  asio::steady_timer timer(executor_, limit);
  timer.async_wait([cancel, is_late](const net::error_code& error) {
    if (error) return;
    *is_late = true;
    cancel->emit(asio::cancellation_type::terminal);
  });
  const auto [error, status] = co_await asio::co_spawn(
      executor_, open_another(), asio::bind_cancellation_slot(cancel->slot(), net::use_tuple));
  cancel_.reset();
  if (*is_late)
    co_return deadline_exceeded(cat("no other connection within ", limit.count(), " s"));
  if (error) co_return unavailable("the attempt to open another connection was cancelled");
  co_return status;
}

net::Task<Status> ResumableDuplex::Running::open_another() {
  auto spawned = co_await reconnection_.respawn(may_be_cut_off());
  if (!spawned.ok()) co_return spawned.status();
  Status status;
  // The agent may have answered on the current connection in the meantime.
  if (!is_settled()) status = co_await reattach(*spawned);
  if (*spawned) (*spawned)->close();
  co_return status;
}

net::Task<Status> ResumableDuplex::Running::reattach(std::unique_ptr<Duplex>& connection) {
  Reattach order{.session = stream_.id()};
  fill_random(order.nonce);
  const Bytes ordered = framed(order);
  const Status status = co_await connection->write(ordered);
  if (!status.ok()) co_return status;
  const auto offer = co_await read_offer(*connection);
  if (!offer.ok()) co_return offer.status();
  co_return co_await resume(connection, *offer, order.nonce);
}

net::Task<Status> ResumableDuplex::Running::resume(std::unique_ptr<Duplex>& connection,
                                                   Resume offer, Nonce of_launcher) {
  const auto self = shared_from_this();
  if (is_closed_ || !failure_.ok() || seconds_ <= 0) {
    co_return failed_precondition("the launcher has given up this host");
  }
  const auto answer = stream_.answer(offer, of_launcher);
  if (!answer.ok()) co_return answer.status();
  // The respawn command opens a second connection only after silence. The agent may since have answered on the first.
  const bool was_silent = is_silent() || (connection_ && reconnection_.respawn);
  // From now on, neither side uses the older connection.
  lose(connection_,
       unavailable(was_silent ? "the host did not answer" : "the agent opened another connection"));
  const uint64_t this_offer = ++offers_;
  const Bytes answered = framed(*answer);
  const Status status = co_await connection->write(answered);
  if (this_offer != offers_) co_return unavailable("a newer connection has replaced this one");
  if (is_closed_ || !failure_.ok()) co_return unavailable("the launcher has given up this host");
  if (!status.ok()) co_return status;
  limit_.cancel();
  is_mute_ = false;
  connection_ = std::move(connection);
  silence_before_ += std::exchange(silence_, 0);
  const std::string sentence =
      cat("host ", reconnection_.host,
          ": the link broke and continues over another connection: ", broken_.message());
  // The launcher itself reports a silence and its end.
  was_silent ? log::info(sentence) : log::warning(sentence);
  changed_.notify();
  asio::co_spawn(executor_, hold(push()), asio::detached);
  co_return Status();
}

void ResumableDuplex::Running::survive(double seconds, double silence_seconds) {
  replace_after_ = replace_link_after(silence_seconds > 0 ? silence_seconds : seconds);
  // An agent that notices the break late also starts its wait late, so wait twice as long as the agent.
  const double longest = 2 * reconnection_.agent_wait_seconds;
  seconds_ = reconnection_.is_by_agent ? seconds : std::min(seconds, longest);
}

void ResumableDuplex::Running::fail(Status why) {
  if (is_closed_ || !failure_.ok()) return;
  failure_ = std::move(why);
  if (connection_) {
    words_ = connection_->last_words();
    std::exchange(connection_, nullptr)->close();
  }
  limit_.cancel();
  pause_.cancel();
  if (const auto cancel = cancel_) cancel->emit(asio::cancellation_type::terminal);
  changed_.notify();
}

void ResumableDuplex::Running::close() {
  if (std::exchange(is_closed_, true)) return;
  limit_.cancel();
  pause_.cancel();
  if (const auto cancel = cancel_) cancel->emit(asio::cancellation_type::terminal);
  changed_.notify();
  const auto connection = std::exchange(connection_, nullptr);
  if (!connection) return;
  words_ = connection->last_words();
  if (is_pushing_ || is_mute_ || stream_.has_unsent() || !opening_.empty()) {
    return connection->close();
  }
  stream_.end();
  asio::co_spawn(executor_, send_goodbye(connection, stream_.take()), asio::detached);
}

ResumableDuplex::ResumableDuplex(asio::any_io_executor executor, std::unique_ptr<Duplex> first,
                                 Reconnection reconnection)
    : running_(std::make_shared<Running>(std::move(executor), std::move(first),
                                         std::move(reconnection))) {
  running_->start();
}

ResumableDuplex::~ResumableDuplex() { running_->close(); }

net::Task<Result<size_t>> ResumableDuplex::read_some(std::span<std::byte> buffer) {
  return running_->read_some(buffer);
}
net::Task<Status> ResumableDuplex::write(ByteView bytes) { return running_->write(bytes); }
void ResumableDuplex::survive(double seconds, double silence_seconds) {
  running_->survive(seconds, silence_seconds);
}
void ResumableDuplex::on_silence(double seconds) { running_->on_silence(seconds); }
void ResumableDuplex::close() { running_->close(); }
std::string ResumableDuplex::last_words() const { return running_->last_words(); }
const SessionId& ResumableDuplex::session() const { return running_->session(); }
net::Task<Status> ResumableDuplex::resume(std::shared_ptr<Running> running,
                                          std::unique_ptr<Duplex>& connection, Resume offer,
                                          Nonce of_launcher) {
  co_return co_await running->resume(connection, offer, of_launcher);
}

net::Task<Result<std::unique_ptr<Duplex>>> SessionSpawner::spawn(
    const SpawnTarget& target, std::function<void(SpawnStage)> on_stage) {
  auto connection = co_await inner_.spawn(target, std::move(on_stage));
  if (!connection.ok()) co_return connection.status();
  Reconnection reconnection{.host = target.host};
  reconnection.is_by_agent = how_ == Return::kByAgent;
  if (how_ == Return::kBySpawner) {
    reconnection.agent_wait_seconds = kAgentWaits;
    reconnection.respawn = [this, again = target](bool is_silent) mutable {
      again.may_ask = false;
      again.may_share = !is_silent;
      return inner_.spawn(again, [](SpawnStage) {});
    };
  }
  const auto executor = co_await net::asio::this_coro::executor;
  auto stream =
      std::make_unique<ResumableDuplex>(executor, *std::move(connection), std::move(reconnection));
  if (how_ == Return::kByAgent) {
    // Hosts of an elastic job may join and fail many times, so drop expired sessions.
    std::erase_if(sessions_, [](const auto& session) { return session.second.expired(); });
    sessions_[stream->session()] = stream->running();
  }
  co_return Result<std::unique_ptr<Duplex>>(std::move(stream));
}

net::Task<Status> SessionSpawner::resume(std::unique_ptr<Duplex>& connection, Resume offer,
                                         Nonce of_launcher) {
  const auto found = sessions_.find(offer.session);
  const auto running = found == sessions_.end() ? nullptr : found->second.lock();
  if (!running) {
    co_return failed_precondition("it runs no job with this host: the job of that agent has ended");
  }
  co_return co_await ResumableDuplex::resume(running, connection, offer, of_launcher);
}

}  // namespace hvd::launcher
