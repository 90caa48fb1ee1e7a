#include "launcher/allocation/host_pool.h"

#include <algorithm>
#include <utility>

namespace hvd::launcher {

using std::chrono::seconds;

HostPool::HostPool(const Rules& rules, HostCooldown::Random random)
    : rules_(rules), cooldown_(rules.cooldown, std::move(random)) {}

void HostPool::discovered(std::vector<Host> hosts) {
  std::vector<std::string> names;
  names.reserve(hosts.size());
  for (const Host& host : hosts) names.push_back(host.name);
  if (rules_.hosts != HostSource::kNamed) {
    cooldown_.set_discovered(names);
    const auto is_unnamed = [&](const auto& entry) {
      return std::find(names.begin(), names.end(), entry.first) == names.end();
    };
    // Joining agents keep their retry times, because an agent that fails repeatedly must wait each time.
    if (rules_.hosts != HostSource::kJoining) std::erase_if(retries_, is_unnamed);
    std::erase_if(removals_, is_unnamed);
  }
  named_ = std::move(hosts);
  leave_out_removed();
}

void HostPool::leave_out_removed() {
  offered_.clear();
  for (Host host : named_) {
    const auto left = removals_.find(host.name);
    if (left != removals_.end()) host.slots = std::min(host.slots, left->second);
    if (host.slots > 0) offered_.push_back(std::move(host));
  }
}

std::optional<HostCooldown::Exclusion> HostPool::exclude(const std::string& name, Time now) {
  return cooldown_.record_failure(name, now);
}

bool HostPool::is_excluded_for_ever(const std::string& name) const {
  return !cooldown_.is_usable(name, Time::max() - seconds(1));
}

seconds HostPool::retry_later(const std::string& name, seconds first, seconds most, Time now) {
  Retry& retry = retries_[name];
  const auto wait = std::min<seconds>(most, first * (1 << std::min(retry.failures, 16)));
  ++retry.failures;
  retry.again = now + wait;
  return wait;
}

void HostPool::forget_failures() {
  for (auto& [name, retry] : retries_) retry.failures = 0;
}

bool HostPool::may_start(const std::string& name, Time now) const {
  const auto retry = retries_.find(name);
  return cooldown_.is_usable(name, now) && (retry == retries_.end() || retry->second.again <= now);
}

HostPool::Time HostPool::usable_from(const std::string& name) const {
  const auto retry = retries_.find(name);
  return std::max(cooldown_.usable_from(name),
                  retry == retries_.end() ? Time() : retry->second.again);
}

std::optional<HostPool::Time> HostPool::next_start(Time now) const {
  std::optional<Time> next = cooldown_.next_return(now);
  for (const Host& host : offered_) {
    const auto retry = retries_.find(host.name);
    if (retry == retries_.end() || retry->second.again <= now) continue;
    next = std::min(next.value_or(Time::max()), retry->second.again);
  }
  return next;
}

void HostPool::remove(const std::string& name, int slots) {
  removals_[name] = slots;
  leave_out_removed();
}

void HostPool::take_back(const std::function<bool(const std::string& name)>& stays) {
  std::erase_if(removals_, [&](const auto& removal) { return !stays(removal.first); });
  leave_out_removed();
}

}  // namespace hvd::launcher
