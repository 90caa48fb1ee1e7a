// `horovodrun init [HOST...]`: writes a config file for some hosts, and tests these hosts.
#pragma once

#include <span>
#include <string>

#include "launcher/plan/launch_settings.h"

namespace hvd::launcher {

bool asks_for_config(std::span<const std::string> arguments);
// Without hosts, prints the names in the user's ssh configuration. Does not connect to these machines: they may be in
// production, or ask for passwords. Never overwrites a file. Returns the exit code, 0 if all hosts are ready.
int make_config(std::span<const std::string> arguments);
// Notifies the user of a config file of `horovodrun init` in the current directory that no flag names.
void notify_of_unread_config(const Options& options);

}  // namespace hvd::launcher
