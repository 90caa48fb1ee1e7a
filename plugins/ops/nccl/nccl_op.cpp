// Tensor operations of NCCL, or of RCCL, on the memory of GPUs.
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <map>

#include "base/text.h"
#include "ops/common/backend.h"
#include "ops/common/rounds.h"
#include "ops/nccl/worker.h"

namespace hvd::ops::nccl {
namespace {

constexpr double kStartSeconds = 600;
constexpr int kMostChannels = 16;

// What the sets of a backend share.
struct Shared {
  Api api;
  const hvd_plugin_host& host;
  hvd_plugin_config config;
  Memory& memory;
  std::shared_ptr<UniqueFd> event;
  int device = -1;  // of this rank, once one of its tensors has told
  int channels = 1;
  std::vector<int32_t> host_of{};  // by rank
  bool is_torus = false;
  double start_seconds = kStartSeconds;
};

class NcclRunningBatch : public RunningBatch {
 public:
  NcclRunningBatch(std::shared_ptr<Worker> worker, std::shared_ptr<NcclQueuedBatch> queued)
      : worker_(std::move(worker)), queued_(std::move(queued)) {}
  std::optional<Status> poll() override {
    switch (queued_->state.load()) {
      case NcclQueuedBatch::kFailed:
        return queued_->status;
      case NcclQueuedBatch::kReached:
        return judge();
      default:
        return std::nullopt;
    }
  }

 private:
  // A broken communicator lets its stream come to its end.
  std::optional<Status> judge() {
    const Status status = queued_->channel->check();
    if (status.ok()) return status;
    worker_->doubt(queued_);
    return std::nullopt;
  }
  const std::shared_ptr<Worker> worker_;
  const std::shared_ptr<NcclQueuedBatch> queued_;
};

bool has_own_tensor(const hvd_batch& batch) {
  return std::any_of(batch.tensors, batch.tensors + batch.tensor_count,
                     [](const hvd_batch_tensor& one) { return one.input || one.output; });
}

class NcclCommunicator : public BackendCommunicator {
 public:
  NcclCommunicator(Shared& shared, std::string name, Place place, std::optional<Grid> grid)
      : shared_(shared), name_(std::move(name)), place_(place), grid_(grid) {}
  ~NcclCommunicator() override { cut(false); }

  Result<bool> is_ready() override {
    if (worker_) HVD_RETURN_IF_ERROR(worker_->judge());
    return true;
  }
  // The first batch tells which GPU it is: nothing of CUDA's is touched before.
  Result<std::shared_ptr<RunningBatch>> start(const hvd_batch& batch) override {
    HVD_RETURN_IF_ERROR(choose_device(batch));
    if (!worker_) {
      worker_ = Worker::start({shared_.api, shared_.memory, shared_.host, name_, place_, grid_,
                               shared_.is_torus, shared_.device, shared_.channels,
                               shared_.start_seconds, shared_.event});
    }
    auto queued = std::make_shared<NcclQueuedBatch>(batch);
    worker_->add(queued);
    return std::shared_ptr<RunningBatch>(
        std::make_shared<NcclRunningBatch>(worker_, std::move(queued)));
  }
  void abort() override { cut(true); }
  // A library that waits while it makes a communicator is watched by asking again.
  bool wakes() const override {
    return shared_.api.comm_init_rank_config != nullptr || !worker_ || !worker_->is_opening();
  }
  void cut(bool abort) {
    if (worker_) worker_->stop(abort);
  }

 private:
  Status choose_device(const hvd_batch& batch) {
    const int devices = shared_.api.devices;
    if (shared_.device < 0) {
      shared_.device = has_own_tensor(batch) ? batch.device : shared_.config.local_rank % devices;
    }
    if (shared_.device >= devices) {
      return invalid_argument(cat("a tensor is on device ", shared_.device, ", and ",
                                  shared_.api.runtime, " finds ", devices));
    }
    if (!has_own_tensor(batch) || batch.device == shared_.device) return {};
    return invalid_argument(cat("a tensor is on device ", batch.device,
                                ", and this rank's others "
                                "on device ",
                                shared_.device, ": a rank uses one GPU"));
  }

  Shared& shared_;
  const std::string name_;
  const Place place_;
  const std::optional<Grid> grid_;
  std::shared_ptr<Worker> worker_;
};

class NcclBackend : public Backend {
 public:
  explicit NcclBackend(Shared shared) : shared_(std::move(shared)) {
    shared_.host.watch(
        shared_.host.host, shared_.event->get(),
        [](void* self) {
          uint64_t count = 0;
          const int event = static_cast<NcclBackend*>(self)->shared_.event->get();
          static_cast<void>(::read(event, &count, sizeof count));
        },
        this);
  }
  ~NcclBackend() override {
    drop_all();
    shared_.host.unwatch(shared_.host.host, shared_.event->get());
  }

  int32_t supports(const hvd_batch& batch) override {
    const auto size = sizes_.find(batch.process_set);
    const bool has_factors = shared_.api.red_op_create_pre_mul_sum != nullptr;
    return can_run(batch, size == sizes_.end() ? 1 : size->second, has_factors) ? kScore : 0;
  }
  Result<std::unique_ptr<BackendCommunicator>> open_communicator(const ProcessSet& set) override {
    const int32_t rank = shared_.config.rank;
    sizes_[set.id] = set.size();
    return std::unique_ptr<BackendCommunicator>(std::make_unique<NcclCommunicator>(
        shared_, set.name("nccl"), Place{set.index_of(rank), set.size()},
        grid_of(set.members, rank, shared_.host_of)));
  }
  const char* activity(const hvd_batch& batch) override {
    switch (batch.op) {
      case HVD_ALLREDUCE:
        return "NCCL_ALLREDUCE";
      case HVD_ALLGATHER:
        return "NCCL_ALLGATHER";
      case HVD_BROADCAST:
        return "NCCL_BCAST";
      case HVD_ALLTOALL:
        return "NCCL_ALLTOALL";
      case HVD_REDUCESCATTER:
        return "NCCL_REDUCESCATTER";
      default:
        return nullptr;
    }
  }

 private:
  static constexpr int32_t kScore = 300;
  Shared shared_;
  std::map<int32_t, int32_t> sizes_;
};

// Every rank tells what it has. A job without any GPU goes on without this backend; ranks that have
// different things do not begin.
Status agree(const hvd_plugin_host& host, const hvd_plugin_config& config, const Result<Api>& api) {
  const std::string own = api.ok() ? "+" + api->title() : "-" + api.error().message();
  HVD_ASSIGN_OR_RETURN(const auto found, Rounds(host, config).exchange("nccl-library", {}, own));
  for (size_t rank = 1; rank < found.size(); ++rank) {
    if (found[rank].front() == found[0].front() &&
        (found[rank].front() == '-' || found[rank] == found[0])) {
      continue;
    }
    const auto said = [&](size_t of) {
      return found[of].front() == '+' ? cat("has ", found[of].substr(1))
                                      : cat("has none: ", found[of].substr(1));
    };
    return unavailable(
        cat("rank 0 ", said(0), ", and rank ", rank, " ", said(rank),
            ": all ranks need one version of NCCL; HOROVOD_NCCL_LIBRARY may name its "
            "library, and without HOROVOD_GPU_OPERATIONS=NCCL tensors of GPUs go "
            "through host memory"));
  }
  if (api.ok()) return {};
  host.log(host.host, 3,
           cat("HOROVOD_GPU_OPERATIONS is NCCL, but ", api.error().message(),
               "; tensors of GPUs go through host memory")
               .c_str());
  return failed_precondition(api.error().message());
}

// The host of each rank, by its number.
Result<std::vector<int32_t>> hosts_of(const hvd_plugin_host& host,
                                      const hvd_plugin_config& config) {
  HVD_ASSIGN_OR_RETURN(const auto found,
                       Rounds(host, config).exchange("nccl-hosts", {}, cat(config.cross_rank)));
  std::vector<int32_t> hosts;
  for (const std::string& one : found) {
    hosts.push_back(static_cast<int32_t>(parse_int(one).value_or(0)));
  }
  return hosts;
}

double number_of(const hvd_plugin_host& host, const char* variable, double otherwise) {
  const char* set = host.setting(host.host, variable);
  return set == nullptr ? otherwise : parse_double(set).value_or(otherwise);
}

struct Plugin {
  static constexpr const char* kName = "nccl";
  static constexpr int32_t kPriority = 60;
  static Status probe() { return open_api().status(); }
  static Result<std::unique_ptr<Backend>> open(const hvd_plugin_host& host,
                                               const hvd_plugin_config& config) {
    auto api = open_api();
    HVD_RETURN_IF_ERROR(agree(host, config, api));
    HVD_ASSIGN_OR_RETURN(std::vector<int32_t> hosts, hosts_of(host, config));
    auto event = std::make_shared<UniqueFd>(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    if (!*event) return internal_error("NCCL: there is no event for its threads");
    hvd_framework* framework = Memory::framework();
    host.publish(host.host, HVD_FRAMEWORK_OF_DEVICES, framework);
    if (config.rank == 0) {
      host.log(host.host, 2,
               cat("tensors of GPUs go through ", api->title(), ", ", api->library).c_str());
    }
    Shared shared{*std::move(api), host, config, Memory::of(*framework), std::move(event)};
    shared.channels = std::clamp(static_cast<int>(number_of(host, "HOROVOD_NUM_NCCL_STREAMS", 1)),
                                 1, kMostChannels);
    shared.host_of = std::move(hosts);
    shared.is_torus = number_of(host, "HOROVOD_TORUS_ALLREDUCE", 0) > 0;
    shared.start_seconds = number_of(host, "HOROVOD_START_TIMEOUT", kStartSeconds);
    return std::unique_ptr<Backend>(std::make_unique<NcclBackend>(std::move(shared)));
  }
};

}  // namespace
}  // namespace hvd::ops::nccl

extern "C" __attribute__((visibility("default"))) const hvd_plugin* hvd_plugin_entry_v1(void);
extern "C" const hvd_plugin* hvd_plugin_entry_v1(void) {
  return &hvd::ops::BackendRecord<hvd::ops::nccl::Plugin>::kRecord;
}
