// An op as a separate shared object.
#include "runtime/memory_world.h"

extern "C" __attribute__((visibility("default"))) const hvd_plugin* hvd_plugin_entry_v1(void) {
  return hvd::test::memory_op();
}
