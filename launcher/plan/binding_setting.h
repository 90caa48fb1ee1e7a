// Checks --bind-to and related flags before a host is reached. Pure.
#pragma once

#include "base/settings.h"
#include "base/status.h"

namespace hvd::launcher {

Status check_binding(const Settings& settings);

}  // namespace hvd::launcher
