#include "launcher/agent/ranks/rank_pressure.h"

#include <unistd.h>

#include <algorithm>

#include "base/proc_file.h"
#include "base/text.h"

namespace hvd::launcher {
namespace {

uint64_t number_of(std::string_view word) {
  return static_cast<uint64_t>(std::max<int64_t>(parse_int(word).value_or(0), 0));
}

// Returns the number after "NAME " at the start of a line; 0 if the line is missing.
uint64_t line_value(std::string_view text, std::string_view name) {
  while (!text.empty()) {
    const std::vector<std::string_view> words = words_of(take_line(text));
    if (words.size() >= 2 && words[0] == name) return number_of(words[1]);
  }
  return 0;
}

uint64_t steal_microseconds() {
  const std::string stat = read_proc_file("/proc/stat");
  std::string_view rest = stat;
  // The line is "cpu user nice system idle iowait irq softirq steal ..."
  const std::vector<std::string_view> words = words_of(take_line(rest));
  if (words.size() < 9 || words[0] != "cpu") return 0;
  return number_of(words[8]) * 1'000'000 / static_cast<uint64_t>(::sysconf(_SC_CLK_TCK));
}

// Returns the count of TCP retransmits in the agent's network namespace.
uint64_t retransmits() {
  const std::string snmp = read_proc_file("/proc/net/snmp");
  std::string_view rest = snmp;
  std::vector<std::string_view> names;
  while (!rest.empty()) {
    const std::vector<std::string_view> words = words_of(take_line(rest));
    if (words.empty() || words[0] != "Tcp:") continue;
    if (names.empty()) {
      names = words;
      continue;
    }
    const auto at = static_cast<size_t>(std::ranges::find(names, "RetransSegs") - names.begin());
    return at < words.size() ? number_of(words[at]) : 0;
  }
  return 0;
}

}  // namespace

uint64_t throttled_microseconds(pid_t pid) {
  uint64_t most = 0;
  for (const std::string& file : cpu_stat_files(read_proc_file(cat("/proc/", pid, "/cgroup")))) {
    const std::string stat = read_proc_file(file);
    most = std::max(
        {most, line_value(stat, "throttled_usec"), line_value(stat, "throttled_time") / 1000});
  }
  return most;
}

std::vector<std::string> cpu_stat_files(std::string_view cgroups) {
  std::string folder;
  size_t root = 0;  // length of the path of the hierarchy's root
  while (!cgroups.empty()) {
    // A line is "0::/PATH" or "4:cpu,cpuacct:/PATH".
    const std::string_view line = take_line(cgroups);
    const size_t names_at = line.find(':') + 1, names_end = line.find(':', names_at);
    if (names_at == 0 || names_end == std::string_view::npos) continue;
    const std::string_view names = line.substr(names_at, names_end - names_at);
    const std::string_view path = line.substr(names_end + 1);  // may contain ':'
    if (!path.starts_with('/')) continue;
    const bool is_cpu = std::ranges::count(split(names, ','), "cpu") > 0;
    if (!is_cpu && !(names.empty() && folder.empty())) continue;
    const std::string base = is_cpu ? cat("/sys/fs/cgroup/", names) : std::string("/sys/fs/cgroup");
    root = base.size();
    folder = cat(base, path == "/" ? "" : path);
  }
  std::vector<std::string> files;
  while (root > 0 && folder.size() >= root) {
    files.push_back(folder + "/cpu.stat");
    if (folder.size() == root) break;
    folder.resize(folder.rfind('/'));
  }
  return files;
}

HostPressure host_pressure() {
  return {.steal_microseconds = steal_microseconds(),
          .processors = static_cast<uint64_t>(::sysconf(_SC_NPROCESSORS_ONLN)),
          .swapped_in = line_value(read_proc_file("/proc/vmstat"), "pswpin"),
          .retransmits = retransmits()};
}

}  // namespace hvd::launcher
