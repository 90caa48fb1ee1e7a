// The texts of `horovodrun init`: its config file, and its messages about hosts. Pure.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/check/format.h"

namespace hvd::launcher {

// Returns a config file for --config-file with these hosts (in the form of -H); other settings are comments in it.
std::string first_config(std::string_view hosts);

// Returns the names after Host in an ssh config file, in order, without patterns. Ignores included files.
std::vector<std::string> names_in_ssh_config(std::string_view text);

// Returns "Python 3.11.2 (/usr/bin/python3), PyTorch 2.13.0", or the reason why the host did not answer.
std::string host_summary(const HostCheck& host);
// Returns false also for a host without an answer.
bool has_python(const HostCheck& host);

// Returns the rows of Python and frameworks that differ between hosts: "PyTorch (on a: 2.13.0; on b: 1.13.1)".
std::vector<std::string> differing_software(std::span<const HostCheck> hosts);

}  // namespace hvd::launcher
