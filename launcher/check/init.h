// `horovodrun init [HOST...]`: writes a config file for some hosts, and tests these hosts.
#pragma once

#include <span>
#include <string>

#include "launcher/cli/options.h"

namespace hvd::launcher {

// True when the arguments begin with "init".
bool asks_for_config(std::span<const std::string> arguments);
// Without hosts it prints the names in the user's ssh configuration and connects to none of them: they may be
// machines in production, or ask for passwords. An existing file stays as it is. The exit code: 0 if all hosts are
// ready.
int make_config(std::span<const std::string> arguments);
// Notifies the user of such a file in the present directory that no flag names.
void notify_of_unread_config(const Options& options);

}  // namespace hvd::launcher
