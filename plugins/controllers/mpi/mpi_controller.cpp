// The controller plugin over MPI.
#include <sched.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <numeric>
#include <vector>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/result.h"
#include "base/text.h"
#include "base/unique_fd.h"
#include "controllers/controller_plugin.h"
#include "mpi/api.h"
#include "mpi/job.h"

namespace hvd::controllers::mpi {
namespace {

using hvd::mpi::MpiComm;
using hvd::mpi::MpiJob;

// Messages between the ranks of a job over MPI, on a separate communicator. Messages from one rank to another arrive
// complete, once and in order. One caller at a time; only flush() and the destructor wait.
class MessageChannel {
 public:
  // The purpose of a message, sent as MPI's tag.
  enum class Kind { kMessage = 1, kAbort = 2 };
  using Receiver = std::function<void(Kind kind, int32_t from, ByteView message)>;

  MessageChannel(const MpiJob& job, std::unique_ptr<MpiComm> everyone)
      : job_(job), everyone_(std::move(everyone)), arrivals_(job.world_ranks.size()) {}
  // Leaks the memory of messages in flight.
  ~MessageChannel() {
    bool in_flight = !sent_.empty();
    for (auto& messages : arrivals_) in_flight |= !messages.empty();
    if (in_flight) {
      // MPI may still read and write this memory.
      hvd::mpi::abandon_mpi();
      for (auto& pending : sent_) static_cast<void>(pending.release());
      for (auto& messages : arrivals_) {
        for (auto& pending : messages) static_cast<void>(pending.release());
      }
      return;
    }
    if (!hvd::mpi::is_over(job_.api)) job_.api.comm_free(&everyone_->comm);
  }
  MessageChannel(const MessageChannel&) = delete;

  Status send(Kind kind, int32_t to, ByteView message) {
    if (to < 0 || to >= everyone_->size) {
      return invalid_argument(cat("there is no rank ", to, " among ", everyone_->size));
    }
    if (message.size() > INT_MAX) {
      return invalid_argument(cat("a message of ", message.size(), " bytes is too large for MPI"));
    }
    Bytes bytes(message.begin(), message.end());
    if (to == everyone_->index) {
      own_.push_back(std::move(bytes));
      return {};
    }
    // From here on MPI may use the message's memory, even if the call fails.
    sent_.emplace_back(new PendingMessage{kind, std::move(bytes), job_.api.handles.no_request});
    PendingMessage& pending = *sent_.back();
    HVD_RETURN_IF_ERROR(
        check(job_.api.isend(pending.bytes.data(), static_cast<int>(pending.bytes.size()),
                             job_.api.handles.types[HVD_UINT8], to, static_cast<int>(kind),
                             everyone_->comm, &pending.request)));
    HVD_ASSIGN_OR_RETURN(const bool is_sent, is_done(pending));
    if (is_sent) sent_.pop_back();
    return {};
  }
  // Passes received messages to the owner and advances sends. Returns true if any message moved.
  Result<bool> poll(const Receiver& receiver) {
    HVD_ASSIGN_OR_RETURN(bool moved, probe_messages());
    HVD_ASSIGN_OR_RETURN(const bool delivered, deliver(receiver));
    HVD_ASSIGN_OR_RETURN(const bool sent, remove_sent());
    return moved || delivered || sent;
  }
  // Returns whether poll() has work: incomplete sends, or messages that wait to be received.
  bool has_work() const { return !sent_.empty() || !own_.empty() || receiving_ > 0; }
  // Polls until all sends are complete; returns false if the deadline passed first.
  bool flush(Deadline deadline) {
    const Receiver nobody = [](Kind, int32_t, ByteView) {};
    for (;;) {
      if (!poll(nobody).ok()) return false;
      if (!has_work()) return true;
      if (deadline.passed()) return false;
      ::sched_yield();
    }
  }

 private:
  struct PendingMessage {
    Kind kind;
    Bytes bytes;
    MPI_Request request;
  };
  Status check(int code) const {
    if (code == MPI_SUCCESS) return {};
    return aborted(cat("MPI cannot carry messages: ", hvd::mpi::describe(job_.api, code)));
  }
  Result<bool> is_done(PendingMessage& pending) const {
    int done = 0;
    HVD_RETURN_IF_ERROR(check(job_.api.testall(1, &pending.request, &done, MPI_STATUSES_IGNORE)));
    return done != 0;
  }
  // Posts a receive for every message that has begun to arrive: MPI_Iprobe reports a rank's next message only after
  // that.
  Result<bool> probe_messages() {
    const auto& api = job_.api;
    bool moved = false;
    for (;;) {
      int there = 0;
      MPI_Status status{};
      HVD_RETURN_IF_ERROR(
          check(api.iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, everyone_->comm, &there, &status)));
      if (there == 0) return moved;
      const MPI_Datatype bytes = api.handles.types[HVD_UINT8];
      int size = 0;
      HVD_RETURN_IF_ERROR(check(api.get_count(&status, bytes, &size)));
      std::unique_ptr<PendingMessage> pending(new PendingMessage{static_cast<Kind>(status.MPI_TAG),
                                                                 Bytes(static_cast<size_t>(size)),
                                                                 api.handles.no_request});
      HVD_RETURN_IF_ERROR(check(api.irecv(pending->bytes.data(), size, bytes, status.MPI_SOURCE,
                                          status.MPI_TAG, everyone_->comm, &pending->request)));
      arrivals_[static_cast<size_t>(status.MPI_SOURCE)].push_back(std::move(pending));
      ++receiving_;
      moved = true;
    }
  }
  Result<bool> deliver(const Receiver& receiver) {
    bool moved = false;
    for (size_t count = own_.size(); count > 0; --count) {
      const Bytes message = std::move(own_.front());
      own_.pop_front();
      receiver(Kind::kMessage, everyone_->index, message);
      moved = true;
    }
    for (size_t from = 0; from < arrivals_.size() && receiving_ > 0; ++from) {
      auto& messages = arrivals_[from];
      while (!messages.empty()) {
        HVD_ASSIGN_OR_RETURN(const bool is_here, is_done(*messages.front()));
        if (!is_here) break;
        const auto pending = std::move(messages.front());
        messages.pop_front();
        --receiving_;
        receiver(pending->kind, static_cast<int32_t>(from), pending->bytes);
        moved = true;
      }
    }
    return moved;
  }
  Result<bool> remove_sent() {
    bool moved = false;
    for (auto pending = sent_.begin(); pending != sent_.end();) {
      HVD_ASSIGN_OR_RETURN(const bool is_sent, is_done(**pending));
      pending = is_sent ? sent_.erase(pending) : pending + 1;
      moved |= is_sent;
    }
    return moved;
  }

  const MpiJob& job_;
  const std::unique_ptr<MpiComm> everyone_;
  // MPI keeps the addresses of messages, so they must not move.
  std::deque<std::unique_ptr<PendingMessage>> sent_;
  std::vector<std::deque<std::unique_ptr<PendingMessage>>> arrivals_;  // by rank, in order
  std::deque<Bytes> own_;                                              // messages to this rank
  size_t receiving_ = 0;
};

using Nanoseconds = std::chrono::nanoseconds;
using Clock = std::chrono::steady_clock;

// MPI gives no notification when a message arrives, and its own waits keep a processor busy. The sleeping thread
// therefore polls. The pauses double from kShortest to 1 / kPartOfQuiet of the time since the last message;
// this bound is at least kUsual and at most kLongest.
constexpr Nanoseconds kShortest = std::chrono::microseconds(50);
constexpr Nanoseconds kUsual = std::chrono::milliseconds(1);
constexpr Nanoseconds kLongest = std::chrono::milliseconds(250);
constexpr int kPartOfQuiet = 100;
// Time limits for the last messages of a rank that leaves or fails.
constexpr double kLeaveSeconds = 10;
constexpr double kFailSeconds = 1;

class Controller {
 public:
  static constexpr const char* kName = "mpi";
  static constexpr int32_t kPriority = 50;
  static Status probe() { return hvd::mpi::judge_environment(); }
  static Result<std::unique_ptr<Controller>> open(const hvd_plugin_host& host,
                                                  const hvd_plugin_config& config);
  ~Controller();
  Controller(const Controller&) = delete;

  Status send(int32_t to, ByteView message) {
    if (!failure_.ok()) return failure_;
    be_awake();
    return channel_->send(MessageChannel::Kind::kMessage, to, message);
  }
  template <typename OnMessage>
  Status poll(OnMessage on_message, bool& progressed);
  int32_t lost_rank() const { return failure_.lost_rank(); }
  void abort(const Status& cause);
  const std::vector<int32_t>& hosts() const { return hosts_; }
  bool before_sleep();
  void after_sleep() {}

 private:
  Controller(const hvd_plugin_host& host, MpiJob job, UniqueFd timer)
      : host_(host), job_(std::move(job)), timer_(std::move(timer)) {}
  void number_hosts();
  void be_awake() {
    pause_ = kShortest;
    last_moved_ = Clock::now();
  }

  const hvd_plugin_host& host_;
  const MpiJob job_;
  const UniqueFd timer_;
  std::unique_ptr<MessageChannel> channel_;
  std::vector<int32_t> hosts_;
  Nanoseconds pause_ = kShortest;
  Clock::time_point last_moved_ = Clock::now();
  Status failure_;
  bool is_watched_ = false;
};

Status can_call(const MpiJob& job) {
  if (job.threads >= MPI_THREAD_SERIALIZED) return {};
  return failed_precondition(
      "HOROVOD_CONTROLLER=mpi calls MPI from a thread of its own, which the program has forbidden "
      "when it initialised MPI: initialise it with MPI_THREAD_SERIALIZED at least, as mpi4py does, "
      "or unset HOROVOD_CONTROLLER");
}

Result<std::unique_ptr<Controller>> Controller::open(const hvd_plugin_host& host,
                                                     const hvd_plugin_config& config) {
  HVD_ASSIGN_OR_RETURN(MpiJob job,
                       hvd::mpi::join_job(host, config, "mpi-controller", "HOROVOD_CONTROLLER"));
  HVD_RETURN_IF_ERROR(can_call(job));
  UniqueFd timer(::timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK));
  if (!timer) return system_error("cannot make a timer", errno);
  if (config.rank == 0) {
    const std::string text =
        cat("messages between ranks go through ", job.version, ", ", job.api.library);
    host.log(host.host, 2, text.c_str());
  }
  std::unique_ptr<Controller> controller(new Controller(host, std::move(job), std::move(timer)));
  std::vector<int32_t> all(static_cast<size_t>(config.size));
  std::iota(all.begin(), all.end(), 0);
  auto everyone = std::make_unique<MpiComm>();
  const MpiJob& kept = controller->job_;
  hvd::mpi::make_communicator(kept.api, kept.world_ranks, config.rank, all, everyone.get());
  if (everyone->state != 1) return internal_error("MPI makes no communicator of all ranks");
  controller->channel_ = std::make_unique<MessageChannel>(kept, std::move(everyone));
  controller->number_hosts();
  const auto notice = [](void* self) {
    uint64_t count = 0;
    static_cast<void>(::read(static_cast<Controller*>(self)->timer_.get(), &count, sizeof count));
  };
  if (host.watch(host.host, controller->timer_.get(), notice, controller.get()) != HVD_OK) {
    return internal_error("the host cannot watch a timer");
  }
  controller->is_watched_ = true;
  return controller;
}

Controller::~Controller() {
  if (is_watched_) host_.unwatch(host_.host, timer_.get());
  if (!failure_.ok()) hvd::mpi::abandon_mpi();
  if (channel_ && failure_.ok() && !hvd::mpi::is_over(job_.api)) {
    channel_->flush(Deadline::after_seconds(kLeaveSeconds));
  }
}

void Controller::number_hosts() {
  std::map<std::string, int32_t> numbers;
  for (const std::string& machine : job_.machines) {
    hosts_.push_back(
        numbers.try_emplace(machine, static_cast<int32_t>(numbers.size())).first->second);
  }
}

template <typename OnMessage>
Status Controller::poll(OnMessage on_message, bool& progressed) {
  if (!failure_.ok()) {
    // Other ranks may not have received the abort message yet.
    if (channel_->has_work())
      static_cast<void>(channel_->poll([](MessageChannel::Kind, int32_t, ByteView) {}).ok());
    return failure_;
  }
  Status ended;
  const Result<bool> moved =
      channel_->poll([&](MessageChannel::Kind kind, int32_t from, ByteView message) {
        if (!ended.ok()) return;
        if (kind == MessageChannel::Kind::kMessage) return on_message(from, message);
        ByteReader in(message);
        const auto lost_rank = in.get<int32_t>();
        ended = aborted(in.get_text()).with_lost_rank(lost_rank);
        if (const Status whole = in.finish("a peer's abort"); !whole.ok()) ended = whole;
      });
  if (!moved.ok()) abort(moved.error());
  if (!ended.ok()) failure_ = ended;
  if (moved.ok() && *moved) {
    be_awake();
    progressed = true;
  }
  return failure_;
}

void Controller::abort(const Status& cause) {
  if (!failure_.ok()) return;
  failure_ = cause;
  const auto size = static_cast<int32_t>(job_.world_ranks.size());
  const Bytes message = ByteWriter().put(cause.lost_rank()).put_text(cause.message()).take();
  for (int32_t rank = 0; rank < size; ++rank) {
    if (rank == job_.rank) continue;
    const Status sent = channel_->send(MessageChannel::Kind::kAbort, rank, message);
    if (!sent.ok()) return;
  }
  channel_->flush(Deadline::after_seconds(kFailSeconds));
}

bool Controller::before_sleep() {
  if (!failure_.ok()) return true;
  if (channel_->has_work()) be_awake();
  const itimerspec when{{}, {0, static_cast<long>(pause_.count())}};
  ::timerfd_settime(timer_.get(), 0, &when, nullptr);
  const Nanoseconds quiet = Clock::now() - last_moved_;
  pause_ = std::min(2 * pause_, std::clamp<Nanoseconds>(quiet / kPartOfQuiet, kUsual, kLongest));
  return true;
}

}  // namespace
}  // namespace hvd::controllers::mpi

HVD_PLUGIN_ENTRY(hvd::controllers::ControllerRecord<hvd::controllers::mpi::Controller>)
