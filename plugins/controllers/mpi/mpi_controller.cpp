// The controller plugin over MPI: its C record, its polling pauses, and its failures.
#include <sys/timerfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <map>
#include <numeric>

#include "base/text.h"
#include "base/unique_fd.h"
#include "controllers/controller_plugin.h"
#include "controllers/mpi/message_channel.h"
#include "mpi/environment.h"

namespace hvd::controllers::mpi {
namespace {

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

extern "C" __attribute__((visibility("default"))) const hvd_plugin* hvd_plugin_entry_v1(void);
extern "C" const hvd_plugin* hvd_plugin_entry_v1(void) {
  return &hvd::controllers::ControllerRecord<hvd::controllers::mpi::Controller>::kRecord;
}
