#include "launcher/observe/rules/silent_hosts.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/text.h"
#include "launcher/output/line_folder.h"

namespace hvd::launcher {
namespace {

constexpr double kLineAfter = 5;
constexpr double kReportAfter = 15;
// The interval of pings: hosts that become silent within this time are reported together.
constexpr double kTogether = 1;
constexpr size_t kMostHostNames = 4;

int64_t whole(double seconds) { return std::llround(seconds); }

}  // namespace

std::string hosts_text(std::vector<std::string> names) {
  if (names.size() == 1) return cat("host ", names[0]);
  std::string last = names.back();
  names.pop_back();
  if (names.size() > kMostHostNames) {
    last = cat(names.size() + 1 - kMostHostNames, " others");
    names.resize(kMostHostNames);
  }
  return cat("hosts ", join(names, ", "), " and ", last);
}

std::string describe_silence(double seconds) { return cat("no answer for ", whole(seconds), " s"); }

void SilentHosts::on_silence(int host, double seconds, double limit_seconds) {
  Silence& silence = silent_[host];
  silence.seconds = seconds;
  silence.limit_seconds = limit_seconds;
  if (!answered_.empty()) report_answers();
  if (seconds < kReportAfter || silence.is_reported) return;
  std::vector<int> hosts = silent_for(kReportAfter - kTogether);
  std::erase_if(hosts, [this](int each) { return silent_.at(each).is_reported; });
  for (const int each : hosts) silent_.at(each).is_reported = true;
  news_.push_back(describe(hosts));
}

void SilentHosts::on_answer(int host) {
  const auto found = silent_.find(host);
  if (found == silent_.end()) return;
  if (found->second.is_reported) answered_.push_back(host);
  silent_.erase(found);
  // After a network failure, several hosts answer again together: one sentence suffices.
  const bool has_more =
      std::ranges::any_of(silent_, [](const auto& each) { return each.second.is_reported; });
  if (!has_more && !answered_.empty()) report_answers();
}

void SilentHosts::on_gone(int host) {
  silent_.erase(host);
  std::erase(answered_, host);
}

void SilentHosts::report_answers() {
  std::vector<int> hosts = std::exchange(answered_, {});
  std::ranges::sort(hosts);
  news_.push_back(cat(names(hosts), hosts.size() == 1 ? " answers again" : " answer again"));
}

std::optional<std::string> SilentHosts::take_news() {
  if (news_.empty()) return {};
  std::string first = std::move(news_.front());
  news_.erase(news_.begin());
  return first;
}

std::string SilentHosts::status_line() const {
  const std::vector<int> hosts = silent_for(kLineAfter);
  return hosts.empty() ? "" : describe(hosts);
}

std::vector<int> SilentHosts::silent_for(double seconds) const {
  std::vector<int> hosts;
  for (const auto& [host, silence] : silent_) {
    if (silence.seconds >= seconds) hosts.push_back(host);
  }
  return hosts;
}

std::string SilentHosts::describe(const std::vector<int>& hosts) const {
  double longest = 0, left = silent_.at(hosts[0]).limit_seconds;
  for (const int host : hosts) {
    const Silence& silence = silent_.at(host);
    longest = std::max(longest, silence.seconds);
    left = std::min(left, silence.limit_seconds - silence.seconds);
  }
  std::vector<int> ranks;
  for (const int host : hosts) {
    for (const RankRun* run : hosts_.host(host).ranks()) {
      if (run->is_member()) ranks.push_back(run->rank());
    }
  }
  std::ranges::sort(ranks);
  std::string text = cat(names(hosts), hosts.size() == 1 ? " has" : " have", " not answered for ",
                         whole(longest), " s");
  if (!ranks.empty()) {
    text += cat(" (", ranks.size() == 1 ? "rank " : "ranks ", ranks_text(ranks), ")");
  }
  return cat(text, "; lost in ", whole(std::max(left, 0.0)), " s");
}

std::string SilentHosts::names(const std::vector<int>& hosts) const {
  std::vector<std::string> names;
  for (const int host : hosts) names.push_back(hosts_.host(host).name());
  return hosts_text(std::move(names));
}

}  // namespace hvd::launcher
