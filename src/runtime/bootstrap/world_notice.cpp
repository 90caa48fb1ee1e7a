#include "runtime/bootstrap/world_notice.h"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdint>
#include <fstream>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/text.h"
#include "base/unique_fd.h"
#include "net/abstract_names.h"
#include "net/packet_socket.h"

namespace hvd::runtime {
namespace {

constexpr int kMostLevels = 64;
// An agent that is stopped does not keep its ranks from working.
constexpr int kAgentAnswerMs = 1000;

std::optional<int64_t> parent_of(int64_t pid) {
  std::ifstream file(cat("/proc/", pid, "/stat"));
  std::string stat;
  std::getline(file, stat, '\0');
  // Behind the name, which may hold anything: the state, and the parent.
  const size_t close = stat.rfind(')');
  if (close == std::string::npos || stat.size() < close + 5) return {};
  const size_t end = stat.find(' ', close + 4);
  return parse_int(stat.substr(close + 4, end - close - 4));
}

// Connects to the agent with this process id. Every user can bind such a name, and the kernel reports
// the process that did.
UniqueFd connect_to_agent(int64_t pid, const std::vector<std::string>& names) {
  const std::string prefix = rendezvous::world_report_prefix(pid);
  for (const std::string& name : names) {
    if (!name.starts_with(prefix)) continue;
    auto agent = net::connect_to_listener(name, SOCK_SEQPACKET);
    if (agent && agent->pid == pid) return std::move(agent->socket);
  }
  return {};
}

}  // namespace

void tell_agent(const rendezvous::WorldReport& report) {
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
