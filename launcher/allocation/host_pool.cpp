#include "launcher/allocation/host_pool.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/text.h"

namespace hvd::launcher {

std::optional<HostCooldown::Exclusion> HostCooldown::record_failure(std::string_view host,
                                                                    Time now) {
  if (discovered_ && !discovered_->contains(host)) return {};
  if (!is_usable(host, now)) return {};
  Record& record = records_[std::string(host)];
  ++record.failures;
  Exclusion exclusion{.failures = record.failures, .delay = {}};
  if (!range_) {
    record.until = Time::max();
    return exclusion;
  }
  // The delay doubles with each failure. A random part is added, so that hosts that failed together return one by one.
  const double delay =
      std::clamp(std::ldexp(range_->low, record.failures) + random_() * range_->low, range_->low,
                 range_->high);
  exclusion.delay = delay;
  record.until = now + duration_of(delay);
  return exclusion;
}

HostCooldown::Time HostCooldown::usable_from(std::string_view host) const {
  const auto found = records_.find(host);
  return found == records_.end() || found->second.failures == 0 ? Time::min() : found->second.until;
}

bool HostCooldown::is_usable(std::string_view host, Time now) const {
  return now >= usable_from(host);
}

std::optional<HostCooldown::Time> HostCooldown::next_return(Time now) const {
  std::optional<Time> next;
  for (const auto& [host, record] : records_) {
    if (is_usable(host, now) || record.until == Time::max()) continue;
    if (!next || record.until < *next) next = record.until;
  }
  return next;
}

void HostCooldown::set_discovered(std::span<const std::string> hosts) {
  discovered_.emplace(hosts.begin(), hosts.end());
  std::erase_if(records_, [&](const auto& entry) { return !discovered_->contains(entry.first); });
}

std::string about_exclusion(std::string_view host, const HostCooldown::Exclusion& exclusion) {
  if (exclusion.delay) {
    return cat("host ", host, " is not used for ", std::lround(*exclusion.delay),
               " s, after failure ", exclusion.failures, " there");
  }
  return cat("host ", host,
             " is not used again in this job, after a failure there; give "
             "--blacklist-cooldown-range LO HI to use it again after LO to HI seconds");
}

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
