// The policy of an elastic job: executes the orders of class Generations, adds and ends hosts while the job runs, and
// exchanges records with the processes through the job's store. Owns the generations and their timer. JobLaunch owns
// this object. Lives on the launch's loop.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "launcher/allocation/script_discovery.h"
#include "launcher/elastic/generations.h"
#include "launcher/elastic/job_policy.h"
#include "launcher/hosts/host_table.h"
#include "launcher/link/join_queue.h"
#include "launcher/plan/launch_settings.h"
#include "launcher/plan/slot_plan.h"

namespace hvd::launcher {

class ElasticJob : public JobPolicy, private GenerationActions {
 public:
  // All arguments must outlive this object. `join_queue`: null if hosts do not join by themselves. The pool of
  // `history` names all hosts that the job may use; the launch's table names the hosts with which the launch begins.
  ElasticJob(PolicyLaunch& launch, const LaunchSettings& settings, JoinQueue* join_queue,
             JobHistory& history);
  ~ElasticJob() override;

  void begin() override;
  void held(HostRun& host) override;
  bool survives(int rank, int host, int exit_code, const std::string& sentence) override;
  bool gives_up(HostRun& host) override;
  void ranks_ended(const HostRun& host) override;
  void host_gone() override;
  void host_leaves(HostRun& host, const std::string& why) override;
  Result<std::string> change(const std::vector<std::string>& words) override;
  void stop() override;
  net::Task<void> end() override;
  bool wants_restart() const override { return wants_restart_; }

 private:
  HostRun& start_host(const Host& host, int slots) override;
  void start_processes(HostRun& host) override;
  void end_host(HostRun& host) override;
  void end_process(RankRun& process) override;
  void begin_generation(const rendezvous::Generation& generation) override;
  void answer(const RankRun& process, const rendezvous::PlaceAnswer& answer) override;
  void notify_updates(int32_t generation, rendezvous::HostUpdates updates) override;
  void notify_loss(int32_t generation, const std::string& sentence) override;
  void notify_leave(const HostRun& host, double seconds) override;
  void report(const std::string& sentence) override;
  void end_job(int exit_code, const std::string& sentence, int process) override;
  void restart() override;

  void take_request(const std::string& key);
  void set(const std::string& key, ByteView value);
  // Call when the agent of the host `name` ends. Another agent may then join under this name, without the failures of
  // the earlier agent.
  void leave_queue(const std::string& name);
  void arm();

  PolicyLaunch& launch_;
  const LaunchSettings& settings_;
  JoinQueue* const join_queue_;
  JobHistory& history_;
  Generations generations_;
  net::asio::steady_timer timer_;
  std::unique_ptr<ScriptDiscovery> discovery_;  // null without a script
  Clock::time_point gives_up_from_{};
  bool is_stopped_ = false;
  bool wants_restart_ = false;
};

// Returns the history of an elastic job that begins on these hosts.
JobHistory new_history(const LaunchSettings& settings, std::vector<Host> hosts, bool hosts_join);

// Returns the plan of the next launch, on hosts with enough slots. Hosts of the last generation keep their order.
Result<SlotPlan> plan_again(const LaunchSettings& settings, const JobHistory& history,
                            std::vector<Host> hosts);

// Returns the plan for the hosts with which an elastic job begins: all their slots, up to --max-np ranks.
Result<SlotPlan> plan_elastic(const LaunchSettings& settings, const std::vector<Host>& hosts);

}  // namespace hvd::launcher
