// The connection of `horovod-agent --join HOST:PORT` to the launcher: resolves the launcher's name,
// and waits without a limit until the launcher listens and its job begins. The link uses TLS with the token as key,
// or, for an https:// address, with the launcher's certificate.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"
#include "base/secrets/secret.h"
#include "launcher/agent/link/link.h"

namespace hvd::launcher {

struct JoinOptions {
  std::string address;  // "host:port" or "https://host:port"; resolved by `getent`
  std::string name;     // this host's name in the job; empty: its host name
  int slots = 0;        // 0: the number of processors that this process may use
  Secret token;
  std::string ca_file = {};         // for an https:// address; empty: the system's authorities
  bool insecure_plaintext = false;  // no TLS
};

constexpr std::string_view kHttps = "https://";

// Joins the launcher's job. Returns an error only if waiting longer cannot help.
Result<OpenedLink> join(const JoinOptions& options);

}  // namespace hvd::launcher
