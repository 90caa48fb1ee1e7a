// The parts of judge_hosts() and judge_pairs(), and what they share. Pure.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "launcher/doctor/findings.h"

namespace hvd::launcher {

// Reads what a host reports. A value of another type than expected is unknown.
class Facts {
 public:
  explicit Facts(const nlohmann::json& object) : object_(object) {}

  const nlohmann::json& at(const std::string& key) const;      // null: unknown
  std::optional<double> number(const std::string& key) const;  // finite
  std::string text(const std::string& key) const;  // printable, also of a number; empty: unknown
  const nlohmann::json& list(const std::string& key) const;
  bool is_true(const std::string& key) const { return at(key) == true; }
  // The share of the time for which a ready thread waited for a processor.
  double busy_percent() const;

 private:
  const nlohmann::json& object_;
};

// Returns "2", or "0.50" for a number that is not whole.
std::string short_number(double value);

inline Finding& add_finding(std::vector<Finding>& findings, std::string id, Verdict verdict,
                            std::vector<std::string> hosts, std::string why, std::string fix) {
  return findings.emplace_back(Finding{.id = std::move(id),
                                       .verdict = verdict,
                                       .hosts = std::move(hosts),
                                       .why = std::move(why),
                                       .fix = std::move(fix)});
}

// On a busier host, times say more about its load than about its processor.
inline constexpr double kBusyPercent = 10;

inline constexpr const char* kOpenPorts =
    "open the ports between the hosts, or name the network with --network-interfaces";

// The best result of each pair, by its ends, in both directions: a pair that was slow only once is not slow. In the
// opposite direction, `send` is what the other end sent, and there are no retransmits. Load loses no packet: the most
// retransmits count.
using PairResults = std::map<std::pair<int, int>, PairResult>;
PairResults best_results(size_t hosts, std::span<const PairResult> pairs);

void judge_host(const HostFacts& host, std::vector<Finding>& findings);
// Compares the hosts that have answered.
void judge_peers(std::span<const HostFacts> hosts, std::vector<Finding>& findings);

}  // namespace hvd::launcher
