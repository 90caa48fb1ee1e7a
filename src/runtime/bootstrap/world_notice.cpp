#include "runtime/bootstrap/world_notice.h"

#include <poll.h>
#include <unistd.h>

#include <cstdint>
#include <fstream>
#include <optional>
#include <string>

#include "base/text.h"
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

}  // namespace

void tell_agent(const rendezvous::WorldReport& report) {
  std::optional<int64_t> pid = ::getppid();
  for (int level = 0; level < kMostLevels && pid && *pid > 1; ++level, pid = parent_of(*pid)) {
    const auto agent = net::connect_for_packets(rendezvous::world_report_socket_name(*pid));
    if (!agent.ok()) continue;
    const auto sent = net::send_packet(agent->get(), encode(report), {}, "the agent");
    if (!sent.ok() || !*sent) return;
    pollfd answer{agent->get(), POLLIN, 0};
    ::poll(&answer, 1, kAgentAnswerMs);
    return;
  }
}

}  // namespace hvd::runtime
