#include <algorithm>
#include <functional>
#include <map>
#include <set>

#include "base/text.h"
#include "launcher/doctor/rules.h"
#include "launcher/output/terminal_text.h"
#include "launcher/protocol/pair_rule.h"

namespace hvd::launcher {
namespace {

using Json = nlohmann::json;

constexpr const char* kSameVersion = "install the same version on all hosts";

class PeerRules {
 public:
  PeerRules(std::span<const HostFacts> hosts, std::vector<Finding>& findings)
      : findings_(findings) {
    for (const HostFacts& host : hosts) {
      if (host.facts.is_object()) hosts_.push_back(&host);
    }
  }

  void judge() {
    differ("machine", "processor architecture", Verdict::kFail, "use hosts of one architecture");
    differ("kernel", "kernel", Verdict::kNote, "");
    differ("python", "Python", Verdict::kWarn, kSameVersion);
    differ("driver", "driver of the GPUs", Verdict::kWarn, "install the same driver on all hosts");
    differ("nccl", "NCCL", Verdict::kWarn, kSameVersion);
    packages();
    differ_by("gpu_count", "number of GPUs", Verdict::kFail,
              "find out why a GPU is missing (dmesg, lspci)", [](const Facts& facts) {
                const Json& gpus = facts.at("gpus");
                return gpus.is_null() ? "" : std::to_string(gpus.size());
              });
    differ_by("mtu", "MTU", Verdict::kWarn, "set the same MTU on all hosts and switches",
              [](const Facts& facts) { return of_interfaces(facts, "mtu"); });
    differ_by("link_speed", "speed of the network card", Verdict::kWarn,
              "check the cable, and the port of the switch",
              [](const Facts& facts) { return of_interfaces(facts, "speed"); });
    slower("cpu_speed", "cpu_speed", "its processors compute", 0.85, 0.60,
           "check cooling, power limits and the CPU governor");
    slower("memory_copy", "memory_speed", "its memory copies", 0.75, 0,
           "check its memory modules and NUMA settings");
    slow_disks();
  }

 private:
  static std::string of_interfaces(const Facts& facts, const char* key) {
    std::vector<std::string> values;
    for (const Json& card : facts.list("interfaces")) {
      const std::string value = Facts(card).text(key);
      if (!value.empty() && value != "-1") values.push_back(value);
    }
    std::ranges::sort(values);
    return join(values, ",");
  }

  void differ(const char* key, const char* what, Verdict verdict, const char* fix) {
    differ_by(key, what, verdict, fix, [&](const Facts& facts) { return facts.text(key); });
  }

  // Adds a finding for each host whose value differs from the most frequent one. Two hosts cannot outvote each other:
  // the finding names both values.
  void differ_by(const char* id, const std::string& what, Verdict verdict, const char* fix,
                 const std::function<std::string(const Facts&)>& value_of) {
    std::map<std::string, int> counts;
    for (const HostFacts* host : hosts_) ++counts[value_of(Facts(host->facts))];
    counts.erase("");
    if (counts.size() < 2) return;
    std::string usual;
    for (const HostFacts* host : hosts_) {  // the first of equally frequent values
      const std::string value = value_of(Facts(host->facts));
      if (counts[value] > counts[usual]) usual = value;
    }
    for (const HostFacts* host : hosts_) {
      const std::string value = value_of(Facts(host->facts));
      if (value.empty() || value == usual) continue;
      add_finding(findings_, id, verdict, {host->host},
                  cat("its ", what, " is ", value, ", and ",
                      counts[usual] == 1 ? "the other's" : "that of most hosts", " is ", usual),
                  fix);
    }
  }

  void packages() {
    std::set<std::string> names;
    for (const HostFacts* host : hosts_) {
      for (const auto& [name, version] : Facts(host->facts).at("packages").items()) {
        names.insert(name);
      }
    }
    for (const std::string& name : names) {
      differ_by("package", printable(name), Verdict::kWarn, kSameVersion, [&](const Facts& facts) {
        const Json& packages = facts.at("packages");
        const std::string version = Facts(packages).text(name);
        return version.empty() && packages.is_object() ? "none" : version;
      });
    }
  }

  // Calls `judge` with each host that has the number `key`, the number, and the median of its group of three or more.
  void compare(const char* key, const std::function<std::string(const Facts&)>& group_of,
               const std::function<void(const HostFacts&, double, double)>& judge) {
    std::map<std::string, std::vector<double>> groups;
    for (const HostFacts* host : hosts_) {
      const Facts facts(host->facts);
      if (const auto value = facts.number(key)) groups[group_of(facts)].push_back(*value);
    }
    for (const HostFacts* host : hosts_) {
      const Facts facts(host->facts);
      const auto value = facts.number(key);
      if (!value) continue;
      const auto& group = groups[group_of(facts)];
      if (group.size() >= 3) judge(*host, *value, median_of(group));
    }
  }

  // Compares hosts of one processor model. A busy host cannot be judged by its speed.
  void slower(const char* key, const char* id, const char* what, double warn_below,
              double fail_below, const char* fix) {
    const auto is_busy = [](const Facts& facts) { return facts.busy_percent() > kBusyPercent; };
    const auto group_of = [&](const Facts& facts) {
      return cat(is_busy(facts) ? "busy " : "", facts.text("cpu_model"));
    };
    compare(key, group_of, [&](const HostFacts& host, double speed, double usual) {
      const double share = speed / usual;
      if (share >= warn_below || is_busy(Facts(host.facts))) return;
      add_finding(
          findings_, id, share < fail_below ? Verdict::kFail : Verdict::kWarn, {host.host},
          cat(what, " at ", percent(share), " of the speed of hosts with the same processors"), fix)
          .measures(speed, usual * warn_below);
    });
  }

  void slow_disks() {
    constexpr double kTimes = 10, kNoticeable = 1;
    const auto one_group = [](const Facts&) { return ""; };
    compare("disk_seconds", one_group, [&](const HostFacts& host, double seconds, double usual) {
      if (seconds < kNoticeable || seconds <= kTimes * usual) return;
      add_finding(findings_, "disk_speed", Verdict::kWarn, {host.host},
                  cat("16 MiB take ", short_number(seconds), " s to reach its disk (",
                      Facts(host.facts).text("tmp_path"), "), and ", short_number(usual),
                      " s on most hosts"),
                  "check the disk, and what else writes to it")
          .measures(seconds, kTimes * usual, "s");
    });
  }

  std::vector<const HostFacts*> hosts_;
  std::vector<Finding>& findings_;
};

}  // namespace

void judge_peers(std::span<const HostFacts> hosts, std::vector<Finding>& findings) {
  PeerRules(hosts, findings).judge();
}

}  // namespace hvd::launcher
