#include "launcher/allocation/host_cooldown.h"

#include <algorithm>
#include <cmath>

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
  // The delay doubles with each failure, plus a random part, so that hosts that failed together return separately.
  const double delay =
      std::clamp(std::ldexp(range_->low, record.failures) + random_() * range_->low, range_->low,
                 range_->high);
  exclusion.delay = delay;
  record.until =
      now + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(delay));
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

}  // namespace hvd::launcher
