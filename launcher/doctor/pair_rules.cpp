#include <algorithm>
#include <cmath>

#include "base/text.h"
#include "launcher/doctor/rules.h"
#include "launcher/output/terminal_text.h"
#include "launcher/protocol/pair_rule.h"

namespace hvd::launcher {
namespace {

bool is_better(const PairResult& one, const PairResult& other) {
  if (one.error.empty() != other.error.empty()) return one.error.empty();
  if (one.is_large_lost != other.is_large_lost) return !one.is_large_lost;
  return one.send > other.send;
}

class PairRules {
 public:
  PairRules(std::span<const HostFacts> hosts, std::span<const PairResult> pairs)
      : hosts_(hosts), best_(best_results(hosts.size(), pairs)) {
    // A host that could start no thread has a finding of its own.
    const auto has_started = [&](int host) {
      return Facts(hosts_[static_cast<size_t>(host)].facts).text("start_error").empty();
    };
    std::erase_if(best_, [&](const auto& each) {
      const auto& [ends, pair] = each;
      return !pair.error.empty() && !(has_started(ends.first) && has_started(ends.second));
    });
  }

  std::vector<Finding> judge() && {
    broken();
    retransmits();
    slow();
    latency();
    return std::move(findings_);
  }

 private:
  Finding& add(const char* id, Verdict verdict, std::initializer_list<int> hosts, std::string why,
               std::string fix) {
    std::vector<std::string> names;
    for (const int host : hosts) names.push_back(hosts_[static_cast<size_t>(host)].host);
    return add_finding(findings_, id, verdict, std::move(names), std::move(why), std::move(fix));
  }

  // A host that no partner can reach is one finding.
  void broken() {
    std::map<int, int> failures, partners;
    for (const auto& [ends, pair] : best_) {
      ++partners[ends.first];
      if (!pair.error.empty()) ++failures[ends.first];
    }
    const auto is_cut = [&](int host) {
      return partners.size() > 2 && failures[host] == partners[host];
    };
    for (const auto& [host, count] : partners) {
      if (!is_cut(host)) continue;
      add("reach_peers", Verdict::kFail, {host}, "no other host can exchange data with it",
          kOpenPorts);
    }
    for (const auto& [ends, pair] : best_) {
      const auto& [from, to] = ends;
      if (from > to) continue;
      if (!pair.error.empty() && !is_cut(from) && !is_cut(to)) {
        // After small messages have passed, the load may be the reason.
        const bool is_unsure = pair.latency_min > 0 && are_overloaded({from, to});
        add("reach_pair", is_unsure ? Verdict::kUnknown : Verdict::kFail, {from, to}, pair.error,
            kOpenPorts);
      } else if (pair.is_large_lost) {
        add("mtu_lost", Verdict::kFail, {from, to},
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
      add("retransmits", Verdict::kWarn, {ends.first, ends.second},
          cat(short_number(pair.retransmits * 100), " % of the packets were sent again"),
          "check cables and switches on the way")
          .measures(pair.retransmits, std::max(kNoticeable, kTimes * usual));
    }
  }

  // Whether the host is busier than most: then its load may explain its times. If all are busy, the comparison holds.
  bool is_busy(int host) const {
    std::vector<double> all;
    for (const HostFacts& each : hosts_) {
      if (each.facts.is_object()) all.push_back(Facts(each.facts).busy_percent());
    }
    const nlohmann::json& facts = hosts_[static_cast<size_t>(host)].facts;
    constexpr double kMore = 25;
    return facts.is_object() && Facts(facts).busy_percent() > median_of(std::move(all)) + kMore;
  }

  // Whether threads wait longer than they run on one of the hosts: a time says little about a link then.
  bool are_overloaded(std::initializer_list<int> hosts) const {
    constexpr double kMost = 60;
    return std::ranges::any_of(hosts, [&](int host) {
      return Facts(hosts_[static_cast<size_t>(host)].facts).busy_percent() > kMost;
    });
  }

  // Only a host or a link far below the others fails, and only if no other program there explains it.
  Verdict verdict_of(double share, std::initializer_list<int> ends) const {
    constexpr double kFailShare = 0.5;
    if (std::ranges::any_of(ends, [&](int host) { return is_busy(host); })) return Verdict::kNote;
    return share < kFailShare && !are_overloaded(ends) ? Verdict::kFail : Verdict::kWarn;
  }

  void slow() {
    std::vector<PairSpeed> speeds;
    for (const auto& [ends, pair] : best_) {
      if (pair.error.empty() && pair.send >= 0)
        speeds.push_back({ends.first, ends.second, pair.send});
    }
    const SlowParts parts = find_slow_parts(speeds);
    const auto host_finding = [&](int host, double share, const char* does) {
      add("bandwidth", verdict_of(share, {host}), {host},
          cat("it ", does, " at ", percent(share), " of the usual speed of the hosts"),
          "check its network card, cable and port, and what else uses them")
          .measures(share, kSlowShare);
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
      const auto& [from, to] = ends;
      add("link_bandwidth", verdict_of(share, {from, to}), {from, to},
          cat("the link carries ", size_text(best_.at(ends).send), "B/s, ", percent(share),
              " of what its two ends reach with others"),
          "check the switches between them")
          .measures(share, kSlowShare);
    }
  }

  // A host with a late answer to each partner is found as a slow host is: among few hosts, half of the pairs have it.
  // The shortest time counts: a program that waits for a processor makes most answers late.
  void latency() {
    constexpr double kTimes = 5, kNoticeable = 100e-6;
    std::vector<PairSpeed> answers;  // per second
    for (const auto& [ends, pair] : best_) {
      if (pair.latency_min > 0) answers.push_back({ends.first, ends.second, 1 / pair.latency_min});
    }
    const SlowParts parts = find_slow_parts(answers, 1 / kTimes);
    std::map<int, std::vector<double>> late;
    std::vector<double> others;
    for (const auto& [from, to, rate] : answers) {
      const bool is_late = parts.senders.contains(from), is_to_late = parts.senders.contains(to);
      if (is_late) late[from].push_back(1 / rate);
      if (!is_late && !is_to_late) others.push_back(1 / rate);
    }
    if (others.empty()) return;
    const double usual = median_of(std::move(others));
    const auto judge_one = [&](std::initializer_list<int> ends, double seconds, const char* what) {
      if (seconds <= usual + kNoticeable) return;
      add("latency", verdict_of(1, ends), ends,
          cat(what, " take ", short_number(seconds * 1e3), " ms, and ", short_number(usual * 1e3),
              " ms in most pairs"),
          "check the way between them, and the load of both")
          .measures(seconds, kTimes * usual, "s");
    };
    for (const auto& [host, seconds] : late) judge_one({host}, median_of(seconds), "its answers");
    for (const auto& [ends, share] : parts.links) {
      if (ends.first > ends.second) continue;
      judge_one({ends.first, ends.second}, best_.at(ends).latency_min, "answers");
    }
  }

  std::span<const HostFacts> hosts_;
  PairResults best_;
  std::vector<Finding> findings_;
};

}  // namespace

PairResults best_results(size_t hosts, std::span<const PairResult> pairs) {
  PairResults results;
  for (PairResult pair : pairs) {
    const auto is_host = [&](int host) { return host >= 0 && static_cast<size_t>(host) < hosts; };
    if (!is_host(pair.from) || !is_host(pair.to) || pair.from == pair.to) continue;
    for (int way = 0; way < 2; ++way) {
      PairResult& best = results.try_emplace({pair.from, pair.to}, pair).first->second;
      const double retransmits = std::max(best.retransmits, pair.retransmits);
      if (is_better(pair, best)) best = pair;
      best.retransmits = retransmits;
      std::swap(pair.from, pair.to);
      std::swap(pair.send, pair.receive);
      pair.retransmits = -1;  // the sender's
    }
  }
  return results;
}

std::vector<Finding> judge_pairs(std::span<const HostFacts> hosts,
                                 std::span<const PairResult> pairs) {
  return PairRules(hosts, pairs).judge();
}

}  // namespace hvd::launcher
