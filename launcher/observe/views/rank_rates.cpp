#include "launcher/observe/views/rank_rates.h"

#include <algorithm>
#include <chrono>
#include <utility>

namespace hvd::launcher {
namespace {

double share(double before, double now, double seconds) {
  return before < 0 || now < before ? -1 : (now - before) / seconds;
}

}  // namespace

void JobRates::add(const JobView& job) {
  const auto before = std::exchange(last_, {});
  const auto rates = std::exchange(rates_, {});
  ProgressRates::Counts counts;
  for (const HostView& host : job.hosts) {
    for (const RankView& rank : host.ranks) {
      counts.steps = std::max(counts.steps, rank.steps.value_or(0));
      counts.bytes += rank.bytes.value_or(0);
      counts.ranks += rank.bytes ? 1 : 0;
      const int key = key_of(rank);
      last_[key] = {rank.pid, rank.seconds, rank.cpu_seconds, rank.run_delay_seconds};
      const auto last = before.find(key);
      if (last == before.end() || last->second.pid != rank.pid) continue;
      // If another viewer requested the figures shortly before, they have not changed since.
      const double seconds = rank.seconds - last->second.age;
      if (seconds > 0)
        rates_[key] = {.cpu = share(last->second.cpu, rank.cpu_seconds, seconds),
                       .run_delay = share(last->second.run_delay, rank.run_delay_seconds, seconds)};
      else if (const auto known = rates.find(key); known != rates.end())
        rates_.insert(*known);
    }
  }
  // The launcher may have read the counts a moment before it answered.
  const std::chrono::duration<double> read_at(job.read_at < 0 ? job.seconds : job.read_at);
  job_.add(Clock::time_point(std::chrono::duration_cast<Clock::duration>(read_at)), counts);
}

RankRates JobRates::of(const RankView& rank) const {
  const auto found = rates_.find(key_of(rank));
  return found == rates_.end() ? RankRates{} : found->second;
}

}  // namespace hvd::launcher
