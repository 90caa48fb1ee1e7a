// The op plugin over NCCL or RCCL, for tensors in GPU memory.
#include <algorithm>
#include <map>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "base/cores.h"
#include "base/machine_identity.h"
#include "base/plugin_record.h"
#include "base/text.h"
#include "ops/common/backend.h"
#include "ops/common/op_plugin.h"
#include "ops/common/rounds.h"
#include "ops/nccl/thread.h"

namespace hvd::ops::nccl {
namespace {

// The state that all communicators of the backend share.
struct Shared {
  Result<NcclApi> api;
  const hvd_plugin_host& host;
  hvd_plugin_config config;
  Memory& memory;
  std::shared_ptr<WakeEvent> event;
  std::string lacks{};             // why this rank has no GPU; empty: it has one
  std::vector<int32_t> host_of{};  // by rank
  bool is_torus = false;
  // True: the first trial opens the libraries of NCCL and CUDA, so that the program can load its own versions first.
  bool opens_late = false;
  double start_seconds = 600;
  std::string hostname{};
  std::shared_ptr<NcclThread> thread{};  // null before the first batch
};

std::vector<int32_t> indexes_of(int32_t size) {
  std::vector<int32_t> indexes(static_cast<size_t>(size));
  std::iota(indexes.begin(), indexes.end(), 0);
  return indexes;
}

class NcclCommunicator : public BackendCommunicator {
 public:
  NcclCommunicator(Shared& shared, const ProcessSetDescriptor& set)
      : shared_(shared),
        set_(std::make_shared<NcclSet>(
            NcclSet{set.id,
                    set.name("nccl"),
                    set.members,
                    {set.index_of(shared.config.rank), set.size()},
                    grid_of(set.members, shared.config.rank, shared.host_of),
                    indexes_of(set.size())})) {}
  ~NcclCommunicator() override {
    if (shared_.thread) shared_.thread->drop(set_);
  }
  Result<bool> is_ready() override {
    if (shared_.thread) HVD_RETURN_IF_ERROR(shared_.thread->judge());
    return true;
  }
  // The first batch starts the thread and names this rank's GPU. No CUDA call precedes the first batch. On a rank
  // without a GPU, returns an error unless the batch is a trial.
  Result<std::shared_ptr<RunningBatch>> start(const hvd_batch& batch) override {
    if (!shared_.lacks.empty() && !is_trial(batch)) {
      return failed_precondition(cat("a tensor of GPUs needs rank ", shared_.config.rank, ", and ",
                                     shared_.lacks,
                                     "; leave that rank out of the tensor's process set"));
    }
    if (!shared_.thread) {
      if (shared_.opens_late && shared_.lacks.empty()) shared_.api = open_api();
      shared_.thread = std::make_shared<NcclThread>(ThreadPlan{
          shared_.api, shared_.memory, shared_.host, shared_.is_torus, batch.device,
          shared_.config.local_rank, shared_.start_seconds, shared_.hostname, shared_.event});
      shared_.thread->start();
    }
    auto queued = std::make_shared<NcclBatch>(shared_.thread, set_, batch);
    shared_.thread->add(queued);
    return std::shared_ptr<RunningBatch>(std::move(queued));
  }
  void begin_abort() override {
    if (shared_.thread) shared_.thread->begin_abort();
  }
  void abort(Deadline until) override {
    if (shared_.thread) shared_.thread->end(until);
  }
  // No event ends a blocking creation of a communicator: the progress thread must poll its time limit.
  bool wakes() const override { return !shared_.thread || !shared_.thread->is_blocked(); }

 private:
  Shared& shared_;
  const std::shared_ptr<NcclSet> set_;
};

constexpr int32_t kScore = 300;

class NcclBackend : public Backend {
 public:
  explicit NcclBackend(Shared shared)
      : shared_(std::move(shared)), watch_(shared_.host, shared_.event) {}
  ~NcclBackend() override {
    drop_all();
    if (shared_.thread) shared_.thread->end(LibraryThread::end_limit());
  }

  int32_t supports(const hvd_batch& batch) override {
    const auto size = sizes_.find(batch.process_set);
    // A rank without a GPU accepts every batch that other ranks may accept; its error then ends the job. If the library
    // is not open yet, assumes factors: every NCCL that a trial can select has them.
    const bool has_factors = !shared_.api.ok() || shared_.api->red_op_create_pre_mul_sum != nullptr;
    return can_run(batch, size == sizes_.end() ? 1 : size->second, has_factors) ? kScore : 0;
  }
  const char* activity(const hvd_batch& batch) override { return activity_of<"NCCL">(batch.op); }
  Result<std::unique_ptr<BackendCommunicator>> open_communicator(
      const ProcessSetDescriptor& set) override {
    sizes_[set.id] = set.size();
    return std::unique_ptr<BackendCommunicator>(std::make_unique<NcclCommunicator>(shared_, set));
  }

 private:
  Shared shared_;
  const WakeWatch watch_;
  std::map<int32_t, int32_t> sizes_;
};

// First byte of the record of a rank without a GPU.
constexpr char kNoGpu = '0';

// Logs settings without effect and the ranks without a GPU, on the first rank that has a GPU.
void log_found(const hvd_plugin_host& host, const std::vector<std::string>& found) {
  if (const double streams = number_of(host, "HOROVOD_NUM_NCCL_STREAMS", 1); streams > 1) {
    host.log(host.host, 3,
             cat("HOROVOD_NUM_NCCL_STREAMS is ", streams,
                 ", but the batches of all process sets use one stream, in the order on which the "
                 "ranks agree: more streams have no effect")
                 .c_str());
  }
  std::string without;
  for (size_t rank = 0; rank < found.size(); ++rank) {
    if (found[rank].starts_with(kNoGpu)) without += cat(without.empty() ? "" : ", ", rank);
  }
  if (without.empty()) return;
  host.log(
      host.host, 3,
      cat("ranks without a GPU: ", without, "; they take part in operations on host memory only")
          .c_str());
}

// Compares the libraries of all ranks. Without any GPU, the job continues without this backend. A rank without a GPU
// opens the backend too; ranks with GPUs need the same version of NCCL. Returns an error if this rank must not open the
// backend.
Status agree(const hvd_plugin_host& host, const hvd_plugin_config& config, bool has_gpu,
             const Result<NcclApi>& api) {
  const auto version = api.ok() ? Result<std::string>(api->title()) : api.error();
  HVD_ASSIGN_OR_RETURN(auto found, Rounds(host, config)
                                       .exchange("nccl-library", {},
                                                 has_gpu ? library_record(version)
                                                         : kNoGpu + api.error().message()));
  const auto first = std::find_if(found.begin(), found.end(),
                                  [](const std::string& one) { return one.starts_with('+'); });
  const bool is_used = first != found.end();
  if (first - found.begin() == config.rank) {
    host.log(host.host, 2,
             cat("tensors of GPUs go through ", api->title(), ", ", api->library,
                 ": HOROVOD_GPU_OPERATIONS is NCCL")
                 .c_str());
    log_found(host, found);
  }
  for (std::string& one : found) {
    if (one.starts_with(kNoGpu)) one = is_used ? *first : "-" + one.substr(1);
  }
  HVD_RETURN_IF_ERROR(check_same_library(
      found,
      "all ranks need one version of NCCL; HOROVOD_NCCL_LIBRARY may name its library, and without "
      "HOROVOD_GPU_OPERATIONS=NCCL tensors of GPUs go through host memory"));
  if (is_used) return {};
  host.log(host.host, 3,
           cat("HOROVOD_GPU_OPERATIONS is NCCL, but ", api.error().message(),
               "; tensors of GPUs go through host memory")
               .c_str());
  return failed_precondition(api.error().message());
}

// Exchanges which ranks have a GPU, for a backend that trials choose. The ranks compare their libraries later, in the
// trial of each process set.
Status note_gpus(const hvd_plugin_host& host, const hvd_plugin_config& config, const Status& gpu) {
  HVD_ASSIGN_OR_RETURN(
      const auto found,
      Rounds(host, config).exchange("nccl-library", {}, gpu.ok() ? "+" : kNoGpu + gpu.message()));
  const auto first = std::find(found.begin(), found.end(), "+");
  if (first - found.begin() == config.rank) log_found(host, found);
  return {};
}

// Returns the number of each rank's host.
Result<std::vector<int32_t>> hosts_of(const hvd_plugin_host& host,
                                      const hvd_plugin_config& config) {
  HVD_ASSIGN_OR_RETURN(const auto found,
                       Rounds(host, config).exchange("nccl-hosts", {}, cat(config.cross_rank)));
  std::vector<int32_t> hosts;
  hosts.reserve(found.size());
  for (const std::string& one : found) {
    hosts.push_back(static_cast<int32_t>(parse_int(one).value_or(0)));
  }
  return hosts;
}

struct Plugin {
  static constexpr const char* kName = "nccl";
  static constexpr int32_t kPriority = 60;
  static Status probe() {
    HVD_RETURN_IF_ERROR(find_gpu_driver());
    return open_api().status();
  }
  static Result<std::unique_ptr<Backend>> open(const hvd_plugin_host& host,
                                               const hvd_plugin_config& config) {
    const Status gpu = find_gpu_driver();
    const bool is_tried = field_of(config, &hvd_plugin_config::is_tried) != 0;
    auto api = Result<NcclApi>(gpu.ok() ? unavailable("NCCL is not open yet") : gpu);
    if (is_tried) {
      HVD_RETURN_IF_ERROR(note_gpus(host, config, gpu));
    } else {
      if (gpu.ok()) api = open_api();
      HVD_RETURN_IF_ERROR(agree(host, config, gpu.ok(), api));
    }
    HVD_ASSIGN_OR_RETURN(std::vector<int32_t> hosts, hosts_of(host, config));
    HVD_ASSIGN_OR_RETURN(auto event, WakeEvent::make());
    hvd_framework* framework = Memory::framework();
    host.publish(host.host, HVD_FRAMEWORK_OF_DEVICES, framework);
    Shared shared{std::move(api),   host,         config, Memory::of(*framework),
                  std::move(event), gpu.message()};
    shared.opens_late = is_tried;
    // Other launchers do not set the variable.
    const char* name = host.setting(host.host, "HOROVOD_HOSTNAME");
    shared.hostname = name == nullptr || *name == '\0' ? own_host_name() : name;
    shared.host_of = std::move(hosts);
    shared.is_torus = number_of(host, "HOROVOD_TORUS_ALLREDUCE", 0) > 0;
    shared.start_seconds = start_seconds(host);
    return std::unique_ptr<Backend>(std::make_unique<NcclBackend>(std::move(shared)));
  }
};

}  // namespace
}  // namespace hvd::ops::nccl

HVD_PLUGIN_ENTRY(hvd::ops::BackendRecord<hvd::ops::nccl::Plugin>)
