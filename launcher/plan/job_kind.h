// Whether the ranks of a job may change while it runs.
#pragma once

#include "base/settings.h"

namespace hvd::launcher {

// --host-discovery-script or --min-np makes a job elastic; no other flag does.
inline bool is_elastic(const Settings& settings) {
  return settings.is_set("host_discovery_script") || settings.is_set("min_num_proc");
}

}  // namespace hvd::launcher
