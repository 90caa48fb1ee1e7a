#include "launcher/agent/ranks/process_usage.h"

#include <dirent.h>
#include <unistd.h>

#include <algorithm>
#include <memory>

#include "base/proc_file.h"
#include "base/text.h"

namespace hvd::launcher {
namespace {

constexpr uint64_t kMicroseconds = 1'000'000;
// Maximum number of threads of a process whose run delay is read.
constexpr size_t kMostThreads = 256;

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
  usage.read_bytes += line_count(io, "read_bytes:").value_or(0);
  usage.written_bytes += line_count(io, "write_bytes:").value_or(0);
}

}  // namespace

CpuTimes cpu_times(const std::string& folder) {
  const auto stat = ProcStat::read(folder);
  return stat ? times_of(*stat) : CpuTimes{};
}

ThreadTimes thread_times(const std::string& folder) {
  // The format is "<nanoseconds on a processor> <nanoseconds of delay> <number of timeslices>"
  const std::string text = read_proc_file(folder + "schedstat");
  const std::vector<std::string_view> words = words_of(text);
  if (words.size() < 2) return {cpu_times(folder).own, 0};
  return {static_cast<uint64_t>(parse_int(words[0]).value_or(0)) / 1000,
          static_cast<uint64_t>(parse_int(words[1]).value_or(0)) / 1000};
}

ThreadTimes threads_times(const std::string& folder, std::string_view left_out, size_t most) {
  const std::string tasks = folder + "task/";
  const std::unique_ptr<DIR, int (*)(DIR*)> directory(::opendir(tasks.c_str()), ::closedir);
  ThreadTimes sum;
  for (size_t threads = 0; directory && threads < most;) {
    const dirent* entry = ::readdir(directory.get());
    if (entry == nullptr) break;
    if (entry->d_name[0] == '.' || entry->d_name == left_out) continue;
    ++threads;
    const ThreadTimes times = thread_times(cat(tasks, entry->d_name, "/"));
    sum.cpu += times.cpu;
    sum.delay += times.delay;
  }
  return sum;
}

ProcessUsage usage_of(const std::vector<ProcessEntry>& processes) {
  ProcessUsage usage;
  for (const ProcessEntry& process : processes) {
    const std::string folder = cat("/proc/", process.pid, "/");
    add_stat(folder, usage);
    if (process.state == 'Z') continue;  // a zombie has no memory, and its files cannot be read
    add_storage(folder, usage);
    usage.run_delay_microseconds += threads_times(folder, {}, kMostThreads).delay;
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
