// Reads settings of the job through the plugin host. Backends call these functions when they start.
#pragma once

#include "base/text.h"
#include "horovod/plugin.h"

namespace hvd::ops {

inline double number_of(const hvd_plugin_host& host, const char* variable, double otherwise) {
  const char* set = host.setting(host.host, variable);
  return set == nullptr ? otherwise : parse_double(set).value_or(otherwise);
}

// Returns the time in seconds that ranks wait for each other before the first batch of a process set.
inline double start_seconds(const hvd_plugin_host& host) {
  return number_of(host, "HOROVOD_START_TIMEOUT", 600);
}

}  // namespace hvd::ops
