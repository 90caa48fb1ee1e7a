// The op plugin over Gloo, for tensors in host memory.
#include "base/text.h"
#include "ops/common/activity.h"
#include "ops/common/backend.h"
#include "ops/common/batch_memory.h"
#include "ops/common/host_settings.h"
#include "ops/common/rounds.h"
#include "ops/gloo/communicator.h"
#include "ops/gloo/library.h"

namespace hvd::ops::gloo_backend {
namespace {

constexpr double kTimeoutSeconds = 30;
// A higher score than the built-in operations have: this backend is loaded only if it was selected explicitly.
constexpr int32_t kScore = 200;

class GlooBackend : public Backend {
 public:
  explicit GlooBackend(GlooWorld world)
      : world_(std::move(world)), watch_(world_.host, world_.event) {}
  ~GlooBackend() override { drop_all(); }

  int32_t supports(const hvd_batch& batch) override { return is_known(batch) ? kScore : 0; }
  const char* activity(const hvd_batch& batch) override { return activity_of<"GLOO">(batch.op); }
  Result<std::unique_ptr<BackendCommunicator>> open_communicator(
      const ProcessSetDescriptor& set) override {
    return std::unique_ptr<BackendCommunicator>(std::make_unique<GlooCommunicator>(world_, set));
  }

 private:
  const GlooWorld world_;
  const WakeWatch watch_;
};

Status open_device(const hvd_plugin_host& host, const hvd_plugin_config& config,
                   std::shared_ptr<::gloo::transport::Device>* device) {
  try {
    *device = make_device(host, config);
    return {};
  } catch (const std::exception& failure) {
    const std::string text = failure.what();
    return unavailable(cat("Gloo: ", text.substr(0, text.find('\n')),
                           "; HOROVOD_GLOO_IFACE names the interface it uses"));
  }
}

struct Plugin {
  static constexpr const char* kName = "gloo";
  static constexpr int32_t kPriority = 40;
  static Status probe() { return {}; }
  static Result<std::unique_ptr<Backend>> open(const hvd_plugin_host& host,
                                               const hvd_plugin_config& config) {
    auto event = WakeEvent::make();
    std::shared_ptr<::gloo::transport::Device> device;
    const Status status = event.ok() ? open_device(host, config, &device) : event.status();
    HVD_RETURN_IF_ERROR(Rounds(host, config).exchange("gloo-device", status, "").status());
    if (config.rank == 0) host.log(host.host, 2, "tensor operations go through libgloo over TCP");
    const double timeout = number_of(host, "HOROVOD_GLOO_TIMEOUT_SECONDS", kTimeoutSeconds);
    return std::unique_ptr<Backend>(std::make_unique<GlooBackend>(
        GlooWorld{host, config.rank, config.size, timeout, std::move(device), *std::move(event)}));
  }
};

}  // namespace
}  // namespace hvd::ops::gloo_backend

extern "C" __attribute__((visibility("default"))) const hvd_plugin* hvd_plugin_entry_v1(void);
extern "C" const hvd_plugin* hvd_plugin_entry_v1(void) {
  return &hvd::ops::BackendRecord<hvd::ops::gloo_backend::Plugin>::kRecord;
}
