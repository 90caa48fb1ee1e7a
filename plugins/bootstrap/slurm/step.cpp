#include "bootstrap/slurm/step.h"

#include <algorithm>

#include "base/text.h"

namespace hvd::bootstrap {
namespace {

constexpr uint32_t kFirstPort = 20000;
constexpr uint32_t kPorts = 12000;  // below those of Linux's ip_local_port_range

constexpr size_t kMostHosts = 1 << 17;
constexpr int64_t kMostBrackets = 16;  // of one name; Slurm takes fewer

bool is_host_name(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '-' ||
           c == '_' || c == '.';
  });
}

bool is_number(std::string_view text) {
  return !text.empty() && text.size() <= 18 &&
         text.find_first_not_of("0123456789") == std::string_view::npos;
}

// Appends the hosts that begin with `start` and continue with the names of `rest`, whose last bracket counts fastest.
// False where it is no such text, or has too many hosts.
bool expand(const std::string& start, std::string_view rest, std::vector<std::string>& hosts) {
  const size_t open = rest.find('[');
  const std::string longer = start + std::string(rest.substr(0, open));
  if (open == std::string_view::npos) {
    hosts.push_back(longer);
    return is_host_name(longer) && hosts.size() <= kMostHosts;
  }
  const size_t close = rest.find(']', open);
  if (close == std::string_view::npos) return false;
  for (const std::string& range : split(rest.substr(open + 1, close - open - 1), ',')) {
    const size_t dash = range.find('-');
    const std::string first = range.substr(0, dash);
    const std::string last = dash == std::string::npos ? first : range.substr(dash + 1);
    if (!is_number(first) || !is_number(last)) return false;
    const int64_t low = *parse_int(first), high = *parse_int(last);
    if (low > high || static_cast<size_t>(high - low) >= kMostHosts) return false;
    for (int64_t number = low; number <= high; ++number) {
      std::string digits = cat(number);
      if (digits.size() < first.size()) digits.insert(0, first.size() - digits.size(), '0');
      if (!expand(longer + digits, rest.substr(close + 1), hosts)) return false;
    }
  }
  return true;
}

// Where the first comma outside of brackets is.
size_t end_of_part(std::string_view list) {
  bool is_inside = false;
  for (size_t i = 0; i < list.size(); ++i) {
    if (list[i] == '[' || list[i] == ']') is_inside = list[i] == '[';
    if (list[i] == ',' && !is_inside) return i;
  }
  return list.size();
}

}  // namespace

Result<std::vector<std::string>> hosts_of_step(std::string_view nodelist) {
  std::vector<std::string> hosts;
  for (std::string_view rest = nodelist;;) {
    const size_t end = end_of_part(rest);
    const std::string_view part = rest.substr(0, end);
    if (std::ranges::count(part, '[') > kMostBrackets || !expand("", part, hosts)) break;
    if (end == rest.size()) return hosts;
    rest.remove_prefix(end + 1);
  }
  return invalid_argument(
      cat("SLURM_STEP_NODELIST is '", printable(nodelist), "', which is no list of hosts"));
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
