#include "bootstrap/slurm/step.h"

#include <algorithm>

#include "base/text.h"

namespace hvd::bootstrap {
namespace {

constexpr uint32_t kFirstPort = 20000;
constexpr uint32_t kPorts = 12000;  // below those of Linux's ip_local_port_range

}  // namespace

Result<std::string> first_host(std::string_view nodelist) {
  const auto refuse = [&] {
    return invalid_argument(
        cat("SLURM_STEP_NODELIST is '", printable(nodelist), "', which names no host first"));
  };
  // Up to the first comma outside of brackets, with the first number of each bracket.
  std::string host;
  bool inside = false, taken = false;
  for (const char c : nodelist) {
    if (c == '[') {
      if (inside) return refuse();
      inside = true;
      taken = false;
    } else if (c == ']') {
      if (!inside) return refuse();
      inside = false;
    } else if (!inside && c == ',') {
      break;
    } else if (inside) {
      taken |= c == '-' || c == ',';
      if (!taken) {
        if (c < '0' || c > '9') return refuse();
        host.push_back(c);
      }
    } else {
      host.push_back(c);
    }
  }
  const bool plain = std::all_of(host.begin(), host.end(), [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '-' ||
           c == '_' || c == '.';
  });
  if (inside || host.empty() || !plain) return refuse();
  return host;
}

Result<int32_t> tasks_of_node(std::string_view tasks_per_node, int64_t node) {
  const auto refuse = [&] {
    return invalid_argument(cat("SLURM_STEP_TASKS_PER_NODE is '", printable(tasks_per_node),
                                "', which says nothing of node ", node));
  };
  if (node < 0) return refuse();
  for (const std::string& part : split(tasks_per_node, ',')) {
    std::string_view count = part;
    int64_t nodes = 1;
    if (const size_t open = count.find("(x"); open != std::string_view::npos) {
      if (count.back() != ')') return refuse();
      nodes = parse_int(count.substr(open + 2, count.size() - open - 3)).value_or(0);
      count = count.substr(0, open);
    }
    const int64_t tasks = parse_int(count).value_or(0);
    if (tasks < 1 || tasks > 1 << 20 || nodes < 1 || nodes > 1 << 24) return refuse();
    if (node < nodes) return static_cast<int32_t>(tasks);
    node -= nodes;
  }
  return refuse();
}

uint16_t port_of_step(int64_t job, int64_t step, int attempt) {
  uint64_t mixed = static_cast<uint64_t>(job) * 0x9E3779B97F4A7C15u + static_cast<uint64_t>(step);
  mixed = (mixed ^ (mixed >> 29)) * 0xBF58476D1CE4E5B9u;
  mixed ^= mixed >> 32;
  return static_cast<uint16_t>(kFirstPort +
                               (mixed + static_cast<uint64_t>(attempt) * 2'999) % kPorts);
}

}  // namespace hvd::bootstrap
