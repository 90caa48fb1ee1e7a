#include "launcher/doctor/findings.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "base/text.h"
#include "launcher/doctor/rules.h"
#include "launcher/output/terminal_text.h"

namespace hvd::launcher {

using Json = nlohmann::json;

const Json& Facts::at(const std::string& key) const {
  static const Json kUnknown;
  const auto found = object_.find(key);
  return found == object_.end() ? kUnknown : *found;
}

std::optional<double> Facts::number(const std::string& key) const {
  const double value = at(key).is_number() ? at(key).get<double>() : NAN;
  return std::isfinite(value) ? std::optional(value) : std::nullopt;
}

std::string Facts::text(const std::string& key) const {
  const Json& value = at(key);
  if (value.is_string()) return printable(value.get<std::string>());
  return value.is_primitive() && !value.is_null() ? value.dump() : "";
}

const Json& Facts::list(const std::string& key) const {
  static const Json kNone = Json::array();
  return at(key).is_array() ? at(key) : kNone;
}

double Facts::busy_percent() const {
  return number("run_delay_percent").value_or(0) + number("steal_percent").value_or(0);
}

std::string short_number(double value) {
  if (value == std::floor(value) && std::abs(value) < 1e15) {
    return std::to_string(static_cast<int64_t>(value));
  }
  char digits[32];
  std::snprintf(digits, sizeof digits, "%.2f", value);
  return digits;
}

std::string_view name_of(Verdict verdict) {
  constexpr std::array<std::string_view, 4> kNames = {"note", "unknown", "warn", "fail"};
  return kNames.at(static_cast<size_t>(verdict));
}

Result<DoctorLine> parse_doctor_line(std::string_view line) {
  // Code that walks or prints a value calls itself for each level, so deeper values are dropped.
  constexpr int kMostLevels = 16;
  const Json object = Json::parse(
      line, [](int depth, Json::parse_event_t, Json&) { return depth < kMostLevels; }, false);
  if (!object.is_object()) return invalid_argument("the line is not a JSON object");
  DoctorLine parsed;
  if (const auto facts = object.find("facts"); facts != object.end() && facts->is_object()) {
    parsed.facts = *facts;
  }
  const auto found = object.find("pair");
  if (found == object.end() || !found->is_object()) return parsed;
  const Facts pair(*found);
  PairResult result;
  const auto index = [&](const char* key) {
    const double value = pair.number(key).value_or(-1);
    return value < std::numeric_limits<int>::max() ? static_cast<int>(std::max(value, -1.0)) : -1;
  };
  result.from = index("from");
  result.to = index("to");
  if (result.from < 0 || result.to < 0) return invalid_argument("the pair has no ends");
  result.is_repeated = pair.is_true("again");
  result.send = pair.number("send").value_or(-1);
  result.receive = pair.number("receive").value_or(-1);
  result.latency_min = pair.number("latency_min").value_or(-1);
  result.latency_p50 = pair.number("latency_p50").value_or(-1);
  result.latency_p99 = pair.number("latency_p99").value_or(-1);
  result.retransmits = pair.number("retransmits").value_or(-1);
  result.is_large_lost = pair.is_true("large_lost");
  result.error = pair.text("error");
  parsed.pair = std::move(result);
  return parsed;
}

std::vector<Finding> judge_hosts(std::span<const HostFacts> hosts) {
  std::vector<Finding> findings;
  for (const HostFacts& host : hosts) {
    if (host.facts.is_object()) {
      judge_host(host, findings);
    } else {
      add_finding(findings, "reach", Verdict::kFail, {host.host},
                  host.error.empty() ? "it gave no answer" : host.error, "");
    }
  }
  judge_peers(hosts, findings);
  return findings;
}

}  // namespace hvd::launcher
