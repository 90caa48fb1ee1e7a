#include "launcher/doctor/report.h"

#include <algorithm>
#include <map>

#include "base/text.h"
#include "horovod/version.h"
#include "launcher/doctor/rules.h"
#include "launcher/observe/rules/silent_hosts.h"
#include "launcher/output/terminal_text.h"
#include "launcher/protocol/pair_rule.h"

namespace hvd::launcher {
namespace {

using Json = nlohmann::json;

bool is_of_link(const Finding& finding) { return finding.hosts.size() == 2; }

// Findings with the same text, which are one sentence for all their hosts.
struct SameFindings {
  const Finding* first = nullptr;
  std::vector<std::string> hosts{};
};

std::vector<SameFindings> grouped(const std::vector<Finding>& findings) {
  std::vector<SameFindings> groups;
  for (const Finding& finding : findings) {
    const auto same = std::ranges::find_if(groups, [&](const SameFindings& group) {
      return !is_of_link(finding) && !is_of_link(*group.first) && group.first->id == finding.id &&
             group.first->verdict == finding.verdict && group.first->why == finding.why;
    });
    if (same != groups.end()) {
      same->hosts.push_back(finding.hosts.front());
    } else {
      groups.push_back({&finding, finding.hosts});
    }
  }
  return groups;
}

std::string sentence_of(const SameFindings& group) {
  const Finding& finding = *group.first;
  const std::string where = is_of_link(finding)
                                ? cat("from host ", finding.hosts[0], " to host ", finding.hosts[1])
                                : hosts_text(group.hosts);
  return cat(where, ": ", finding.why, finding.fix.empty() ? "" : cat("; ", finding.fix));
}

constexpr size_t kMostOfMatrix = 64;

// Returns a character for each pair: "." usual, "o" slow, "x" no connection, " " not measured. A row is a sender.
std::string matrix_of(const Diagnosis& diagnosis) {
  std::map<std::pair<int, int>, double> speeds;  // -1: no data passed
  std::vector<double> measured;
  for (const auto& [ends, pair] : best_results(diagnosis.hosts.size(), diagnosis.pairs)) {
    const double speed = pair.error.empty() && !pair.is_large_lost ? pair.send : -1;
    speeds[ends] = speed;
    if (speed >= 0) measured.push_back(speed);
  }
  if (measured.empty() || diagnosis.hosts.size() > kMostOfMatrix) return "";
  std::ranges::sort(measured);
  const double usual = measured[measured.size() / 2];
  size_t width = 0;
  for (const HostFacts& host : diagnosis.hosts) width = std::max(width, host.host.size());
  std::string text =
      cat("Links: ", size_text(usual), "B/s in the median, ", size_text(measured.front()),
          "B/s in the slowest; a row sends (. usual, o slow, x broken, - not measured):\n");
  const int count = static_cast<int>(diagnosis.hosts.size());
  for (int from = 0; from < count; ++from) {
    std::string row = diagnosis.hosts[static_cast<size_t>(from)].host;
    row.resize(width + 1, ' ');
    for (int to = 0; to < count; ++to) {
      const auto found = speeds.find({from, to});
      if (from == to)
        row += ' ';
      else if (found == speeds.end())
        row += '-';
      else
        row += found->second < 0 ? 'x' : found->second < kSlowShare * usual ? 'o' : '.';
    }
    text += cat("  ", row, "\n");
  }
  return text;
}

std::string counted(size_t number, const char* noun) {
  return cat(number, " ", noun, number == 1 ? "" : "s");
}

Json finding_json(const Finding& finding) {
  Json object = {{"id", finding.id}, {"verdict", name_of(finding.verdict)}, {"why", finding.why}};
  if (!finding.fix.empty()) object["fix"] = finding.fix;
  if (finding.value) object["value"] = *finding.value;
  if (finding.limit) object["limit"] = *finding.limit;
  if (!finding.unit.empty()) object["unit"] = finding.unit;
  if (is_of_link(finding)) object["to"] = finding.hosts[1];
  return object;
}

std::string_view verdict_of(const Diagnosis& diagnosis) {
  // After judge(), the first finding is the worst.
  return diagnosis.findings.empty() ? "ok" : name_of(diagnosis.findings.front().verdict);
}

}  // namespace

void judge(Diagnosis& diagnosis) {
  diagnosis.findings = judge_hosts(diagnosis.hosts);
  for (Finding& finding : judge_pairs(diagnosis.hosts, diagnosis.pairs)) {
    diagnosis.findings.push_back(std::move(finding));
  }
  std::ranges::stable_sort(diagnosis.findings, [](const Finding& one, const Finding& other) {
    return one.verdict > other.verdict;
  });
}

bool has_failures(const Diagnosis& diagnosis) {
  return std::ranges::any_of(
      diagnosis.findings, [](const Finding& finding) { return finding.verdict == Verdict::kFail; });
}

std::vector<std::string> finding_sentences(const Diagnosis& diagnosis) {
  std::vector<std::string> sentences;
  for (const SameFindings& group : grouped(diagnosis.findings)) {
    sentences.push_back(sentence_of(group));
  }
  return sentences;
}

std::string diagnosis_text(const Diagnosis& diagnosis) {
  std::string text;
  size_t number = 0, failures = 0, warnings = 0;
  for (const SameFindings& group : grouped(diagnosis.findings)) {
    const Verdict verdict = group.first->verdict;
    failures += verdict == Verdict::kFail ? 1 : 0;
    warnings += verdict == Verdict::kWarn ? 1 : 0;
    text += cat(++number, ". ", name_of(verdict), ": ", sentence_of(group), "\n");
  }
  text += matrix_of(diagnosis);
  std::string end = failures > 0 ? cat("not ready: ", counted(failures, "failure")) : "ready";
  if (warnings > 0) end += cat(", ", counted(warnings, "warning"));
  char seconds[32];
  std::snprintf(seconds, sizeof seconds, "%.1f", diagnosis.seconds);
  return cat(text, end, " (", counted(diagnosis.hosts.size(), "host"), ", level ", diagnosis.level,
             ", ", seconds, " s)\n");
}

std::string diagnosis_json(const Diagnosis& diagnosis) {
  Json hosts = Json::object();
  for (const HostFacts& host : diagnosis.hosts) {
    hosts[host.host] = {{"facts", host.facts.is_object() ? host.facts : Json::object()},
                        {"checks", Json::array()}};
  }
  for (const Finding& finding : diagnosis.findings) {
    hosts[finding.hosts.front()]["checks"].push_back(finding_json(finding));
  }
  Json pairs = Json::array();
  for (const PairResult& pair : diagnosis.pairs) {
    Json object = {{"from", diagnosis.hosts[static_cast<size_t>(pair.from)].host},
                   {"to", diagnosis.hosts[static_cast<size_t>(pair.to)].host},
                   {"again", pair.is_repeated}};
    const auto put = [&](const char* key, double value) {
      if (value >= 0) object[key] = value;
    };
    put("send", pair.send);
    put("receive", pair.receive);
    put("latency_min", pair.latency_min);
    put("latency_p50", pair.latency_p50);
    put("latency_p99", pair.latency_p99);
    put("retransmits", pair.retransmits);
    if (pair.is_large_lost) object["large_lost"] = true;
    if (!pair.error.empty()) object["error"] = pair.error;
    pairs.push_back(std::move(object));
  }
  const Json all = {{"version", HVD_VERSION},
                    {"level", diagnosis.level},
                    {"verdict", verdict_of(diagnosis)},
                    {"seconds", diagnosis.seconds},
                    {"hosts", hosts},
                    {"pairs", pairs}};
  return all.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace hvd::launcher
