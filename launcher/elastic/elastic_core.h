// State that the parts of Generations share: the stage of the job, the present generation and the first failure in it. Starts and ends hosts and processes. Generations owns one. No I/O, no clock.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "launcher/elastic/capacity.h"
#include "launcher/elastic/change_notice.h"
#include "launcher/elastic/deadlines.h"
#include "launcher/elastic/elastic_settings.h"
#include "launcher/elastic/job_history.h"
#include "launcher/elastic/job_stage.h"
#include "launcher/elastic/joining_plan.h"
#include "launcher/elastic/process_counts.h"
#include "launcher/elastic/program_policy.h"
#include "launcher/elastic/training_end.h"
#include "launcher/plan/hosts.h"
#include "rendezvous/wire/generation.h"

namespace hvd::launcher {

// The orders of Generations. ElasticJob carries them out.
class GenerationActions {
 public:
  virtual ~GenerationActions() = default;
  // Add this host to the table, and start its agent, for `slots` processes. prepared() or start_failed() follows.
  virtual HostRun& start_host(const Host& host, int slots) = 0;
  // Start the processes of a host after prepared().
  virtual void start_processes(HostRun& host) = 0;
  // End all processes of a started host. Their exits do not count.
  virtual void end_host(HostRun& host) = 0;
  // End one process; its host has others. Its exit does not count.
  virtual void end_process(RankRun& process) = 0;
  // A generation begins. answer() follows for each of its processes.
  virtual void begin_generation(const rendezvous::Generation& generation) = 0;
  // To the last request of the process. The place is provisional for a process that is not a rank yet.
  virtual void answer(const RankRun& process, const rendezvous::PlaceAnswer& answer) = 0;
  virtual void notify_updates(int32_t generation, rendezvous::HostUpdates updates) = 0;
  virtual void notify_loss(int32_t generation, const std::string& sentence) = 0;
  // The agent of this host ends by itself after these seconds.
  virtual void notify_leave(const HostRun& host, double seconds) = 0;
  virtual void report(const std::string& sentence) = 0;
  // The job cannot go on. `process`: whose failure is the cause, or -1.
  virtual void end_job(int exit_code, const std::string& sentence, int process) = 0;
  // End all processes, and begin the job again with its history.
  virtual void restart() = 0;
};

struct ElasticCore {
  using Time = Clock::time_point;
  // The arguments but `given` outlive this object. The hosts that the table has are those that the job begins with.
  ElasticCore(const GenerationLimits& given, GenerationActions& orders, JobHistory& of_job,
              HostTable& of_launch);
  ElasticCore(const ElasticCore&) = delete;

  void to(JobStage following);
  bool is_over() const { return stage == JobStage::kOver; }
  // Whether the present ranks cannot live through a change, as far as the launcher knows.
  bool restarts_program() const;
  // From now on, or none.
  void set_current(std::optional<Generation> generation);

  // Hosts and processes.
  // The processes of a host that has come later start now.
  static void note_start(const HostRun& host, Time now);
  // Starts the hosts that have free slots.
  void start_hosts(Time now);
  // Marks the hosts that are no longer offered, and ends those without ranks.
  void mark_leaving();
  // Ends the hosts that leave and have no rank left.
  void end_left_hosts();
  // Ends what still runs there.
  void drop_host(HostRun& host);
  // Ends a process that has lost its place.
  void end_process(RankRun& process);
  // Ends a process that no longer counts, and its host if no other process runs there.
  void end_alone(RankRun& process);
  // Ends processes that are not ranks and cannot become ranks: the last started ones.
  void drop_surplus();
  // Ends processes that do not call hvd.init while ranks work.
  void end_slow(Time now);

  // Failures.
  // Returns the sentence of a failure with what follows for its host: it is used again at once, later or never.
  std::string follow_up(const ProcessFailure& failed, bool is_host_sound, Time now);
  // Returns what the user should know of a host after a failure there, or nothing.
  std::string exclude(const std::string& name, Time now);
  // As exclude(), after the loss of a host, which may only be out of reach.
  std::string after_loss(const HostRun& host, Time now);
  // A process has ended that has done no work yet, beside ranks that work.
  std::string start_another_later(const std::string& name, Time now);

  // Changes of the ranks.
  // Whether the hosts that become ready within a second are there: they cost one change. Else it is asked again then.
  bool has_gathered(bool may_come, Time now);
  // Whether other ranks than the present ones may come.
  bool may_grow() const;
  // kHostsRemoved if a rank is to leave.
  int32_t departures() const;
  // The ranks ask for places at their next commit because of these changes.
  void notify_ranks(int32_t updates, Time now);
  bool may_reset(Time now) { return history.resets.may_reset(limits.resets, now); }
  void count_reset(const std::string& why, Time now);

  // The end of the job; by default, by the first failure.
  void over(int exit_code, const std::string& sentence) {
    over(exit_code, sentence, failure.process());
  }
  void over(int exit_code, const std::string& sentence, int process);
  void end_by_reset_limit();

  void report_all(const std::vector<std::string>& sentences);
  void wake_at(Time time) { next = std::min(next, time); }

  GenerationLimits limits;
  GenerationActions& actions;
  JobHistory& history;
  HostPool& pool;
  HostTable& hosts;
  JobStage stage = JobStage::kUnknown;
  std::optional<Generation> current;
  const Capacity capacity{limits, pool, hosts};
  JoiningPlan joining{hosts};
  Deadlines deadlines{limits, hosts};
  ChangeNotice notice;
  RepeatedException repetition;
  FirstFailure failure;  // of the present generation
  TrainingEnd training_end{hosts};
  std::optional<Time> ready_since;  // since then a process can become a member
  Time next = Time::max();          // at which the job is considered again
};

}  // namespace hvd::launcher
