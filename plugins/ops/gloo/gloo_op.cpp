// Tensor operations of libgloo.
#include <sys/eventfd.h>
#include <unistd.h>

#include <map>
#include <set>

#include "base/text.h"
#include "base/unique_fd.h"
#include "ops/common/backend.h"
#include "ops/common/batch_memory.h"
#include "ops/common/rounds.h"
#include "ops/gloo/communicator.h"
#include "ops/gloo/mesh.h"

namespace hvd::ops::gloo_backend {
namespace {

constexpr double kTimeoutSeconds = 30;

class GlooBackend : public Backend {
 public:
  GlooBackend(const hvd_plugin_host& host, const hvd_plugin_config& config,
              std::shared_ptr<::gloo::transport::Device> device, UniqueFd event)
      : host_(host),
        rank_(config.rank),
        size_(config.size),
        device_(std::move(device)),
        event_(std::move(event)) {
    const char* set = host_.setting(host_.host, "HOROVOD_GLOO_TIMEOUT_SECONDS");
    if (set != nullptr) timeout_ = parse_double(set).value_or(kTimeoutSeconds);
    host_.watch(
        host_.host, event_.get(),
        [](void* self) {
          uint64_t count = 0;
          static_cast<void>(
              ::read(static_cast<GlooBackend*>(self)->event_.get(), &count, sizeof count));
        },
        this);
  }
  ~GlooBackend() override {
    drop_all();
    host_.unwatch(host_.host, event_.get());
  }

  int32_t supports(const hvd_batch& batch) override { return is_known(batch) ? kScore : 0; }
  bool wakes() const override { return true; }
  const char* activity(const hvd_batch& batch) override {
    switch (batch.op) {
      case HVD_ALLREDUCE:
        return "GLOO_ALLREDUCE";
      case HVD_ALLGATHER:
        return "GLOO_ALLGATHER";
      case HVD_BROADCAST:
        return "GLOO_BCAST";
      case HVD_ALLTOALL:
        return "GLOO_ALLTOALL";
      case HVD_REDUCESCATTER:
        return "GLOO_REDUCESCATTER";
      default:
        return nullptr;
    }
  }
  Result<std::unique_ptr<BackendCommunicator>> open_communicator(
      int32_t id, std::vector<int32_t> members) override {
    // The same set may come again: every member counts how often.
    const uint32_t times = incarnations_[{id, members}]++;
    std::string name = cat("gloo/", id, "/", times);
    for (const int32_t member : members) name += cat(".", member);
    const auto own = std::find(members.begin(), members.end(), rank_);
    const auto index = static_cast<int>(own - members.begin());
    const auto count = static_cast<int>(members.size());
    auto communicator = std::make_unique<GlooCommunicator>(
        [host = &host_, device = device_, name, index, count, everyone = count == size_,
         timeout = timeout_] {
          return connect(*host, device, name, index, count, everyone, timeout);
        },
        [event = event_.get()] {
          const uint64_t one = 1;
          static_cast<void>(::write(event, &one, sizeof one));
        });
    communicators_[id] = communicator.get();
    return std::unique_ptr<BackendCommunicator>(std::move(communicator));
  }
  void on_abort() override { cut_all(); }
  void on_drop(int32_t id) override { communicators_.erase(id); }

 private:
  static constexpr int32_t kScore = 200;
  void cut_all() {
    for (const auto& [id, communicator] : communicators_) communicator->cut();
  }

  const hvd_plugin_host& host_;
  const int32_t rank_, size_;
  const std::shared_ptr<::gloo::transport::Device> device_;
  const UniqueFd event_;
  double timeout_ = kTimeoutSeconds;
  std::map<int32_t, GlooCommunicator*> communicators_;
  std::map<std::pair<int32_t, std::vector<int32_t>>, uint32_t> incarnations_;
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
    UniqueFd event(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    if (!event) return internal_error("Gloo: there is no event for its threads");
    std::shared_ptr<::gloo::transport::Device> device;
    const Status status = open_device(host, config, &device);
    HVD_RETURN_IF_ERROR(Rounds(host, config).exchange("gloo-device", status, "").status());
    if (config.rank == 0) host.log(host.host, 2, "tensor operations go through libgloo over TCP");
    return std::unique_ptr<Backend>(
        std::make_unique<GlooBackend>(host, config, std::move(device), std::move(event)));
  }
};

}  // namespace
}  // namespace hvd::ops::gloo_backend

extern "C" __attribute__((visibility("default"))) const hvd_plugin* hvd_plugin_entry_v1(void);
extern "C" const hvd_plugin* hvd_plugin_entry_v1(void) {
  return &hvd::ops::BackendRecord<hvd::ops::gloo_backend::Plugin>::kRecord;
}
