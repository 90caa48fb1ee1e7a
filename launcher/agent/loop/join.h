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
  std::string address;       // "host:port" or "https://host:port"; `getent` resolves a name
  std::string name;          // this host's name in the job; empty: its hostname
  int slots = 0;             // 0: the number of processors that this process may use
  Bytes token;               // in the launcher's form: hexadecimal digits
  std::string ca_file = {};  // for an https:// address; empty: the system's authorities
};

constexpr std::string_view kHttps = "https://";

// Joins the launcher's job. Returns an error only when a further wait cannot help.
Result<Link> join(const JoinOptions& options);

}  // namespace hvd::launcher
