// Whether the ranks of a job may change while it runs.
#pragma once

#include "launcher/settings/launch_settings.h"

namespace hvd::launcher {

// --host-discovery-script or --min-np makes a job elastic; no other flag does.
inline bool is_elastic(const LaunchSettings& settings) {
  return settings.elastic.host_discovery_script.has_value() ||
         settings.elastic.min_num_proc.has_value();
}

}  // namespace hvd::launcher
