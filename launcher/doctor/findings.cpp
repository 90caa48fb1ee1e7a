#include "launcher/doctor/findings.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <map>

#include "base/text.h"
#include "launcher/output/terminal_text.h"
#include "launcher/protocol/pair_rule.h"

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
// On a busier host, times say more about its load than about its processor.
constexpr double kBusyPercent = 10;

std::optional<double> number(const Json& facts, const char* key) {
  const auto found = facts.find(key);
  if (found == facts.end() || !found->is_number()) return {};
  const double value = found->get<double>();
  return std::isfinite(value) ? std::optional(value) : std::nullopt;
}

std::string text(const Json& object, const char* key) {
  const auto found = object.find(key);
  if (found == object.end()) return {};
  if (found->is_string()) return printable(found->get<std::string>());
  return found->is_primitive() && !found->is_null() ? found->dump() : "";
}

const Json& list(const Json& facts, const char* key) {
  static const Json kNone = Json::array();
  const auto found = facts.find(key);
  return found != facts.end() && found->is_array() ? *found : kNone;
}

bool is_true(const Json& facts, const char* key) {
  const auto found = facts.find(key);
  return found != facts.end() && found->is_boolean() && found->get<bool>();
}

double median_of(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

double busy_percent(const Json& facts) {
  return number(facts, "run_delay_percent").value_or(0) +
         number(facts, "steal_percent").value_or(0);
}

bool is_busy_host(const Json& facts) { return busy_percent(facts) > kBusyPercent; }

// Returns "2", or "0.50" for a number that is not whole.
std::string short_number(double value) {
  if (value == std::floor(value) && std::abs(value) < 1e15) {
    return std::to_string(static_cast<int64_t>(value));
  }
  char digits[32];
  std::snprintf(digits, sizeof digits, "%.2f", value);
  return digits;
}

// The findings of one host, in order.
class HostRules {
 public:
  explicit HostRules(const HostFacts& host) : host_(host), facts_(host.facts) {}

  std::vector<Finding> judge() && {
    processors();
    memory();
    folders();
    disk();
    limits();
    clock_and_names();
    network_cards();
    gpus();
    return std::move(findings_);
  }

 private:
  Finding& add(const char* id, Verdict verdict, std::string why, std::string fix) {
    Finding finding{.id = id, .verdict = verdict, .hosts = {host_.host}};
    finding.why = std::move(why);
    finding.fix = std::move(fix);
    return findings_.emplace_back(std::move(finding));
  }
  void with(Finding& finding, double value, double limit, const char* unit) {
    finding.value = value;
    finding.limit = limit;
    finding.unit = unit;
  }

  void processors() {
    const double ranks = host_.ranks;
    const auto cores = number(facts_, "cpus_allowed");
    if (cores && *cores < ranks) {
      with(add("cpus", Verdict::kWarn,
               cat("its ", host_.ranks, " ranks share ", short_number(*cores), " processors"),
               "give it fewer slots, or the launcher and the agent a larger CPU set"),
           *cores, ranks, "processors");
    }
    const auto quota = number(facts_, "cpu_quota");
    if (quota && *quota < std::min(ranks, cores.value_or(ranks))) {
      with(add("cpu_quota", Verdict::kWarn,
               cat("a quota of its cgroup allows ", short_number(*quota), " processors for ",
                   host_.ranks, host_.ranks == 1 ? " rank" : " ranks"),
               "raise the CPU limit of the container or the slice"),
           *quota, ranks, "processors");
    }
    contention("run_delay_percent", "contention", "runnable processes wait for a processor in ",
               "end the other programs there");
    contention("steal_percent", "steal", "the hypervisor takes the processors away in ",
               "move the virtual machine, or give it dedicated processors");
  }

  void contention(const char* key, const char* id, const char* what, const char* fix) {
    const auto share = number(facts_, key);
    if (!share || *share <= kBusyPercent) return;
    constexpr double kMuch = 30;
    const Verdict verdict = *share > kMuch ? Verdict::kWarn : Verdict::kNote;
    with(add(id, verdict, cat(what, short_number(std::round(*share)), " % of the time"), fix),
         *share, verdict == Verdict::kWarn ? kMuch : kBusyPercent, "%");
  }

  void memory() {
    const auto available = number(facts_, "memory_available");
    const auto limit = number(facts_, "memory_limit");
    if (!available) return;
    const double usable = limit ? std::min(*available, *limit) : *available;
    const double wanted = kMemoryPerRank * host_.ranks;
    if (usable >= wanted) return;
    with(add("memory", Verdict::kFail,
             cat(size_text(usable), " of memory ",
                 usable < *available ? "by the limit of its cgroup" : "are available", " for ",
                 host_.ranks, host_.ranks == 1 ? " rank" : " ranks"),
             "end the other programs there, or raise the memory limit"),
         usable, wanted, "bytes");
  }

  // Less than `wanted` is a warning, and less than `needed` a failure.
  void folder(const char* name, double wanted, double needed, const char* fix) {
    const auto bytes = number(facts_, cat(name, "_bytes").c_str());
    const auto inodes = number(facts_, cat(name, "_inodes").c_str());
    const std::string path = text(facts_, cat(name, "_path").c_str());
    if (bytes && *bytes < wanted) {
      const Verdict verdict = *bytes < needed ? Verdict::kFail : Verdict::kWarn;
      with(add(name, verdict, cat(path, " has ", size_text(*bytes), " free"), fix), *bytes, wanted,
           "bytes");
    } else if (inodes && *inodes == 0) {
      with(add(name, Verdict::kFail, cat(path, " has no free inodes"), fix), 0, 1, "inodes");
    }
  }

  void folders() {
    folder("shm", kShmPerRank * host_.ranks, kMiB,
           "remove files there, or mount it larger (docker run --shm-size 8g)");
    folder("tmp", kTemporary, kMiB, "remove files there, or set TMPDIR to a folder with space");
  }

  void disk() {
    if (const std::string error = text(facts_, "disk_error"); !error.empty()) {
      add("disk", Verdict::kFail, cat("cannot write to ", text(facts_, "tmp_path"), ": ", error),
          "repair the file system, or set TMPDIR to another folder");
    } else if (is_true(facts_, "disk_hung")) {
      add("disk", Verdict::kUnknown, cat("a write to ", text(facts_, "tmp_path"), " still hangs"),
          "look at the file system's server, or dmesg");
    }
  }

  void limits() {
    const auto files = number(facts_, "nofile");
    if (files && *files >= 0 && *files < kFiles) {
      with(add("nofile", Verdict::kWarn, cat("a process may open ", short_number(*files), " files"),
               "raise `nofile` in /etc/security/limits.conf"),
           *files, kFiles, "files");
    }
    // Each rank has threads of the framework, of the runtime, and of data loaders.
    const double wanted = 16.0 * host_.ranks;
    for (const auto& [key, what] :
         {std::pair{"nproc", "its user"}, std::pair{"pids", "its cgroup"}}) {
      const auto processes = number(facts_, key);
      if (!processes || *processes < 0 || *processes >= wanted) continue;
      with(add(key, Verdict::kWarn,
               cat(what, " may have ", short_number(*processes), " processes and threads"),
               cat("raise `", key, "` to at least ", short_number(wanted))),
           *processes, wanted, "processes");
    }
    const auto locked = number(facts_, "memlock");
    if (!list(facts_, "rdma").empty() && locked && *locked >= 0 && *locked < kRegisteredMemory) {
      with(add("memlock", Verdict::kFail,
               cat("RDMA needs locked memory, and a process may lock ", size_text(*locked)),
               "set `memlock unlimited` in /etc/security/limits.conf"),
           *locked, kRegisteredMemory, "bytes");
    }
  }

  void clock_and_names() {
    const auto offset = number(facts_, "clock_offset");
    if (offset && std::abs(*offset) > 1) {
      with(add("clock", Verdict::kWarn,
               cat("its clock is ", short_number(std::abs(*offset)), " s ",
                   *offset > 0 ? "ahead of" : "behind", " the first host's"),
               "start chrony or systemd-timesyncd there"),
           std::abs(*offset), 1, "s");
    } else if (facts_.contains("clock_synchronised") && !is_true(facts_, "clock_synchronised")) {
      add("clock", Verdict::kNote, "the kernel does not know that its clock is synchronised",
          "start chrony or systemd-timesyncd there");
    }
    std::vector<std::string> names;
    for (const Json& name : list(facts_, "names_missing")) {
      if (name.is_string()) names.push_back(printable(name.get<std::string>()));
    }
    if (!names.empty()) {
      add("names", Verdict::kWarn, cat("it cannot resolve ", join(names, ", ")),
          "add the names to DNS or to /etc/hosts there");
    }
  }

  void network_cards() {
    if (const std::string error = text(facts_, "network_error"); !error.empty()) {
      add("network", Verdict::kFail, cat("its links could not be measured: ", error),
          "open the ports between the hosts, or name the network with --network-interfaces");
    }
    for (const Json& card : list(facts_, "interfaces")) {
      if (text(card, "duplex") == "half") {
        add("duplex", Verdict::kWarn, cat("interface ", text(card, "name"), " is half duplex"),
            "check the cable, and the port of the switch");
      }
    }
    for (const Json& port : list(facts_, "rdma")) {
      const std::string name = cat(text(port, "device"), " port ", text(port, "port"));
      if (text(port, "state") != "ACTIVE") {
        add("rdma", Verdict::kFail, cat(name, " is ", text(port, "state"), ", not ACTIVE"),
            "check the cable and the subnet manager (ibstat)");
      } else if (number(port, "link_downed").value_or(0) > 0) {
        add("rdma", Verdict::kNote,
            cat(name, " was down ", text(port, "link_downed"), " times since the boot"),
            "check the cable");
      }
    }
    for (const Json& device : list(facts_, "pcie")) {
      const auto width = number(device, "width"), most = number(device, "max_width");
      if (!width || !most || *width >= *most) continue;
      with(add("pcie", Verdict::kWarn,
               cat("device ", text(device, "address"), " uses ", short_number(*width), " of ",
                   short_number(*most), " PCIe lanes"),
               "seat the card again, or report it to the operator"),
           *width, *most, "lanes");
    }
  }

  void gpus() {
    const std::string tool = text(facts_, "gpu_tool");
    if (tool == "hung" || tool == "garbage" || tool == "died") {
      add("gpu_tool", Verdict::kUnknown,
          cat("nvidia-smi ", tool == "hung"   ? "gives no answer"
                             : tool == "died" ? "fails"
                                              : "prints no table"),
          "run nvidia-smi there; a driver that hangs needs a reboot");
    }
    for (const Json& gpu : list(facts_, "gpus")) one_gpu(gpu);
    const auto dcgm = facts_.find("dcgm");
    if (dcgm == facts_.end() || !dcgm->is_object()) return;
    for (const auto& [test, result] : dcgm->items()) {
      if (result != "Fail" && result != "FAIL") continue;
      add("dcgm", Verdict::kFail, cat("dcgmi diag: ", printable(test), " failed"),
          "run dcgmi diag -r 2 there, and report the GPU to the operator");
    }
  }

  void one_gpu(const Json& gpu) {
    const std::string name = cat("GPU ", text(gpu, "uuid"));
    if (number(gpu, "ecc_uncorrected").value_or(0) > 0) {
      add("gpu_ecc", Verdict::kFail,
          cat(name, " has ", text(gpu, "ecc_uncorrected"), " uncorrected memory errors"),
          "reset the GPU (nvidia-smi -r) or reboot; if they come again, replace it");
    }
    if (is_true(gpu, "remap_failed")) {
      add("gpu_remap", Verdict::kFail, cat(name, " could not remap a row of its memory"),
          "replace the GPU");
    } else if (is_true(gpu, "remap_pending")) {
      add("gpu_remap", Verdict::kWarn, cat(name, " has a row remapping pending"),
          "reset the GPU (nvidia-smi -r)");
    }
    // Idle, and the software power cap, are no fault.
    constexpr uint64_t kHarmless = 0x1 | 0x4;
    const auto reasons = static_cast<uint64_t>(std::max(0.0, number(gpu, "throttle").value_or(0)));
    if ((reasons & ~kHarmless) != 0) {
      char bits[32];
      std::snprintf(bits, sizeof bits, "0x%llx", static_cast<unsigned long long>(reasons));
      add("gpu_clocks", Verdict::kWarn,
          cat(name, " slows its clocks (clock event reasons ", bits, ")"),
          "check cooling and power (nvidia-smi -q -d PERFORMANCE)");
    }
    constexpr double kStrangers = 512 * kMiB;
    const double used = number(gpu, "memory_used").value_or(0);
    if (used > kStrangers) {
      with(add("gpu_memory", Verdict::kWarn,
               cat("other programs use ", size_text(used), " of ", name),
               "end them (nvidia-smi lists their pids)"),
           used, kStrangers, "bytes");
    }
  }

  const HostFacts& host_;
  const Json& facts_;
  std::vector<Finding> findings_;
};

// Compares the hosts with each other.
class PeerRules {
 public:
  explicit PeerRules(std::span<const HostFacts> hosts) {
    for (const HostFacts& host : hosts) {
      if (host.facts.is_object()) hosts_.push_back(&host);
    }
  }

  std::vector<Finding> judge() && {
    differ("machine", "processor architecture", Verdict::kFail, "use hosts of one architecture");
    differ("kernel", "kernel", Verdict::kNote, "");
    differ("python", "Python", Verdict::kWarn, "install the same version on all hosts");
    differ("driver", "driver of the GPUs", Verdict::kWarn, "install the same driver on all hosts");
    differ("nccl", "NCCL", Verdict::kWarn, "install the same version on all hosts");
    packages();
    differ_by("gpu_count", "number of GPUs", Verdict::kFail,
              "find out why a GPU is missing (dmesg, lspci)", [](const Json& facts) {
                return facts.contains("gpus") ? std::to_string(list(facts, "gpus").size()) : "";
              });
    differ_by("mtu", "MTU", Verdict::kWarn, "set the same MTU on all hosts and switches",
              [](const Json& facts) { return of_interfaces(facts, "mtu"); });
    differ_by("link_speed", "speed of the network card", Verdict::kWarn,
              "check the cable, and the port of the switch",
              [](const Json& facts) { return of_interfaces(facts, "speed"); });
    slower("cpu_speed", "cpu_speed", "its processors compute", 0.85, 0.60,
           "check cooling, power limits and the CPU governor");
    slower("memory_copy", "memory_speed", "its memory copies", 0.75, 0,
           "check its memory modules and NUMA settings");
    slow_disks();
    return std::move(findings_);
  }

 private:
  static std::string of_interfaces(const Json& facts, const char* key) {
    std::vector<std::string> values;
    for (const Json& card : list(facts, "interfaces")) {
      const std::string value = text(card, key);
      if (!value.empty() && value != "-1") values.push_back(value);
    }
    std::ranges::sort(values);
    return join(values, ",");
  }

  void differ(const char* key, const char* what, Verdict verdict, const char* fix) {
    differ_by(key, what, verdict, fix, [&](const Json& facts) { return text(facts, key); });
  }

  // Adds a finding for each host whose value differs from the most frequent one. Two hosts cannot outvote each other:
  // the finding names both values.
  void differ_by(const std::string& id, const std::string& what, Verdict verdict,
                 const std::string& fix, const std::function<std::string(const Json&)>& value_of) {
    std::map<std::string, int> counts;
    for (const HostFacts* host : hosts_) {
      if (const std::string value = value_of(host->facts); !value.empty()) ++counts[value];
    }
    if (counts.size() < 2) return;
    std::string usual;
    for (const HostFacts* host : hosts_) {  // the first of equally frequent values
      const std::string value = value_of(host->facts);
      if (!value.empty() && (usual.empty() || counts[value] > counts[usual])) usual = value;
    }
    for (const HostFacts* host : hosts_) {
      const std::string value = value_of(host->facts);
      if (value.empty() || value == usual) continue;
      Finding finding{.id = id, .verdict = verdict, .hosts = {host->host}};
      finding.why = cat("its ", what, " is ", value, ", and ",
                        counts[usual] == 1 ? "the other's" : "that of most hosts", " is ", usual);
      finding.fix = fix;
      findings_.push_back(std::move(finding));
    }
  }

  void packages() {
    std::map<std::string, int> names;
    const auto version = [](const Json& facts, const std::string& name) -> std::string {
      const auto packages = facts.find("packages");
      if (packages == facts.end() || !packages->is_object()) return "";
      const std::string found = text(*packages, name.c_str());
      return found.empty() ? "none" : found;
    };
    for (const HostFacts* host : hosts_) {
      const auto packages = host->facts.find("packages");
      if (packages == host->facts.end() || !packages->is_object()) continue;
      for (const auto& [name, value] : packages->items()) ++names[name];
    }
    for (const auto& [name, count] : names) {
      differ_by("package", printable(name), Verdict::kWarn, "install the same version on all hosts",
                [&, name = name](const Json& facts) { return version(facts, name); });
    }
  }

  // Compares hosts of one processor model. A busy host cannot be judged by its speed.
  void slower(const char* key, const char* id, const char* what, double warn_below,
              double fail_below, const char* fix) {
    std::map<std::string, std::vector<double>> speeds;
    for (const HostFacts* host : hosts_) {
      const auto speed = number(host->facts, key);
      if (speed && !is_busy_host(host->facts))
        speeds[text(host->facts, "cpu_model")].push_back(*speed);
    }
    for (const HostFacts* host : hosts_) {
      const auto speed = number(host->facts, key);
      const auto& peers = speeds[text(host->facts, "cpu_model")];
      if (!speed || is_busy_host(host->facts) || peers.size() < 3) continue;
      const double usual = median_of(peers), share = *speed / usual;
      if (share >= warn_below) continue;
      Finding finding{.id = id, .hosts = {host->host}};
      finding.verdict = share < fail_below ? Verdict::kFail : Verdict::kWarn;
      finding.why =
          cat(what, " at ", percent(share), " of the speed of hosts with the same processors");
      finding.fix = fix;
      finding.value = *speed;
      finding.limit = usual * warn_below;
      findings_.push_back(std::move(finding));
    }
  }

  void slow_disks() {
    std::vector<double> all;
    for (const HostFacts* host : hosts_) {
      if (const auto seconds = number(host->facts, "disk_seconds")) all.push_back(*seconds);
    }
    if (all.size() < 3) return;
    constexpr double kTimes = 10, kNoticeable = 1;
    const double usual = median_of(all);
    for (const HostFacts* host : hosts_) {
      const auto seconds = number(host->facts, "disk_seconds");
      if (!seconds || *seconds < kNoticeable || *seconds <= kTimes * usual) continue;
      Finding finding{.id = "disk_speed", .verdict = Verdict::kWarn, .hosts = {host->host}};
      finding.why =
          cat("16 MiB take ", short_number(*seconds), " s to reach its disk (",
              text(host->facts, "tmp_path"), "), and ", short_number(usual), " s on most hosts");
      finding.fix = "check the disk, and what else writes to it";
      finding.value = *seconds;
      finding.limit = kTimes * usual;
      finding.unit = "s";
      findings_.push_back(std::move(finding));
    }
  }

  std::vector<const HostFacts*> hosts_;
  std::vector<Finding> findings_;
};

}  // namespace

std::string_view name_of(Verdict verdict) {
  constexpr std::array<std::string_view, 4> kNames = {"note", "unknown", "warn", "fail"};
  return kNames.at(static_cast<size_t>(verdict));
}

Result<DoctorLine> parse_doctor_line(std::string_view line) {
  const Json object = Json::parse(line, nullptr, false);
  if (!object.is_object()) return invalid_argument("the line is not a JSON object");
  DoctorLine parsed;
  if (const auto facts = object.find("facts"); facts != object.end() && facts->is_object()) {
    parsed.facts = *facts;
  }
  const auto pair = object.find("pair");
  if (pair == object.end() || !pair->is_object()) return parsed;
  PairResult result;
  const auto index = [&](const char* key) {
    return static_cast<int>(number(*pair, key).value_or(-1));
  };
  result.from = index("from");
  result.to = index("to");
  if (result.from < 0 || result.to < 0) return invalid_argument("the pair has no ends");
  result.is_repeated = is_true(*pair, "again");
  result.send = number(*pair, "send").value_or(-1);
  result.receive = number(*pair, "receive").value_or(-1);
  result.latency_p50 = number(*pair, "latency_p50").value_or(-1);
  result.latency_p99 = number(*pair, "latency_p99").value_or(-1);
  result.retransmits = number(*pair, "retransmits").value_or(-1);
  result.is_large_lost = is_true(*pair, "large_lost");
  result.error = text(*pair, "error");
  parsed.pair = std::move(result);
  return parsed;
}

std::vector<Finding> judge_hosts(std::span<const HostFacts> hosts) {
  std::vector<Finding> findings;
  for (const HostFacts& host : hosts) {
    if (!host.facts.is_object()) {
      Finding finding{.id = "reach", .verdict = Verdict::kFail, .hosts = {host.host}};
      finding.why = host.error.empty() ? "it gave no answer" : host.error;
      findings.push_back(std::move(finding));
      continue;
    }
    for (Finding& finding : HostRules(host).judge()) findings.push_back(std::move(finding));
  }
  for (Finding& finding : PeerRules(hosts).judge()) findings.push_back(std::move(finding));
  return findings;
}

namespace {

// The findings about links. A pair that was measured again is judged by both results: a link that was slow only once
// is not slow.
class PairRules {
 public:
  PairRules(std::span<const HostFacts> hosts, std::span<const PairResult> pairs) : hosts_(hosts) {
    const int count = static_cast<int>(hosts.size());
    for (const PairResult& pair : pairs) {
      if (pair.from >= count || pair.to >= count || pair.from == pair.to) continue;
      take(pair);
      if (pair.receive < 0 || !pair.error.empty()) continue;
      PairResult other{.from = pair.to, .to = pair.from, .send = pair.receive};
      take(other);
    }
  }

  std::vector<Finding> judge() && {
    broken();
    retransmits();
    slow();
    latency();
    return std::move(findings_);
  }

 private:
  void take(const PairResult& pair) {
    PairResult& best = best_.try_emplace({pair.from, pair.to}, pair).first->second;
    if (is_better(pair, best)) best = pair;
  }

  static bool is_better(const PairResult& one, const PairResult& other) {
    if (one.error.empty() != other.error.empty()) return one.error.empty();
    if (one.is_large_lost != other.is_large_lost) return !one.is_large_lost;
    return one.send > other.send;
  }

  const std::string& name(int host) const { return hosts_[static_cast<size_t>(host)].host; }

  Finding& add(const char* id, Verdict verdict, std::vector<int> hosts, std::string why,
               std::string fix) {
    Finding finding{.id = id, .verdict = verdict};
    for (const int host : hosts) finding.hosts.push_back(name(host));
    finding.why = std::move(why);
    finding.fix = std::move(fix);
    return findings_.emplace_back(std::move(finding));
  }

  // A host that no partner can reach is one finding.
  void broken() {
    std::map<int, int> failures, partners;
    for (const auto& [ends, pair] : best_) {
      for (const int host : {ends.first, ends.second}) {
        ++partners[host];
        if (!pair.error.empty()) ++failures[host];
      }
    }
    std::map<int, bool> is_cut;
    for (const auto& [host, count] : failures) {
      is_cut[host] = hosts_.size() > 2 && count == partners[host];
      if (!is_cut[host]) continue;
      add("reach_peers", Verdict::kFail, {host}, "no other host can exchange data with it",
          "open the ports between the hosts, or name the network with --network-interfaces");
    }
    for (const auto& [ends, pair] : best_) {
      if (!pair.error.empty() && !is_cut[ends.first] && !is_cut[ends.second]) {
        add("reach_pair", Verdict::kFail, {ends.first, ends.second}, pair.error,
            "open the ports between the hosts, or name the network with --network-interfaces");
      } else if (pair.is_large_lost) {
        add("mtu_lost", Verdict::kFail, {ends.first, ends.second},
            "small packets arrive, and large packets are lost",
            "set the same MTU on both hosts and on the network between them");
      }
    }
  }

  // A link whose sender is limited loses packets while TCP looks for the speed, so a link is compared with the others.
  void retransmits() {
    std::vector<double> all;
    for (const auto& [ends, pair] : best_) {
      if (pair.retransmits >= 0) all.push_back(pair.retransmits);
    }
    if (all.empty()) return;
    constexpr double kNoticeable = 0.01, kTimes = 5;
    const double usual = all.size() < 3 ? 0 : median_of(all);
    for (const auto& [ends, pair] : best_) {
      if (pair.retransmits <= kNoticeable || pair.retransmits <= kTimes * usual) continue;
      Finding& finding =
          add("retransmits", Verdict::kWarn, {ends.first, ends.second},
              cat(short_number(pair.retransmits * 100), " % of the packets were sent again"),
              "check cables and switches on the way");
      finding.value = pair.retransmits;
      finding.limit = std::max(kNoticeable, kTimes * usual);
    }
  }

  // Whether the host is busier than most: then its load may explain its times. If all are busy, the comparison holds.
  bool is_busy(int host) const {
    std::vector<double> all;
    for (const HostFacts& each : hosts_) {
      if (each.facts.is_object()) all.push_back(busy_percent(each.facts));
    }
    const Json& facts = hosts_[static_cast<size_t>(host)].facts;
    constexpr double kMore = 25;
    return facts.is_object() && busy_percent(facts) > median_of(std::move(all)) + kMore;
  }

  // Only a host or a link far below the others fails, and only if no other program there explains it.
  Verdict verdict_of(double share, std::initializer_list<int> ends) const {
    constexpr double kFailShare = 0.5;
    if (std::ranges::any_of(ends, [&](int host) { return is_busy(host); })) return Verdict::kNote;
    return share < kFailShare ? Verdict::kFail : Verdict::kWarn;
  }

  void slow() {
    std::vector<PairSpeed> speeds;
    for (const auto& [ends, pair] : best_) {
      if (pair.error.empty() && pair.send >= 0)
        speeds.push_back({ends.first, ends.second, pair.send});
    }
    const SlowParts parts = find_slow_parts(speeds);
    const auto host_finding = [&](int host, double share, const char* does) {
      Finding& finding =
          add("bandwidth", verdict_of(share, {host}), {host},
              cat("it ", does, " at ", percent(share), " of the usual speed of the hosts"),
              "check its network card, cable and port, and what else uses them");
      finding.value = share;
      finding.limit = kSlowShare;
    };
    for (const auto& [host, share] : parts.senders) {
      const auto other = parts.receivers.find(host);
      if (other == parts.receivers.end())
        host_finding(host, share, "sends");
      else
        host_finding(host, std::min(share, other->second), "sends and receives");
    }
    for (const auto& [host, share] : parts.receivers) {
      if (!parts.senders.contains(host)) host_finding(host, share, "receives");
    }
    for (const auto& [ends, share] : parts.links) {
      Finding& finding = add("link_bandwidth", verdict_of(share, {ends.first, ends.second}),
                             {ends.first, ends.second},
                             cat("the link carries ", size_text(best_.at(ends).send), "B/s, ",
                                 percent(share), " of what its two ends reach with others"),
                             "check the switches between them");
      finding.value = share;
      finding.limit = kSlowShare;
    }
  }

  void latency() {
    std::vector<double> all;
    for (const auto& [ends, pair] : best_) {
      if (pair.latency_p50 >= 0) all.push_back(pair.latency_p50);
    }
    if (all.size() < 3) return;
    constexpr double kTimes = 5, kNoticeable = 100e-6;
    const double usual = median_of(all);
    for (const auto& [ends, pair] : best_) {
      if (pair.latency_p50 <= kTimes * usual || pair.latency_p50 <= usual + kNoticeable) continue;
      if (is_busy(ends.first) || is_busy(ends.second)) continue;
      Finding& finding = add("latency", Verdict::kWarn, {ends.first, ends.second},
                             cat("an answer takes ", short_number(pair.latency_p50 * 1e6),
                                 " us, and ", short_number(usual * 1e6), " us in most pairs"),
                             "check the way between them, and the load of both");
      finding.value = pair.latency_p50;
      finding.limit = kTimes * usual;
      finding.unit = "s";
    }
  }

  std::span<const HostFacts> hosts_;
  std::map<std::pair<int, int>, PairResult> best_;
  std::vector<Finding> findings_;
};

}  // namespace

std::vector<Finding> judge_pairs(std::span<const HostFacts> hosts,
                                 std::span<const PairResult> pairs) {
  return PairRules(hosts, pairs).judge();
}

}  // namespace hvd::launcher
