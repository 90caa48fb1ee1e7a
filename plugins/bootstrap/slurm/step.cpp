#include "bootstrap/slurm/step.h"

#include <algorithm>

#include "base/names/name_ranges.h"
#include "base/text.h"

namespace hvd::bootstrap {
namespace {

constexpr uint32_t kFirstPort = 20000;
constexpr uint32_t kPorts = 12000;  // below Linux's ip_local_port_range

bool is_host_name(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '-' ||
           c == '_' || c == '.';
  });
}

}  // namespace

Result<std::vector<std::string>> hosts_of_step(std::string_view nodelist) {
  std::vector<std::string> hosts;
  for (const std::string_view pattern : split_outside_brackets(nodelist)) {
    auto names = expand_names(pattern);
    const bool are_names = names.ok() && hosts.size() + names->size() <= kMaxNames &&
                           std::all_of(names->begin(), names->end(), is_host_name);
    if (!are_names) {
      return invalid_argument(
          cat("SLURM_STEP_NODELIST is '", printable(nodelist), "', which is no list of hosts"));
    }
    hosts.insert(hosts.end(), names->begin(), names->end());
  }
  return hosts;
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
