#include "runtime/bootstrap/world_notice.h"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/unique_fd.h"
#include "net/packet_socket.h"
#include "runtime/bootstrap/rank_claim.h"

namespace hvd::runtime {
namespace {

// Time limit for the agent's reply: a stopped agent must not stop its ranks.
constexpr int kAgentAnswerMs = 1000;
constexpr int kMostTries = 50;
constexpr int kPauseMs = 20;

// Connects to the agent with this process id. Any user can bind such a name, so the process id that
// the kernel reports is checked.
UniqueFd connect_to_agent(int64_t pid, const std::vector<std::string>& names) {
  const std::string prefix = rendezvous::world_report_prefix(pid);
  for (const std::string& name : names) {
    if (!name.starts_with(prefix)) continue;
    auto agent = net::connect_to_listener(name, SOCK_SEQPACKET);
    // Try again if the agent's queue of connections is full, because it starts many ranks.
    for (int tries = 0; agent && !agent->socket && tries < kMostTries; ++tries) {
      ::poll(nullptr, 0, kPauseMs);
      agent = net::connect_to_listener(name, SOCK_SEQPACKET);
    }
    if (agent && agent->pid == pid) return std::move(agent->socket);
  }
  return {};
}

}  // namespace

void notify_agent(const rendezvous::WorldReport& report) {
  const auto names = net::listening_names(rendezvous::kWorldReportNames);
  std::optional<int64_t> pid = ::getppid();
  for (int level = 0; level < kMostLevels && pid && *pid > 1; ++level, pid = parent_of(*pid)) {
    const UniqueFd agent = connect_to_agent(*pid, names);
    if (!agent) continue;
    const auto sent = net::send_packet(agent.get(), encode(report), {}, "the agent");
    if (!sent.ok() || !*sent) return;
    pollfd answer{agent.get(), POLLIN, 0};
    ::poll(&answer, 1, kAgentAnswerMs);
    return;
  }
}

}  // namespace hvd::runtime
