// Decides whether the user's settings accept the key of a host that no known_hosts file contains, and stores an
// accepted key. Works without libssh.
#pragma once

#include <string>
#include <string_view>

#include "base/status.h"
#include "launcher/spawn/ssh/ssh_login.h"

namespace hvd::launcher {

// Returns why the settings refuse the key of a host without known keys, as the end of a sentence; empty if they
// accept the key. `authority_in`: the position of a @cert-authority line for the host; may be empty.
std::string refusal_of_new_key(const SshLogin& login, std::string_view authority_in);

// Warns about an accepted new key. `added`: the result of adding it to the user's first file.
void report_new_key(const SshLogin& login, std::string_view fingerprint, const Status& added);

// Appends `line`, which ends with a newline, and first a newline if the file does not end with one.
// Creates the file and its directory if they are missing.
Status append_known_host(const std::string& path, const std::string& line);

}  // namespace hvd::launcher
