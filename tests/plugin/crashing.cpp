// Two plugins: HVD_TEST_PROBE chooses a probe function that crashes or one that hangs.
#include <unistd.h>

#include "horovod/plugin.h"
#include "idle_op.h"

namespace {
int probe(char*, size_t) {
  volatile int* nowhere = nullptr;
  return *nowhere;
}
int hang(char*, size_t) {
  for (;;) ::pause();
}
int open(const hvd_plugin_host*, const hvd_plugin_config*, void**, char*, size_t) { return 0; }
const hvd_plugin kRecord = {
    sizeof kRecord, HVD_PLUGIN_ABI, HVD_PLUGIN_OP, "crashing", 1, HVD_THREADS_ANY, 0,
    HVD_TEST_PROBE, open,           [](void*) {},  &kIdleOp};
}  // namespace

extern "C" __attribute__((visibility("default"))) const hvd_plugin* hvd_plugin_entry_v1(void) {
  static_cast<void>(&probe);
  static_cast<void>(&hang);
  return &kRecord;
}
