#include "base/cores.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <filesystem>

#include "base/proc_file.h"
#include "base/settings.h"
#include "base/text.h"

namespace hvd {
namespace {

namespace fs = std::filesystem;

constexpr double kUnlimited = 1e6;

// Returns the lowest quota of this process's cgroup (version 2) and its ancestors.
double cgroup_cores() {
  double cores = kUnlimited;
  std::string group;
  for (const std::string& line : split(read_proc_file("/proc/self/cgroup"), '\n')) {
    if (line.starts_with("0::")) group = line.substr(3);
  }
  // Inside a container the path may be the host's path; this process's cgroup is then the root.
  for (;;) {
    const std::string text = read_proc_file("/sys/fs/cgroup" + group + "/cpu.max");
    if (!text.empty()) cores = std::min(cores, cores_of_cpu_max(text));
    const size_t slash = group.rfind('/');
    if (slash == std::string::npos) break;
    group.resize(slash);
  }
  const auto quota = parse_int(trim(read_proc_file("/sys/fs/cgroup/cpu/cpu.cfs_quota_us")));
  const auto period = parse_int(trim(read_proc_file("/sys/fs/cgroup/cpu/cpu.cfs_period_us")));
  if (quota && period && *quota > 0 && *period > 0) {
    cores = std::min(cores, static_cast<double>(*quota) / static_cast<double>(*period));
  }
  return cores;
}

bool is_nvidia_device(std::string_view name) {
  constexpr std::string_view kNvidia = "nvidia";
  return name.starts_with(kNvidia) && name.size() > kNvidia.size() &&
         name.find_first_not_of("0123456789", kNvidia.size()) == std::string_view::npos;
}

}  // namespace

int affinity_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (::sched_getaffinity(0, sizeof set, &set) == 0) return std::max(1, CPU_COUNT(&set));
  return static_cast<int>(std::max(1L, ::sysconf(_SC_NPROCESSORS_ONLN)));
}

int cpuset_cores() {
  cpu_set_t before, all;
  std::memset(&all, 0xff, sizeof all);
  if (::sched_getaffinity(0, sizeof before, &before) != 0) return affinity_cores();
  // The kernel limits the mask to the cpuset.
  if (::sched_setaffinity(0, sizeof all, &all) != 0) return affinity_cores();
  const int cores = affinity_cores();
  ::sched_setaffinity(0, sizeof before, &before);
  return cores;
}

double available_cores() { return std::min<double>(affinity_cores(), cgroup_cores()); }

double cores_of_cpu_max(const std::string& text) {
  const std::vector<std::string> words = split(trim(text), ' ');
  if (words.size() != 2 || words[0] == "max") return kUnlimited;
  const auto quota = parse_double(words[0]);
  const auto period = parse_double(words[1]);
  if (!quota || !period || *quota <= 0 || *period <= 0) return kUnlimited;
  return *quota / *period;
}

int count_gpus(const std::string& root) {
  int count = 0;
  std::error_code error;
  for (const auto& each : fs::directory_iterator(fs::path(root) / "dev", error)) {
    count += is_nvidia_device(each.path().filename().string());
  }
  if (count > 0) return count;
  const fs::path nodes = fs::path(root) / "sys/class/kfd/kfd/topology/nodes";
  for (const auto& each : fs::directory_iterator(nodes, error)) {
    const auto id = parse_int(trim(read_proc_file((each.path() / "gpu_id").string())));
    count += id && *id != 0;  // KFD also lists CPUs as nodes, with gpu_id 0
  }
  return count;
}

Status find_gpu_driver() {
  if (!trim(environment_variable("HOROVOD_CUDA_LIBRARY").value_or("")).empty()) return {};
  // Device files of NVIDIA's driver for servers, for system-on-chip boards and for WSL, and of AMD's driver.
  constexpr std::array kFiles{"/dev/nvidiactl", "/proc/driver/nvidia/version", "/dev/nvmap",
                              "/dev/dxg", "/dev/kfd"};
  const bool is_there = std::any_of(kFiles.begin(), kFiles.end(),
                                    [](const char* file) { return ::access(file, F_OK) == 0; });
  if (is_there) return {};
  return unavailable(
      "this machine has no GPU: there is neither /dev/nvidiactl nor /dev/kfd; HOROVOD_CUDA_LIBRARY "
      "may name the runtime of another driver");
}

int visible_gpus(int count, const std::optional<std::string>& visible) {
  if (!visible) return count;
  int number = 0;
  for (const std::string& item : split(*visible, ',')) {
    const std::string_view name = trim(item);
    const auto index = parse_int(name);
    if (name.empty() || (index && (*index < 0 || *index >= count))) break;
    ++number;
  }
  return std::min(number, count);
}

int ranks_for(std::string_view device, int gpus, double cores) {
  if (device != "cpu" && gpus > 0) return gpus;
  return std::max(1, static_cast<int>(std::floor(cores)));
}

}  // namespace hvd
