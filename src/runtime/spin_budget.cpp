#include "runtime/spin_budget.h"

#include <sched.h>

#include <algorithm>
#include <fstream>
#include <iterator>

#include "base/text.h"

namespace hvd::runtime {
namespace {

using std::chrono::microseconds;

constexpr double kUnlimited = 1e6;
// About as long as a backward pass is, and no longer than a user who only polls would mind.
constexpr std::chrono::milliseconds kGuestWindow{10};

std::string content_of(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

// The quota of this process's cgroup and of all above it, version 2.
double cgroup_cores() {
  double cores = kUnlimited;
  std::string group;
  for (const std::string& line : split(content_of("/proc/self/cgroup"), '\n')) {
    if (line.starts_with("0::")) group = line.substr(3);
  }
  // Inside a container the path may be that of the host; its root is ours then.
  for (;;) {
    const std::string text = content_of("/sys/fs/cgroup" + group + "/cpu.max");
    if (!text.empty()) cores = std::min(cores, cores_of_cpu_max(text));
    const size_t slash = group.rfind('/');
    if (slash == std::string::npos) break;
    group.resize(slash);
  }
  const auto quota = parse_int(trim(content_of("/sys/fs/cgroup/cpu/cpu.cfs_quota_us")));
  const auto period = parse_int(trim(content_of("/sys/fs/cgroup/cpu/cpu.cfs_period_us")));
  if (quota && period && *quota > 0 && *period > 0) {
    cores = std::min(cores, static_cast<double>(*quota) / static_cast<double>(*period));
  }
  return cores;
}

}  // namespace

SpinBudget spin_budget(double cores, int local_ranks, bool one_host) {
  SpinBudget budget;
  const double share = cores / std::max(local_ranks, 1);
  // A wake-up costs 25-50 us, so spinning a few times that wins when the peer is about to answer.
  // Ranks of one host that compute the same end within a tenth of a step of each other, some
  // milliseconds, and a waiter yields meanwhile. Between hosts the kernel has work of its own on these cores.
  if (share >= 1) {
    budget.waiter = one_host ? microseconds(6000) : microseconds(200);
    // More than the 35 to 60 us that a yield took between steps of TensorFlow.
    if (one_host) budget.after_computing = microseconds(100);
    budget.helper = share >= 2 ? microseconds(20) : microseconds(0);
    budget.helper_is_guest = share < 2;
  } else if (cores >= 1) {
    // Peers need this core: look, and let them run.
    budget.waiter = microseconds(100);
    budget.yields = true;
  }
  // Below one core every spin burns the quota that the peers' answer needs.
  return budget;
}

std::chrono::microseconds gathering_time(const SpinBudget& budget, bool one_host,
                                         std::chrono::microseconds window) {
  if (!budget.helper_is_guest || !one_host) return window;
  return std::max<std::chrono::microseconds>(window, kGuestWindow);
}

double cores_of_cpu_max(const std::string& text) {
  const std::vector<std::string> words = split(trim(text), ' ');
  if (words.size() != 2 || words[0] == "max") return kUnlimited;
  const auto quota = parse_double(words[0]);
  const auto period = parse_double(words[1]);
  if (!quota || !period || *quota <= 0 || *period <= 0) return kUnlimited;
  return *quota / *period;
}

double available_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  double cores = 1;
  if (::sched_getaffinity(0, sizeof set, &set) == 0) cores = CPU_COUNT(&set);
  return std::min(cores, cgroup_cores());
}

}  // namespace hvd::runtime
