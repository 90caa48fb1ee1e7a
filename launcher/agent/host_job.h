// What a launcher asks of one host's agent, and what it hears back. Data only, shared by both
// ends of the link.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace hvd::launcher {

struct RankSpec {
  int rank = 0;
  std::vector<std::pair<std::string, std::string>> environment;  // of this rank alone
};

struct HostJob {
  uint64_t job = 0;
  uint32_t generation = 0;
  uint32_t host = 0;             // index of the host in the plan
  std::string host_name;         // as in the plan
  std::vector<std::string> command;
  std::string working_directory;
  // Of all ranks of the host. Laid over the environment that the agent was started with, so that
  // a host keeps its own HOME, PATH and the like unless they are named here.
  std::vector<std::pair<std::string, std::string>> environment;
  std::vector<RankSpec> ranks;
  double lease_seconds = 60;
  bool insecure_compat = false;  // the ranks may be Horovod's own workers
  double kill_grace_seconds = 5; // between SIGTERM and SIGKILL
};

enum class OutputStream : uint8_t { kStdout = 1, kStderr = 2 };

struct RankExit {
  int rank = 0;
  int code = 0;          // exit status, when signal is 0
  int signal = 0;        // that ended it, or 0
  bool by_agent = false; // the agent ended it because the job was ending
};

}  // namespace hvd::launcher
