// The metrics of a job as text in Prometheus's format, from the agents' answers and the states of its hosts and ranks.
// Keeps the last answer of each host: counters then do not decrease while a host does not answer. JobInspector owns
// this object. Lives on the launch's loop.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "launcher/hosts/host_table.h"
#include "launcher/protocol/host_sample.h"

namespace hvd::launcher {

// Each level contains the previous one. The size of a summary depends on neither hosts nor ranks.
enum class MetricsLevel : uint8_t { kSummary, kHosts, kRanks };
// Parses "summary", "host" or "rank".
std::optional<MetricsLevel> parse_metrics_level(std::string_view word);
// Returns the level of --metrics-level. Without a word: kHosts for at most 64 hosts, else kSummary, because each host
// has 17 samples.
MetricsLevel metrics_level_of(std::string_view word, size_t hosts);

class JobMetrics {
 public:
  // `job`: the job's id; `name`: --name, or empty; `restarts`: number of the job's earlier launches.
  JobMetrics(std::string job, std::string name, uint32_t restarts)
      : job_(std::move(job)), name_(std::move(name)), restarts_(restarts) {}

  // `answers`: by host, with metrics if they arrived in time. The last answer of a host stays valid for two seconds.
  void take(const std::vector<HostAnswer>& answers, Clock::time_point now = Clock::now());
  // Takes an answer that arrived after its query's time limit.
  void take_late(size_t host, const HostAnswer& answer, Clock::time_point now = Clock::now());
  // Returns the figures of a rank of the table, from its host's last answer; null if the answer is too old.
  const RankMetrics* rank(int number) const;
  // Returns milliseconds since the last training step of any rank, or -1.
  int64_t step_age() const;
  // Returns whether a rank has ended a training step within the time of a few steps.
  bool is_stepping() const;
  std::string text(const HostTable& hosts, MetricsLevel level) const;
  // Returns the ranks' waits for each other; omits unknown waits.
  std::string waits_text(const HostTable& hosts, MetricsLevel level) const;
  // Returns a sentence about data that an agent cannot read, such as the counts of a rank. Returns it only once;
  // otherwise an empty text.
  std::string about_unread(const HostTable& hosts);

 private:
  struct Host {
    bool has_answered = false;  // the last answer is at most two seconds old
    Clock::time_point answered_at{};
    std::optional<HostMetrics> last;
  };

  void set(size_t host, const HostAnswer& answer, Clock::time_point now);
  void find_ranks();
  std::string about_job(const HostTable& hosts, const std::string& job) const;

  const std::string job_;
  const std::string name_;
  const uint32_t restarts_;
  std::vector<Host> hosts_;                    // in the order of the table
  std::map<int, const RankMetrics*> by_rank_;  // figures of hosts that have answered
  bool has_notified_ = false;
};

}  // namespace hvd::launcher
