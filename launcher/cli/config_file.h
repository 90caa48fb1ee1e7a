// Reads a config file (--config-file): YAML with the keys of the table in base/settings. Keys of the original Horovod
// are in the original's sections ("params: {cycle_time_ms: 5}"), other keys at the top level. Pure.
#pragma once

#include <string_view>

#include "base/result.h"
#include "base/settings.h"

namespace hvd::launcher {

// Sets the values of a config file. An error names `path` and the line, and for an unknown key the
// most similar known key.
Status apply_config(std::string_view text, std::string_view path, Settings& settings);

// Returns the key of a setting in a config file, or empty if it has no key.
std::string config_key(const Setting& setting);

}  // namespace hvd::launcher
