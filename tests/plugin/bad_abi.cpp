// A plugin of a later ABI, which the catalogue must refuse with a reason.
#include "horovod/plugin.h"

namespace {
int probe(char*, size_t) { return 1; }
int open(const hvd_plugin_host*, const hvd_plugin_config*, void**, char*, size_t) { return 0; }
const int kVtable = 0;
const hvd_plugin kRecord = {sizeof kRecord, 99,   HVD_PLUGIN_OP, "later", 1, HVD_THREADS_ANY, 0,
                            probe,          open, [](void*) {},  &kVtable};
}  // namespace

extern "C" __attribute__((visibility("default"))) const hvd_plugin* hvd_plugin_entry_v1(void) {
  return &kRecord;
}
