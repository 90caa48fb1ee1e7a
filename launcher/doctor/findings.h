// The rules of horovodrun doctor: they turn what hosts report about themselves, and what pairs of hosts measure, into
// findings. Each finding names the host, the value, the limit and the remedy. A value that a host could not read
// never gives a failure. Pure.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace hvd::launcher {

enum class Verdict : uint8_t { kNote = 0, kUnknown = 1, kWarn = 2, kFail = 3 };
std::string_view name_of(Verdict verdict);

struct Finding {
  std::string id;  // name of the check, for example "cpu_quota"; never changes between versions
  Verdict verdict = Verdict::kNote;
  std::vector<std::string> hosts{};  // one host, or the two ends of a link: sender, receiver
  std::string why{};                 // without the host's name
  std::string fix{};                 // the remedy; may be empty
  std::optional<double> value{}, limit{};
  std::string unit{};

  void measures(double measured, double allowed, const char* of_unit = "") {
    value = measured;
    limit = allowed;
    unit = of_unit;
  }
};

// The facts of one host. docs/doctor.md lists the keys; a missing key is unknown.
struct HostFacts {
  std::string host;
  int ranks = 1;           // the ranks that a job would start there
  nlohmann::json facts{};  // an object; null: the host has not answered
  std::string error{};     // why the host has not answered
};

// The measurement of a pair by its sender. `from` and `to` are indices of hosts. Seconds, and bytes per second.
struct PairResult {
  int from = 0, to = 0;
  bool is_repeated = false;  // measured again, because the first result was suspicious
  double send = -1, receive = -1;
  double latency_min = -1, latency_p50 = -1, latency_p99 = -1;
  double retransmits = -1;  // share of the segments
  bool is_large_lost = false;
  std::string error{};  // why there are no values; may be empty
};

// Parses a line that a host's program prints: {"facts": {...}} or {"pair": {...}}.
struct DoctorLine {
  std::optional<nlohmann::json> facts{};
  std::optional<PairResult> pair{};
};
Result<DoctorLine> parse_doctor_line(std::string_view line);

// Judges each host alone, and next to the others.
std::vector<Finding> judge_hosts(std::span<const HostFacts> hosts);
// Judges the links, and the hosts all of whose links are bad.
std::vector<Finding> judge_pairs(std::span<const HostFacts> hosts,
                                 std::span<const PairResult> pairs);

}  // namespace hvd::launcher
