// Answers `horovodrun ps`, `stack`, `metrics`, `exec`, `resize` and `remove`, which a user runs in another terminal.
// Owns the socket to which these commands connect, the open queries to the agents, and the commands that run beside
// ranks. Passes orders that change the job to its policy. JobLaunch owns this object and forwards the agents' events to
// it. Lives on the launch's loop.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "launcher/elastic/job_policy.h"
#include "launcher/hosts/host_table.h"
#include "launcher/observe/rules/init_waits.h"
#include "launcher/observe/views/inspection.h"
#include "launcher/observe/views/job_metrics.h"
#include "launcher/observe/views/job_states.h"
#include "launcher/observe/views/operation_waits.h"
#include "launcher/observe/views/rank_commands.h"
#include "launcher/output/launch_progress.h"
#include "launcher/plan/launch_settings.h"
#include "launcher/reach/own_package.h"
#include "net/asio.h"
#include "net/notification.h"

namespace hvd::launcher {

// The progress of a job, from the last sample of its ranks.
struct JobCounts {
  JobProgress job{};  // progress without rates
  ProgressRates::Counts counts{};
  Clock::time_point read_at{};  // when the ranks were sampled
};

class JobInspector {
 public:
  // `options`, `hosts` and `waits` must outlive this object. `waits`: the waits in hvd.init(). `remark` prints a
  // sentence for the user.
  JobInspector(const net::asio::any_io_executor& executor, const Options& options,
               const HostTable& hosts, const InitWaits& waits, JobMetrics metrics,
               std::function<void(std::string_view sentence)> remark);

  // Opens the socket. Call before hosts are reached. On failure, the job runs without a socket. `policy` must outlive
  // the loop of this object.
  void open(JobPolicy& policy);
  // Call when the policy has begun. Orders may then change the job.
  void take_changes() { takes_changes_ = true; }
  // Requests information from all agents. Returns the answers by host.
  net::Task<std::vector<HostAnswer>> ask(InspectDetail detail);
  net::Task<std::vector<HostAnswer>> sample(SampleGroups groups,
                                            std::chrono::milliseconds limit = kInspectionTime);
  // Returns the current place of a late rank. `rank`: its number in the table.
  net::Task<std::vector<RankPlace>> place_of_late(int rank, uint32_t late_microseconds);

  // Samples all ranks, unless the last sample is less than 0.9 s old: several viewers then cost one sample. With kGpus,
  // also finds the ranks that wait for other ranks.
  net::Task<void> look(SampleGroups groups);
  // Calls look(), and returns the totals of the job.
  net::Task<JobCounts> counts();
  // Returns the job's metrics in the Prometheus format, at the level of --metrics-level. Takes less than a second.
  net::Task<std::string> metrics();
  net::Task<std::string> metrics(MetricsLevel level);
  // Prints the stacks of all ranks.
  net::Task<void> show_stacks();

  void on_answer(int host, uint32_t number, HostAnswer answer) {
    inspection_.on_answer(static_cast<size_t>(host), number, std::move(answer));
  }
  void on_output_chunk(const OutputChunk& chunk) { commands_.on_output_chunk(chunk); }
  void on_exec_result(const ExecResult& ran) { commands_.on_exec_result(ran); }
  void on_host_gone(int host) { commands_.on_host_gone(host); }
  void on_silence(int host, double seconds);
  void on_answer(int host) { commands_.on_answer(host); }
  // Returns the states of all hosts and ranks, as JSON.
  std::string states() const;

 private:
  net::Task<void> answer(std::string request, net::StreamSocket& caller);
  net::Task<void> run_command(std::string_view digits, net::StreamSocket& caller);
  net::Task<std::string> describe(InspectDetail detail);
  net::Task<std::string> job_as_json();
  void take_announced(const std::vector<HostAnswer>& answers);
  // Returns the job's states as JSON, with the figures of the last look().
  std::string known_job() const;
  // Returns the counts of the last look().
  JobCounts known_counts() const;
  std::string describe(const HostRun& host, const std::string& ranks) const;
  std::optional<SlowestRank> slowest() const;
  bool has_begun_again(const HostRun& host) const;
  net::Task<void> change(const std::vector<std::string>& words, net::StreamSocket& caller);

  const net::asio::any_io_executor executor_;
  const Options& options_;
  const HostTable& hosts_;
  const InitWaits& waits_;
  const std::function<void(std::string_view sentence)> remark_;
  StackTool stack_tool_;
  JobPolicy* policy_ = nullptr;  // null before open()
  bool takes_changes_ = false;
  Inspection inspection_;
  RankCommands commands_;
  JobMetrics metrics_;
  OperationWaits operation_waits_;
  const Clock::time_point began_ = Clock::now();
  std::optional<Clock::time_point> looked_at_, read_at_;  // read_at_: when metrics_ was sampled
  net::Notification looked_;
  bool is_looking_ = false;
  bool lacks_gpus_ = false;  // the last look had no kGpus
  std::unique_ptr<InspectionServer> server_;
};

}  // namespace hvd::launcher
