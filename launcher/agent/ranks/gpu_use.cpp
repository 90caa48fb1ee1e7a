#include "launcher/agent/ranks/gpu_use.h"

#include <algorithm>
#include <utility>

#include "base/text.h"

namespace hvd::launcher {
namespace {

constexpr uint64_t kMiB = 1 << 20;
// No host has more lines than this.
constexpr size_t kMostLines = 4096;

bool has(const std::vector<pid_t>& pids, pid_t pid) {
  return std::ranges::find(pids, pid) != pids.end();
}

// Parses three tables in this order:
//   GPU[0]\t\t: GPU use (%): 97
//
//   PID \tPROCESS NAME\tGPU(s)\tVRAM USED \t…
//   4242\tpython3     \t2     \t3221225472\t…
//
//   PID 4242 is using 2 DRM device(s):
//   0 1
// Process names contain no tab, and UNKNOWN stands for an unknown value. Other lines are titles.
class RocmText {
 public:
  static constexpr size_t kMostLines = 4096;

  void read_line(std::string_view line) {
    if (line.starts_with("GPU["))
      read_use(line);
    else if (line.find('\t') != std::string_view::npos)
      read_row(line);
    else
      read_gpus(words_of(line));
  }
  std::optional<GpuUse> use() && {
    return names_gpu_ ? std::optional(std::move(use_)) : std::nullopt;
  }

 private:
  void read_use(std::string_view line) {
    constexpr std::string_view kName = ": GPU use (%): ";
    const std::string_view number = line.substr(4, line.find(']') - 4);
    const auto gpu = parse_int(number);
    if (!gpu || *gpu < 0) return;
    names_gpu_ = true;
    const size_t name = line.find(kName);
    if (name == std::string_view::npos) return;
    const auto percent = parse_int(trim(line.substr(name + kName.size())));
    if (percent && *percent >= 0 && *percent <= 100)
      use_.percents[cat(*gpu)] = static_cast<int>(*percent);
  }

  void read_row(std::string_view line) {
    std::vector<std::string> fields = split(line, '\t');
    for (std::string& field : fields) field = trim(field);
    if (fields[0] == "PID") {
      memory_ = static_cast<size_t>(std::ranges::find(fields, "VRAM USED") - fields.begin());
      return;
    }
    // The memory is the process's total on all its GPUs.
    const auto bytes = memory_ < fields.size() ? parse_int(fields[memory_]) : std::nullopt;
    if (bytes && *bytes >= 0 && *bytes <= kMostBytes)
      add(pid_of(fields[0]), "", static_cast<uint64_t>(*bytes));
  }

  // A long list of GPUs spans several lines.
  void read_gpus(const std::vector<std::string_view>& words) {
    if (words.size() > 2 && words[0] == "PID" && words[2] == "is") {
      pid_ = pid_of(words[1]);
      return;
    }
    for (const std::string_view word : words) {
      const auto gpu = parse_int(word);
      if (!gpu || *gpu < 0) break;
      add(pid_, cat(*gpu), 0);
    }
  }

  static pid_t pid_of(std::string_view text) {
    const auto pid = parse_int(text);
    return pid && *pid > 0 && *pid <= INT32_MAX ? static_cast<pid_t>(*pid) : -1;
  }
  void add(pid_t pid, std::string gpu, uint64_t bytes) {
    if (pid > 0 && use_.processes.size() < kMostProcesses)
      use_.processes.push_back({pid, std::move(gpu), bytes});
  }

  // No host has more pairs of a process and a GPU.
  static constexpr size_t kMostProcesses = 4096;
  static constexpr int64_t kMostBytes = int64_t{1} << 50;

  GpuUse use_;
  bool names_gpu_ = false;
  size_t memory_ = SIZE_MAX;  // column of the table
  pid_t pid_ = -1;            // the process that uses the GPUs in the next lines
};

}  // namespace

uint64_t GpuUse::bytes_of(const std::vector<pid_t>& pids) const {
  uint64_t bytes = 0;
  for (const OfProcess& one : processes) {
    if (has(pids, one.pid)) bytes += one.bytes;
  }
  return bytes;
}

int GpuUse::percent_of(const std::vector<pid_t>& pids) const {
  int percent = -1;
  for (const OfProcess& one : processes) {
    const auto found = percents.find(one.gpu);
    if (has(pids, one.pid) && found != percents.end()) percent = std::max(percent, found->second);
  }
  return percent;
}

std::string gpu_use_command(const std::string& nvidia_smi) {
  const std::string program = shell_quote(nvidia_smi);
  const std::string form = " --format=csv,noheader,nounits";
  return cat(program, " --query-gpu=uuid,utilization.gpu", form, " && exec ", program,
             " --query-compute-apps=gpu_uuid,pid,used_gpu_memory", form);
}

// Lines are "GPU-…, 97" for a GPU and "GPU-…, 4242, 1024" for a process with its MiB. [N/A] means an unknown value.
GpuUse parse_gpu_use(std::string_view text) {
  GpuUse use;
  size_t lines = 0;
  for (const std::string& line : split(text, '\n')) {
    if (++lines > kMostLines) break;
    std::vector<std::string> fields = split(line, ',');
    for (std::string& field : fields) field = trim(field);
    if (fields.size() == 2) {
      const auto percent = parse_int(fields[1]);
      if (percent && *percent >= 0 && *percent <= 100)
        use.percents[fields[0]] = static_cast<int>(*percent);
    } else if (fields.size() == 3) {
      const auto pid = parse_int(fields[1]);
      const auto mebibytes = parse_int(fields[2]);
      if (!pid || *pid <= 0 || *pid > INT32_MAX) continue;
      const bool is_known = mebibytes && *mebibytes >= 0 && *mebibytes <= INT32_MAX;
      use.processes.push_back({static_cast<pid_t>(*pid), fields[0],
                               is_known ? static_cast<uint64_t>(*mebibytes) * kMiB : 0});
    }
  }
  return use;
}

// rocm-smi prints the GPUs of a process only as text, and not with --json or --csv.
std::string rocm_use_command(const std::string& rocm_smi) {
  // rocm-smi is a Python script, which must not import modules of the job.
  return cat("unset PYTHONPATH PYTHONHOME PYTHONSTARTUP; PYTHONNOUSERSITE=1 exec ",
             shell_quote(rocm_smi), " --showuse --showpids --showpidgpus");
}

std::optional<GpuUse> parse_rocm_use(std::string_view text) {
  RocmText read;
  for (size_t lines = 0; !text.empty() && lines < RocmText::kMostLines; ++lines) {
    read.read_line(take_line(text));
  }
  return std::move(read).use();
}

}  // namespace hvd::launcher
