#include "launcher/agent/ranks/rank_pressure.h"

#include <unistd.h>

#include <algorithm>

#include "base/cores.h"
#include "base/proc_file.h"
#include "base/text.h"

namespace hvd::launcher {
namespace {

uint64_t number_of(std::string_view word) {
  return static_cast<uint64_t>(std::max<int64_t>(parse_int(word).value_or(0), 0));
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
  for (const std::string& folder :
       cgroup_folders(read_proc_file(cat("/proc/", pid, "/cgroup")), "cpu")) {
    const std::string stat = read_proc_file(folder + "/cpu.stat");
    most = std::max({most, line_count(stat, "throttled_usec").value_or(0),
                     line_count(stat, "throttled_time").value_or(0) / 1000});
  }
  return most;
}

HostPressure host_pressure() {
  return {.steal_microseconds = steal_microseconds(),
          .processors = static_cast<uint64_t>(::sysconf(_SC_NPROCESSORS_ONLN)),
          .swapped_in = line_count(read_proc_file("/proc/vmstat"), "pswpin").value_or(0),
          .retransmits = retransmits()};
}

std::optional<uint64_t> out_of_memory_kills() {
  for (const std::string& folder : cgroup_folders(read_proc_file("/proc/self/cgroup"), "memory")) {
    for (const char* file : {"/memory.oom_control", "/memory.events"}) {
      if (const auto count = line_count(read_proc_file(folder + file), "oom_kill")) return count;
    }
  }
  return {};
}

}  // namespace hvd::launcher
