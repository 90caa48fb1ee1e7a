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

// Returns the lowest quota of this process's cgroup and its ancestors.
double cgroup_cores() {
  double cores = kUnlimited;
  for (const std::string& folder : cgroup_folders(read_proc_file("/proc/self/cgroup"), "cpu")) {
    const std::string quota(trim(read_proc_file(folder + "/cpu.cfs_quota_us")));
    const std::string period(trim(read_proc_file(folder + "/cpu.cfs_period_us")));
    const std::string text = read_proc_file(folder + "/cpu.max");
    cores = std::min(cores, cores_of_cpu_max(text.empty() ? cat(quota, " ", period) : text));
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

std::vector<std::string> cgroup_folders(std::string_view cgroups, std::string_view controller) {
  std::string folder;
  size_t root = 0;  // length of the path of the hierarchy's root
  while (!cgroups.empty()) {
    // A line is "0::/PATH" (version 2) or "4:cpu,cpuacct:/PATH" (version 1).
    const std::string_view line = take_line(cgroups);
    const size_t names_at = line.find(':') + 1, names_end = line.find(':', names_at);
    if (names_at == 0 || names_end == std::string_view::npos) continue;
    const std::string_view names = line.substr(names_at, names_end - names_at);
    const std::string_view path = line.substr(names_end + 1);  // may contain ':'
    if (!path.starts_with('/')) continue;
    const bool is_v1 = std::ranges::count(split(names, ','), controller) > 0;
    if (!is_v1 && !(names.empty() && folder.empty())) continue;
    // Use the link with the controller's name. The names of the line may differ from the mount: Linux 3.10 writes
    // "cpuacct,cpu" for cpu,cpuacct.
    const std::string base = cat("/sys/fs/cgroup", is_v1 ? "/" : "", is_v1 ? controller : "");
    root = base.size();
    folder = cat(base, path == "/" ? "" : path);
  }
  if (root == 0) return {};
  std::vector<std::string> folders = {folder};
  while (folder.size() > root) folders.push_back(folder.erase(folder.rfind('/')));
  return folders;
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
