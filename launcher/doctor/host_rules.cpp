#include <algorithm>
#include <cmath>

#include "base/text.h"
#include "launcher/doctor/rules.h"
#include "launcher/output/terminal_text.h"

namespace hvd::launcher {
namespace {

using Json = nlohmann::json;

constexpr double kMiB = 1024.0 * 1024.0;
// Ranks share memory in /dev/shm, as PyTorch's data loaders do, and Python writes to TMPDIR.
constexpr double kShmPerRank = 32 * kMiB;
constexpr double kTemporary = 64 * kMiB;
constexpr double kMemoryPerRank = 64 * kMiB;
constexpr double kFiles = 1024;
constexpr double kRegisteredMemory = 64 * kMiB;

// The findings of one host, in order.
class HostRules {
 public:
  HostRules(const HostFacts& host, std::vector<Finding>& findings)
      : host_(host), facts_(host.facts), findings_(findings) {}

  void judge() {
    processors();
    memory();
    folders();
    disk();
    limits();
    clock_and_names();
    network_cards();
    gpus();
  }

 private:
  Finding& add(const char* id, Verdict verdict, std::string why, std::string fix) {
    return add_finding(findings_, id, verdict, {host_.host}, std::move(why), std::move(fix));
  }

  std::string for_ranks() const {
    return cat(" for ", host_.ranks, host_.ranks == 1 ? " rank" : " ranks");
  }

  void processors() {
    const double ranks = host_.ranks;
    const auto cores = facts_.number("cpus_allowed");
    if (cores && *cores < ranks) {
      add("cpus", Verdict::kWarn,
          cat("its ", host_.ranks, " ranks share ", short_number(*cores), " processors"),
          "give it fewer slots, or the launcher and the agent a larger CPU set")
          .measures(*cores, ranks, "processors");
    }
    const auto quota = facts_.number("cpu_quota");
    if (quota && *quota < std::min(ranks, cores.value_or(ranks))) {
      add("cpu_quota", Verdict::kWarn,
          cat("a quota of its cgroup allows ", short_number(*quota), " processors", for_ranks()),
          "raise the CPU limit of the container or the slice")
          .measures(*quota, ranks, "processors");
    }
    contention("run_delay_percent", "contention", "runnable processes wait for a processor in ",
               "end the other programs there");
    contention("steal_percent", "steal", "the hypervisor takes the processors away in ",
               "move the virtual machine, or give it dedicated processors");
  }

  void contention(const char* key, const char* id, const char* what, const char* fix) {
    const auto share = facts_.number(key);
    if (!share || *share <= kBusyPercent) return;
    constexpr double kMuch = 30;
    const Verdict verdict = *share > kMuch ? Verdict::kWarn : Verdict::kNote;
    add(id, verdict, cat(what, short_number(std::round(*share)), " % of the time"), fix)
        .measures(*share, verdict == Verdict::kWarn ? kMuch : kBusyPercent, "%");
  }

  void memory() {
    const auto available = facts_.number("memory_available");
    if (!available) return;
    const double usable = std::min(*available, facts_.number("memory_limit").value_or(*available));
    const double wanted = kMemoryPerRank * host_.ranks;
    if (usable >= wanted) return;
    add("memory", Verdict::kFail,
        cat(size_text(usable), " of memory ",
            usable < *available ? "by the limit of its cgroup" : "are available", for_ranks()),
        "end the other programs there, or raise the memory limit")
        .measures(usable, wanted, "bytes");
  }

  // Less than `wanted` is a warning, and less than `needed` a failure.
  void folder(const std::string& name, double wanted, double needed, const char* fix) {
    const auto bytes = facts_.number(name + "_bytes"), inodes = facts_.number(name + "_inodes");
    const std::string path = facts_.text(name + "_path");
    if (bytes && *bytes < wanted) {
      add(name.c_str(), *bytes < needed ? Verdict::kFail : Verdict::kWarn,
          cat(path, " has ", size_text(*bytes), " free"), fix)
          .measures(*bytes, wanted, "bytes");
    } else if (inodes && *inodes == 0) {
      add(name.c_str(), Verdict::kFail, cat(path, " has no free inodes"), fix)
          .measures(0, 1, "inodes");
    }
  }

  void folders() {
    folder("shm", kShmPerRank * host_.ranks, kMiB,
           "remove files there, or mount it larger (docker run --shm-size 8g)");
    folder("tmp", kTemporary, kMiB, "remove files there, or set TMPDIR to a folder with space");
  }

  void disk() {
    const std::string folder = facts_.text("tmp_path");
    if (const std::string error = facts_.text("disk_error"); !error.empty()) {
      add("disk", Verdict::kFail, cat("cannot write to ", folder, ": ", error),
          "repair the file system, or set TMPDIR to another folder");
    } else if (facts_.is_true("disk_hung")) {
      add("disk", Verdict::kUnknown, cat("a write to ", folder, " still hangs"),
          "look at the file system's server, or dmesg");
    }
  }

  // -1 stands for no limit.
  std::optional<double> limit_below(const char* key, double wanted) const {
    const auto limit = facts_.number(key);
    return limit && *limit >= 0 && *limit < wanted ? limit : std::nullopt;
  }

  void limits() {
    if (const auto files = limit_below("nofile", kFiles)) {
      add("nofile", Verdict::kWarn, cat("a process may open ", short_number(*files), " files"),
          "raise `nofile` in /etc/security/limits.conf")
          .measures(*files, kFiles, "files");
    }
    const std::string error = facts_.text("start_error");
    if (!error.empty()) {
      add("nproc", Verdict::kFail, error,
          "raise `nproc` in /etc/security/limits.conf, or pids.max of its cgroup");
    }
    // Each rank has threads of the framework, of the runtime, and of data loaders.
    const double wanted = 16.0 * host_.ranks;
    for (const auto& [key, what] :
         {std::pair{"nproc", "its user"}, std::pair{"pids", "its cgroup"}}) {
      const auto processes = limit_below(key, wanted);
      if (!processes || !error.empty()) continue;
      add(key, Verdict::kWarn,
          cat(what, " may have ", short_number(*processes), " processes and threads"),
          cat("raise `", key, "` to at least ", short_number(wanted)))
          .measures(*processes, wanted, "processes");
    }
    const auto locked = limit_below("memlock", kRegisteredMemory);
    if (!facts_.list("rdma").empty() && locked) {
      add("memlock", Verdict::kFail,
          cat("RDMA needs locked memory, and a process may lock ", size_text(*locked)),
          "set `memlock unlimited` in /etc/security/limits.conf")
          .measures(*locked, kRegisteredMemory, "bytes");
    }
  }

  void clock_and_names() {
    constexpr const char* kFix = "start chrony or systemd-timesyncd there";
    const double offset = facts_.number("clock_offset").value_or(0);
    if (std::abs(offset) > 1) {
      add("clock", Verdict::kWarn,
          cat("its clock is ", short_number(std::abs(offset)), " s ",
              offset > 0 ? "ahead of" : "behind", " the first host's"),
          kFix)
          .measures(std::abs(offset), 1, "s");
    } else if (facts_.at("clock_synchronised") == false) {
      add("clock", Verdict::kNote, "the kernel does not know that its clock is synchronised", kFix);
    }
    std::vector<std::string> names;
    for (const Json& name : facts_.list("names_missing")) {
      if (name.is_string()) names.push_back(printable(name.get<std::string>()));
    }
    if (!names.empty()) {
      add("names", Verdict::kWarn, cat("it cannot resolve ", join(names, ", ")),
          "add the names to DNS or to /etc/hosts there");
    }
  }

  void network_cards() {
    if (const std::string error = facts_.text("network_error"); !error.empty()) {
      add("network", Verdict::kFail, cat("its links could not be measured: ", error), kOpenPorts);
    }
    for (const Json& each : facts_.list("interfaces")) {
      const Facts card(each);
      if (card.text("duplex") == "half") {
        add("duplex", Verdict::kWarn, cat("interface ", card.text("name"), " is half duplex"),
            "check the cable, and the port of the switch");
      }
    }
    for (const Json& each : facts_.list("rdma")) {
      const Facts port(each);
      const std::string name = cat(port.text("device"), " port ", port.text("port"));
      if (port.text("state") != "ACTIVE") {
        add("rdma", Verdict::kFail, cat(name, " is ", port.text("state"), ", not ACTIVE"),
            "check the cable and the subnet manager (ibstat)");
      } else if (port.number("link_downed").value_or(0) > 0) {
        add("rdma", Verdict::kNote,
            cat(name, " was down ", port.text("link_downed"), " times since the boot"),
            "check the cable");
      }
    }
    for (const Json& each : facts_.list("pcie")) {
      const Facts device(each);
      const auto width = device.number("width"), most = device.number("max_width");
      if (!width || !most || *width >= *most) continue;
      add("pcie", Verdict::kWarn,
          cat("device ", device.text("address"), " uses ", short_number(*width), " of ",
              short_number(*most), " PCIe lanes"),
          "seat the card again, or report it to the operator")
          .measures(*width, *most, "lanes");
    }
  }

  void gpus() {
    const std::string tool = facts_.text("gpu_tool");
    for (const auto& [kind, what] : {std::pair{"hung", "gives no answer"},
                                     {"died", "fails"},
                                     {"garbage", "prints no table"}}) {
      if (tool != kind) continue;
      add("gpu_tool", Verdict::kUnknown, cat("nvidia-smi ", what),
          "run nvidia-smi there; a driver that hangs needs a reboot");
    }
    for (const Json& gpu : facts_.list("gpus")) one_gpu(Facts(gpu));
    for (const auto& [test, result] : facts_.at("dcgm").items()) {
      if (result != "Fail" && result != "FAIL") continue;
      add("dcgm", Verdict::kFail, cat("dcgmi diag: ", printable(test), " failed"),
          "run dcgmi diag -r 2 there, and report the GPU to the operator");
    }
  }

  void one_gpu(const Facts& gpu) {
    const std::string name = cat("GPU ", gpu.text("uuid"));
    if (gpu.number("ecc_uncorrected").value_or(0) > 0) {
      add("gpu_ecc", Verdict::kFail,
          cat(name, " has ", gpu.text("ecc_uncorrected"), " uncorrected memory errors"),
          "reset the GPU (nvidia-smi -r) or reboot; if they come again, replace it");
    }
    if (gpu.is_true("remap_failed")) {
      add("gpu_remap", Verdict::kFail, cat(name, " could not remap a row of its memory"),
          "replace the GPU");
    } else if (gpu.is_true("remap_pending")) {
      add("gpu_remap", Verdict::kWarn, cat(name, " has a row remapping pending"),
          "reset the GPU (nvidia-smi -r)");
    }
    // Idle, and the software power cap, are no fault.
    constexpr uint64_t kHarmless = 0x1 | 0x4;
    constexpr double kMostReasons = 1e15;
    const auto reasons =
        static_cast<uint64_t>(std::clamp(gpu.number("throttle").value_or(0), 0.0, kMostReasons));
    if ((reasons & ~kHarmless) != 0) {
      char bits[32];
      std::snprintf(bits, sizeof bits, "0x%llx", static_cast<unsigned long long>(reasons));
      add("gpu_clocks", Verdict::kWarn,
          cat(name, " slows its clocks (clock event reasons ", bits, ")"),
          "check cooling and power (nvidia-smi -q -d PERFORMANCE)");
    }
    constexpr double kStrangers = 512 * kMiB;
    const double used = gpu.number("memory_used").value_or(0);
    if (used > kStrangers) {
      add("gpu_memory", Verdict::kWarn, cat("other programs use ", size_text(used), " of ", name),
          "end them (nvidia-smi lists their pids)")
          .measures(used, kStrangers, "bytes");
    }
  }

  const HostFacts& host_;
  const Facts facts_;
  std::vector<Finding>& findings_;
};

}  // namespace

void judge_host(const HostFacts& host, std::vector<Finding>& findings) {
  HostRules(host, findings).judge();
}

}  // namespace hvd::launcher
