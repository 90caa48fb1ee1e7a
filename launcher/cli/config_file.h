// A config file: YAML whose keys are those of the table in base/settings, in sections as the
// original has them ("params: {cycle_time_ms: 5}"), others by their name at the top. Pure.
#pragma once

#include <string_view>

#include "base/result.h"
#include "base/settings.h"

namespace hvd::launcher {

// An error names `path` and the line, and for an unknown key the nearest known one.
Status apply_config(std::string_view text, std::string_view path, Settings& settings);

// The key of a setting in a config file, or empty when it has none.
std::string config_key(const Setting& setting);

}  // namespace hvd::launcher
