// The known_hosts files, looked up as OpenSSH does: every file, and by the names that it tries.
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
  // A @revoked or @cert-authority line speaks of the host: only the system's ssh heeds it.
  std::string marked_in;
};

// "[host]:2202" for any port but 22; "host" for that one.
std::string known_hosts_name(std::string_view host, int port);

// The keys of `name` in `files`; files and lines that cannot be read are left out. Needs libssh().
KnownHostKeys find_known_hosts(const std::string& name, const std::vector<std::string>& files);

// Adds a line (which ends with a newline), on a line of its own whatever the file ends with. The
// file, and the directory that it lies in, are made when they are missing.
Status append_known_host(const std::string& path, const std::string& line);

}  // namespace hvd::launcher
