#include "launcher/agent/ranks/process_usage.h"

#include <dirent.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <string>
#include <string_view>

#include "base/proc_file.h"
#include "base/text.h"

namespace hvd::launcher {
namespace {

constexpr uint64_t kMicroseconds = 1'000'000;
// Maximum number of threads of a process whose run delay is read.
constexpr int kMostThreads = 256;

uint64_t count_of(const ProcStat& stat, StatField field) {
  return static_cast<uint64_t>(std::max<int64_t>(stat[field], 0));
}

CpuTimes times_of(const ProcStat& stat) {
  const auto microseconds = [&](StatField user, StatField system) {
    return (count_of(stat, user) + count_of(stat, system)) * kMicroseconds /
           static_cast<uint64_t>(::sysconf(_SC_CLK_TCK));
  };
  return {microseconds(StatField::kUserTicks, StatField::kSystemTicks),
          microseconds(StatField::kUserTicksOfChildren, StatField::kSystemTicksOfChildren)};
}

void add_stat(const std::string& folder, ProcessUsage& usage) {
  const auto stat = ProcStat::read(folder);
  if (!stat) return;
  const auto at = [&](StatField field) { return count_of(*stat, field); };
  const CpuTimes times = times_of(*stat);
  usage.cpu_microseconds += times.own + times.of_children;
  usage.minor_faults += at(StatField::kMinorFaults) + at(StatField::kMinorFaultsOfChildren);
  usage.major_faults += at(StatField::kMajorFaults) + at(StatField::kMajorFaultsOfChildren);
  usage.resident_bytes +=
      at(StatField::kResidentPages) * static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
  usage.threads += at(StatField::kThreads);
  ++usage.processes;
}

void add_storage(const std::string& folder, ProcessUsage& usage) {
  const std::string io = read_proc_file(folder + "io");
  std::string_view rest = io;
  while (!rest.empty()) {
    const std::string_view line = take_line(rest);
    for (const auto& [name, count] : {std::pair("read_bytes: ", &usage.read_bytes),
                                      std::pair("write_bytes: ", &usage.written_bytes)}) {
      const std::string_view start(name);
      if (!line.starts_with(start)) continue;
      *count += static_cast<uint64_t>(parse_int(line.substr(start.size())).value_or(0));
    }
  }
}

void add_run_delay(const std::string& folder, ProcessUsage& usage) {
  const std::string tasks = folder + "task/";
  const std::unique_ptr<DIR, int (*)(DIR*)> directory(::opendir(tasks.c_str()), ::closedir);
  uint64_t nanoseconds = 0;
  for (int threads = 0; directory && threads < kMostThreads;) {
    const dirent* entry = ::readdir(directory.get());
    if (entry == nullptr) break;
    if (entry->d_name[0] == '.') continue;
    ++threads;
    // The format is "<nanoseconds on a processor> <nanoseconds of delay> <number of timeslices>"
    const std::vector<std::string> words =
        split(read_proc_file(cat(tasks, entry->d_name, "/schedstat")), ' ');
    if (words.size() >= 2) nanoseconds += static_cast<uint64_t>(parse_int(words[1]).value_or(0));
  }
  usage.run_delay_microseconds += nanoseconds / 1000;
}

}  // namespace

CpuTimes cpu_times(const std::string& folder) {
  const auto stat = ProcStat::read(folder);
  return stat ? times_of(*stat) : CpuTimes{};
}

ProcessUsage usage_of(const std::vector<ProcessEntry>& processes) {
  ProcessUsage usage;
  for (const ProcessEntry& process : processes) {
    const std::string folder = cat("/proc/", process.pid, "/");
    add_stat(folder, usage);
    if (process.state == 'Z') continue;  // a zombie has no memory, and its files cannot be read
    add_storage(folder, usage);
    add_run_delay(folder, usage);
  }
  return usage;
}

void advance(ProcessUsage& usage, const ProcessUsage& now) {
  const ProcessUsage before = usage;
  usage = now;
  for (uint64_t ProcessUsage::*count :
       {&ProcessUsage::cpu_microseconds, &ProcessUsage::run_delay_microseconds,
        &ProcessUsage::minor_faults, &ProcessUsage::major_faults, &ProcessUsage::read_bytes,
        &ProcessUsage::written_bytes}) {
    usage.*count = std::max(usage.*count, before.*count);
  }
}

}  // namespace hvd::launcher
