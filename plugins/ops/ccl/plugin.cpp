// The op plugin over oneCCL, for tensors in host memory.
#include <algorithm>

#include "base/platform_cpu.h"
#include "base/text.h"
#include "ops/ccl/communicator.h"
#include "ops/common/activity.h"
#include "ops/common/backend.h"
#include "ops/common/host_settings.h"
#include "ops/common/rounds.h"

namespace hvd::ops::ccl {
namespace {

constexpr char kHalves[] = "halves";
// A higher score than the built-in operations have: this backend is loaded only if it was selected explicitly.
constexpr int32_t kScore = 200;

class CclBackend : public Backend {
 public:
  CclBackend(const CclApi& api, const hvd_plugin_host& host, int32_t rank,
             std::shared_ptr<WakeEvent> event, bool has_halves)
      : has_halves_(has_halves),
        host_(host),
        rank_(rank),
        watch_(host, event),
        thread_(std::make_shared<CclThread>(api, std::move(event))) {
    thread_->start();
  }
  ~CclBackend() override {
    drop_all();
    thread_->end();
  }

  int32_t supports(const hvd_batch& batch) override {
    return can_run(batch, has_halves_) ? kScore : 0;
  }
  const char* activity(const hvd_batch& batch) override { return activity_of<"CCL">(batch.op); }
  Result<std::unique_ptr<BackendCommunicator>> open_communicator(
      const ProcessSetDescriptor& set) override {
    auto group = std::make_shared<CclGroup>();
    group->store = std::make_shared<CclStore>(host_, set.name("ccl") + "/", set.size() == 1,
                                              made_++, start_seconds(host_));
    group->members.index = set.index_of(rank_);
    group->members.size = set.size();
    return std::unique_ptr<BackendCommunicator>(
        std::make_unique<CclCommunicator>(thread_, std::move(group)));
  }
  void on_abort() override { thread_->end(); }

 private:
  const bool has_halves_;
  const hvd_plugin_host& host_;
  const int32_t rank_;
  const WakeWatch watch_;
  const std::shared_ptr<CclThread> thread_;
  int made_ = 0;
};

// Compares the state of oneCCL on all ranks. If a process has abandoned oneCCL, the job continues without it.
// If the states differ otherwise, the start fails.
Status agree(const hvd_plugin_host& host, const hvd_plugin_config& config,
             const Result<CclApi>& api) {
  const auto version = api.ok() ? Result<std::string>(api->title) : api.error();
  const std::string own = CclThread::has_abandoned() ? "!" : library_record(version);
  HVD_ASSIGN_OR_RETURN(const auto found, Rounds(host, config).exchange("ccl-library", {}, own));
  if (std::find(found.begin(), found.end(), "!") != found.end()) {
    const char* why =
        "oneCCL cannot begin anew in a process after a failure; tensors go through the "
        "built-in operations";
    host.log(host.host, 3, why);
    return failed_precondition(why);
  }
  HVD_RETURN_IF_ERROR(check_same_library(
      found, "all ranks need one version of oneCCL; HOROVOD_CCL_LIBRARY may name its library"));
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
    auto event = WakeEvent::make();
    const Status started = event.ok() ? start(*api, host, config) : event.status();
    const std::string own = cpu_has_avx512() ? kHalves : "";
    HVD_ASSIGN_OR_RETURN(const auto can, Rounds(host, config).exchange("ccl-start", started, own));
    const bool has_halves = std::count(can.begin(), can.end(), kHalves) == config.size;
    if (config.rank == 0) {
      host.log(host.host, 2,
               cat("tensor operations go through ", api->title, ", ", api->library).c_str());
    }
    return std::unique_ptr<Backend>(
        std::make_unique<CclBackend>(*api, host, config.rank, *std::move(event), has_halves));
  }
};

}  // namespace
}  // namespace hvd::ops::ccl

extern "C" __attribute__((visibility("default"))) const hvd_plugin* hvd_plugin_entry_v1(void);
extern "C" const hvd_plugin* hvd_plugin_entry_v1(void) {
  return &hvd::ops::BackendRecord<hvd::ops::ccl::Plugin>::kRecord;
}
