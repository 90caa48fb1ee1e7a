// Decides the generations of an elastic job: which processes are its ranks, when the next generation
// begins, which hosts are started and ended, and when the job cannot go on. Takes the events of the job
// and orders actions. No I/O, no clock, no thread of its own: each event carries its time, and the owner
// calls on_time() at next_time(). ElasticJob owns one.
#pragma once

#include <algorithm>
#include <chrono>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "launcher/elastic/capacity.h"
#include "launcher/elastic/change_notice.h"
#include "launcher/elastic/deadlines.h"
#include "launcher/elastic/discovery/host_pool.h"
#include "launcher/elastic/first_failure.h"
#include "launcher/elastic/generation_limits.h"
#include "launcher/elastic/generation_plan.h"
#include "launcher/elastic/joining_plan.h"
#include "launcher/elastic/membership.h"
#include "launcher/elastic/process_table.h"
#include "launcher/elastic/reminder.h"
#include "launcher/elastic/repeated_exception.h"
#include "launcher/elastic/reset_history.h"
#include "launcher/plan/hosts.h"
#include "rendezvous/wire/generation.h"

namespace hvd::launcher {

// The part of a job that outlives its launch: a program without elastic.run is launched again.
struct JobHistory {
  explicit JobHistory(HostPool pool) : pool(std::move(pool)) {}

  HostPool pool;
  std::optional<int> most;  // ranks, where a user has said so
  ResetHistory resets;
  int restarts = 0;  // after failures
  Clock::time_point began = Clock::now();
  std::optional<Clock::time_point>
      waits_since;         // the job waits for hosts; unset while it has ranks
  int32_t generation = 0;  // the first one of the next launch
  // The hosts in the order of the last generation's ranks, and its failure, or empty.
  std::vector<std::string> hosts;
  std::string failure;
  int failure_code = 0;
};

class GenerationActions {
 public:
  virtual ~GenerationActions() = default;
  // Start the agent of this host, for `slots` processes. prepared() or start_failed() follows, with the
  // same number, which add() got. Returns that number.
  virtual int start_host(const Host& host, int slots) = 0;
  // Start the processes of a host after prepared().
  virtual void start_processes(int host) = 0;
  // End all processes of a started host. Their exits do not count.
  virtual void end_host(int host) = 0;
  // End one process; its host has others. Its exit does not count.
  virtual void end_process(int process) = 0;
  // A generation begins. answer() follows for each of its processes.
  virtual void begin_generation(const rendezvous::Generation& generation) = 0;
  // Also with a provisional place, for a process that is no rank yet.
  virtual void answer(int process, int64_t request, const rendezvous::PlaceAnswer& answer) = 0;
  virtual void tell_updates(int32_t generation, rendezvous::HostUpdates updates) = 0;
  virtual void tell_loss(int32_t generation, const std::string& sentence) = 0;
  // The agent of this host ends by itself after so many seconds.
  virtual void tell_leave(int host, double seconds) = 0;
  virtual void say(const std::string& sentence) = 0;
  // The job cannot go on. `process`: whose failure is the cause, or -1.
  virtual void end_job(int exit_code, const std::string& sentence, int process) = 0;
  // End all processes, and begin the job again with its history.
  virtual void restart() = 0;
};

class Generations {
 public:
  using Time = Clock::time_point;
  // `history` outlives this object.
  Generations(const GenerationLimits& limits, GenerationActions& actions, JobHistory& history);
  Generations(const Generations&) = delete;

  // The hosts that the job may use now, in their order.
  void discovered(std::vector<Host> hosts, Time now);
  // These processes, `count` from `first` on, are being started on a host. For the hosts that the job
  // begins with, and inside start_host().
  void add(int host, const std::string& name, int first, int count);
  void prepared(int host, Time now);
  void start_failed(int host, const std::string& sentence, Time now);
  // A rank has entered hvd.elastic.run.
  void takes_part(Time now);
  // A process is inside hvd.elastic.run, or has returned from it.
  void runs(int process, bool is_inside);
  void requested(int process, const rendezvous::PlaceRequest& request, Time now);
  // A process has ended. Returns false when it failed while others have done their work: the job has failed.
  // `exception`: the line that names the one that ended it, or empty.
  bool ended(int process, int exit_code, const std::string& sentence, Time now,
             const std::string& exception = "");
  // All processes of a host are lost, or the host ends them by itself. As ended().
  bool host_lost(int host, const std::string& sentence, Time now);
  // A user asks for this number of ranks, instead of the largest one so far. A sentence about what follows,
  // or about why not.
  Result<std::string> resize(int ranks, Time now);
  // A user asks that a host, or one rank, leaves at the next commit. Its slots are used again when a resize
  // needs them, and a host also when it is discovered anew.
  Result<std::string> remove_host(const std::string& name, Time now);
  Result<std::string> remove_rank(int64_t rank, Time now);
  // A host will be lost after so many seconds: its ranks leave at their next commit, as if a user removed
  // it. If no other has the state, they go on until another one has it.
  void host_leaves(int host, const std::string& why, double seconds, Time now);
  void on_time(Time now);
  // Time::max(): no event but the others can change anything.
  Time next_time() const { return next_; }

  int32_t generation() const {
    return table_.current ? static_cast<int32_t>(table_.current->number) : history_.generation - 1;
  }
  const ProcessTable& table() const { return table_; }

 private:
  // A rank that has failed, perhaps because another one did.
  struct Suspect {
    int process = 0;
    int exit_code = 0;
    std::string sentence;
    Time since;
  };
  void note_start(int host, Time now);
  void consider(Time now);
  void start_hosts(Time now);
  void mark_leaving();
  void fail(int process, int exit_code, const std::string& sentence, Time now);
  void fail(int process, int exit_code, const std::string& sentence, Time now, Time since);
  void decide_suspect(Time now);
  std::string exclude(const std::string& name, Time now);
  bool has_worked(const std::string& host) const;
  std::string start_another_later(const std::string& name, Time now);
  void drop_host(JobHost& host);
  void dismiss(int process);
  void end_alone(int process);
  void drop_surplus();
  void check_silent(Time now);
  void check_slow(Time now);
  void check_unprepared(Time now);
  void check_unaware(Time now);
  int32_t slots_ready(Time now);
  void announce(Time now);
  bool restarts_program() const;
  std::string when_they_leave(const std::string& whose, Time now) const;
  void assume_ranks();
  void drop_assumption(Time now);
  void restart(const std::string& why, Time now);
  void restart_after_failure(const std::string& sentence, int exit_code, Time since, Time now);
  GenerationRules next_rules() const;
  MembershipPlan next() const;
  MembershipPlan plan_joining(const std::set<int>& newcomers) const;
  void check_joining();
  void plan_newcomers(Time now);
  bool start_misplaced_again(const std::set<int>& processes, const Generation& generation);
  void count_reset(const std::string& why, Time now);
  bool may_reset(Time now) { return history_.resets.may_reset(limits_.resets, now); }
  void end_by_reset_limit();
  void begin(Generation generation, Time now);
  std::string why_it_resets() const;
  Status may_change(Time now);
  void let_go(const JobHost& host, Time now);
  void let_hosts_go(Time now);
  void pause(int found, Time now);
  bool may_grow() const;
  // The job ends; by default, by the first failure.
  void over(int exit_code, const std::string& sentence);
  void over(int exit_code, const std::string& sentence, int process);
  void say_all(const std::vector<std::string>& sentences);
  void wake_at(Time time) { next_ = std::min(next_, time); }
  void finish();
  void check_unfinished();
  void tell_loss(const std::string& sentence, Time now);

  GenerationLimits limits_;
  GenerationActions& actions_;
  JobHistory& history_;
  HostPool& pool_;
  ProcessTable table_;
  const Capacity capacity_{limits_, pool_, table_};
  JoiningPlan joining_{table_};
  Deadlines deadlines_{limits_, table_};
  ChangeNotice notice_;
  RepeatedException repetition_;
  FirstFailure failure_;
  // No process has asked for a place: the present generation has those with which the launch began.
  bool is_assumed_ = false;
  bool has_begun_ = false;
  bool takes_part_ = false;
  bool is_over_ = false;
  std::optional<Suspect> suspect_;
  std::optional<Time> finishing_;      // since a rank has ended with exit code 0
  std::vector<std::string> finished_;  // these ranks
  std::optional<Time> ready_since_;    // a process that is no member can become one
  std::optional<Time> paused_since_;
  Reminder pause_;
  Time next_ = Time::max();  // of on_time()
};

}  // namespace hvd::launcher
