// Looks up host keys in known_hosts files as OpenSSH does: in every file, by the same names.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "launcher/spawn/ssh/libssh.h"

namespace hvd::launcher {

struct KnownHostKey {
  KeyPtr key;
  std::string file;
  int line = 0;
};

struct KnownHostKeys {
  std::vector<KnownHostKey> keys;
  // The place of a @revoked or @cert-authority line about the host; only the system's ssh supports
  // it.
  std::string marked_in;
};

// Returns "[host]:2202" for a port other than 22, and "host" for 22.
std::string known_hosts_name(std::string_view host, int port);

// Returns the keys of `name` in `files`. Skips unreadable files and lines. Needs libssh().
KnownHostKeys find_known_hosts(const std::string& name, const std::vector<std::string>& files);

// Appends a line, which ends with a newline. If the file does not end with a newline, the call adds
// one first. Creates the file and its directory if they are missing.
Status append_known_host(const std::string& path, const std::string& line);

}  // namespace hvd::launcher
