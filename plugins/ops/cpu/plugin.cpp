// The built-in operations on host memory, over the links of the built-in controller.
#include "ops/cpu/backend.h"

namespace hvd::ops {
namespace {

struct CpuPlugin {
  static constexpr const char* kName = "cpu";
  static constexpr int32_t kPriority = 100;
  static Status probe() { return {}; }
  static Result<std::unique_ptr<CpuBackend>> open(const hvd_plugin_host& host,
                                                  const hvd_plugin_config&) {
    const auto* mesh =
        static_cast<const collectives::SharedMesh*>(host.lookup(host.host, collectives::kMeshName));
    if (mesh == nullptr) {
      return failed_precondition(
          "the cpu operations use the links of the tcp controller, which is not in use");
    }
    return std::make_unique<CpuBackend>(*mesh);
  }
};

}  // namespace
}  // namespace hvd::ops

extern "C" const hvd_plugin* hvd_builtin_op_cpu(void);
extern "C" const hvd_plugin* hvd_builtin_op_cpu(void) {
  return &hvd::ops::OpRecord<hvd::ops::CpuPlugin, hvd::ops::CpuBackend>::kRecord;
}
