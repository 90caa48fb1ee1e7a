// Tensor operations of NCCL, or of RCCL, on the memory of GPUs.
#include <algorithm>
#include <map>

#include "base/text.h"
#include "ops/common/activity.h"
#include "ops/common/backend.h"
#include "ops/common/host_settings.h"
#include "ops/common/rounds.h"
#include "ops/nccl/communicator.h"

namespace hvd::ops::nccl {
namespace {

constexpr int kMostChannels = 16;
constexpr int32_t kScore = 300;

class NcclBackend : public Backend {
 public:
  explicit NcclBackend(Shared shared)
      : shared_(std::move(shared)), watch_(shared_.host, shared_.event) {}
  ~NcclBackend() override { drop_all(); }

  int32_t supports(const hvd_batch& batch) override {
    const auto size = sizes_.find(batch.process_set);
    const bool has_factors = shared_.api.red_op_create_pre_mul_sum != nullptr;
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

// Every rank tells what it has. A job without any GPU goes on without this backend; ranks that have
// different things do not begin.
Status agree(const hvd_plugin_host& host, const hvd_plugin_config& config,
             const Result<NcclApi>& api) {
  const auto version = api.ok() ? Result<std::string>(api->title()) : api.error();
  HVD_ASSIGN_OR_RETURN(const auto found,
                       Rounds(host, config).exchange("nccl-library", {}, library_record(version)));
  HVD_RETURN_IF_ERROR(check_same_library(
      found,
      "all ranks need one version of NCCL; HOROVOD_NCCL_LIBRARY may name its library, and without "
      "HOROVOD_GPU_OPERATIONS=NCCL tensors of GPUs go through host memory"));
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
  hosts.reserve(found.size());
  for (const std::string& one : found) {
    hosts.push_back(static_cast<int32_t>(parse_int(one).value_or(0)));
  }
  return hosts;
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
    HVD_ASSIGN_OR_RETURN(auto event, WakeEvent::make());
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
    shared.start_seconds = start_seconds(host);
    return std::unique_ptr<Backend>(std::make_unique<NcclBackend>(std::move(shared)));
  }
};

}  // namespace
}  // namespace hvd::ops::nccl

extern "C" __attribute__((visibility("default"))) const hvd_plugin* hvd_plugin_entry_v1(void);
extern "C" const hvd_plugin* hvd_plugin_entry_v1(void) {
  return &hvd::ops::BackendRecord<hvd::ops::nccl::Plugin>::kRecord;
}
