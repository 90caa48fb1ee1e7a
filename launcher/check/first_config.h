// The texts of `horovodrun init`: the config file that it writes, and what it says about hosts. Pure.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/check/format.h"

namespace hvd::launcher {

// A config file for --config-file with these hosts (as -H takes them); other settings stand in comments.
std::string first_config(std::string_view hosts);

// The names behind Host in a file of ssh, in their order, without patterns. Files that it includes are not read.
std::vector<std::string> names_in_ssh_config(std::string_view text);

// "Python 3.11.2 (/usr/bin/python3), PyTorch 2.13.0", or why there is no answer.
std::string host_summary(const HostCheck& host);
// False also of a host without an answer.
bool has_python(const HostCheck& host);

// Rows of Python and of frameworks in which hosts that answered differ: "PyTorch (on a: 2.13.0; on b: 1.13.1)".
std::vector<std::string> differing_software(std::span<const HostCheck> hosts);

}  // namespace hvd::launcher
