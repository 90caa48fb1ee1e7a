// The connection of `horovod-agent --join HOST:PORT` to the launcher: resolves the launcher's name,
// and waits without a limit until the launcher listens.
#pragma once

#include <string>
#include <string_view>

#include "base/bytes.h"
#include "base/result.h"
#include "launcher/agent/loop/link.h"

namespace hvd::launcher {

struct JoinOptions {
  std::string
      address;       // "host:port" or "https://host:port"; a name is asked of the system's `getent`
  std::string name;  // of this host in the job; empty: its hostname
  int slots = 0;     // 0: as many as it has processors for this process
  Bytes token;       // hexadecimal digits, as the launcher has them
  std::string ca_file = {};  // of an https:// address; empty: the system's authorities
};

constexpr std::string_view kHttps = "https://";

// Errors are those that no waiting mends.
Result<Link> join(const JoinOptions& options);

}  // namespace hvd::launcher
