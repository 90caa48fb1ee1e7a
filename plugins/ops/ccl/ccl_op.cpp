// Tensor operations of oneCCL on host memory.
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>

#include "base/platform_cpu.h"
#include "base/text.h"
#include "ops/ccl/worker.h"
#include "ops/common/backend.h"
#include "ops/common/rounds.h"

namespace hvd::ops::ccl {
namespace {

constexpr double kStartSeconds = 600;
constexpr char kHalves[] = "halves";

class CclRunningBatch : public RunningBatch {
 public:
  explicit CclRunningBatch(std::shared_ptr<CclQueuedBatch> queued) : queued_(std::move(queued)) {}
  std::optional<Status> poll() override {
    if (!queued_->over.load(std::memory_order_acquire)) return std::nullopt;
    return queued_->status;
  }

 private:
  const std::shared_ptr<CclQueuedBatch> queued_;
};

class CclCommunicator : public BackendCommunicator {
 public:
  CclCommunicator(std::shared_ptr<Worker> worker, std::shared_ptr<Group> group)
      : worker_(std::move(worker)), group_(std::move(group)) {
    worker_->make(group_);
  }
  ~CclCommunicator() override { worker_->drop(group_); }
  bool wakes() const override { return true; }
  Result<std::shared_ptr<RunningBatch>> start(const hvd_batch& batch) override {
    auto queued = std::make_shared<CclQueuedBatch>(batch);
    worker_->add(group_, queued);
    return std::shared_ptr<RunningBatch>(std::make_shared<CclRunningBatch>(std::move(queued)));
  }

 private:
  const std::shared_ptr<Worker> worker_;
  const std::shared_ptr<Group> group_;
};

class CclBackend : public Backend {
 public:
  CclBackend(const Api& api, const hvd_plugin_host& host, const hvd_plugin_config& config,
             std::shared_ptr<UniqueFd> event, bool has_halves)
      : has_halves_(has_halves),
        host_(host),
        rank_(config.rank),
        event_(std::move(event)),
        worker_(Worker::start(api, event_)) {
    const char* set = host_.setting(host_.host, "HOROVOD_START_TIMEOUT");
    if (set != nullptr) seconds_ = parse_double(set).value_or(kStartSeconds);
    host_.watch(
        host_.host, event_->get(),
        [](void* self) {
          uint64_t count = 0;
          static_cast<void>(
              ::read(static_cast<CclBackend*>(self)->event_->get(), &count, sizeof count));
        },
        this);
  }
  ~CclBackend() override {
    drop_all();
    worker_->stop();
    host_.unwatch(host_.host, event_->get());
  }

  int32_t supports(const hvd_batch& batch) override {
    return can_run(batch, has_halves_) ? kScore : 0;
  }
  Result<std::unique_ptr<BackendCommunicator>> open_communicator(const ProcessSet& set) override {
    auto group = std::make_shared<Group>();
    group->store =
        std::make_shared<Store>(host_, set.name("ccl") + "/", set.size() == 1, made_++, seconds_);
    group->members.index = set.index_of(rank_);
    group->members.size = set.size();
    return std::unique_ptr<BackendCommunicator>(
        std::make_unique<CclCommunicator>(worker_, std::move(group)));
  }
  void on_abort() override { worker_->stop(); }
  const char* activity(const hvd_batch& batch) override {
    switch (batch.op) {
      case HVD_ALLREDUCE:
        return "CCL_ALLREDUCE";
      case HVD_ALLGATHER:
        return "CCL_ALLGATHER";
      case HVD_BROADCAST:
        return "CCL_BCAST";
      case HVD_ALLTOALL:
        return "CCL_ALLTOALL";
      case HVD_REDUCESCATTER:
        return "CCL_REDUCESCATTER";
      default:
        return nullptr;
    }
  }

 private:
  static constexpr int32_t kScore = 200;
  const bool has_halves_;
  const hvd_plugin_host& host_;
  const int32_t rank_;
  const std::shared_ptr<UniqueFd> event_;
  const std::shared_ptr<Worker> worker_;
  double seconds_ = kStartSeconds;
  int made_ = 0;
};

// Every rank tells what it has. A job in which oneCCL was left in the midst of something goes on
// without it; ranks that have different things do not begin.
Status agree(const hvd_plugin_host& host, const hvd_plugin_config& config, const Result<Api>& api) {
  const std::string own = Worker::has_abandoned() ? "!"
                          : api.ok()              ? "+" + api->title
                                                  : "-" + api.error().message();
  HVD_ASSIGN_OR_RETURN(const auto found, Rounds(host, config).exchange("ccl-library", {}, own));
  if (std::find(found.begin(), found.end(), "!") != found.end()) {
    const char* why =
        "oneCCL cannot begin anew in a process after a failure; tensors go through the "
        "built-in operations";
    host.log(host.host, 3, why);
    return failed_precondition(why);
  }
  const auto said = [&](size_t of) {
    return found[of].front() == '+' ? cat("has ", found[of].substr(1))
                                    : cat("has none: ", found[of].substr(1));
  };
  for (size_t rank = 1; rank < found.size(); ++rank) {
    if (found[rank].front() == found[0].front() &&
        (found[rank].front() == '-' || found[rank] == found[0])) {
      continue;
    }
    return unavailable(
        cat("rank 0 ", said(0), ", and rank ", rank, " ", said(rank),
            ": all ranks need one version of oneCCL; HOROVOD_CCL_LIBRARY may name its "
            "library"));
  }
  return api.status();
}

struct Plugin {
  static constexpr const char* kName = "ccl";
  static constexpr int32_t kPriority = 45;
  static Status probe() { return open_api().status(); }
  static Result<std::unique_ptr<Backend>> open(const hvd_plugin_host& host,
                                               const hvd_plugin_config& config) {
    auto api = open_api();
    HVD_RETURN_IF_ERROR(agree(host, config, api));
    auto event = std::make_shared<UniqueFd>(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    const Status started = *event ? start(*api, host, config)
                                  : internal_error("oneCCL: there is no event for its thread");
    const std::string own = cpu_has_avx512() ? kHalves : "";
    HVD_ASSIGN_OR_RETURN(const auto can, Rounds(host, config).exchange("ccl-start", started, own));
    const bool has_halves = std::count(can.begin(), can.end(), kHalves) == config.size;
    if (config.rank == 0) {
      host.log(host.host, 2,
               cat("tensor operations go through ", api->title, ", ", api->library).c_str());
    }
    return std::unique_ptr<Backend>(
        std::make_unique<CclBackend>(*api, host, config, std::move(event), has_halves));
  }
};

}  // namespace
}  // namespace hvd::ops::ccl

extern "C" __attribute__((visibility("default"))) const hvd_plugin* hvd_plugin_entry_v1(void);
extern "C" const hvd_plugin* hvd_plugin_entry_v1(void) {
  return &hvd::ops::BackendRecord<hvd::ops::ccl::Plugin>::kRecord;
}
