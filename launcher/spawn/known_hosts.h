// The known_hosts files where libssh does less than ssh: keys with a marker, and writing.
#pragma once

#include <string>
#include <string_view>

#include "base/status.h"

namespace hvd::launcher {

// Whether known_hosts text has a @revoked or @cert-authority line that may speak of `host`, which
// libssh does not heed.
bool has_marked_key(std::string_view known_hosts, std::string_view host);

// Adds a line (which ends with a newline), on a line of its own whatever the file ends with. The
// file, and the directory that it lies in, are made when they are missing.
Status append_known_host(const std::string& path, const std::string& line);

}  // namespace hvd::launcher
