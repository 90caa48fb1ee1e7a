// State that the parts of class Generations share: the job's stage, the current generation, and its first failure.
// Starts and ends hosts and processes. Class Generations owns this object. No I/O, no clock.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "launcher/elastic/capacity.h"
#include "launcher/elastic/deadlines.h"
#include "launcher/elastic/elastic_settings.h"
#include "launcher/elastic/job_history.h"
#include "launcher/elastic/membership.h"
#include "launcher/elastic/training_end.h"
#include "launcher/plan/hosts.h"
#include "launcher/protocol/moves.h"
#include "rendezvous/wire/generation.h"

namespace hvd::launcher {

// The announced changes of an elastic job's hosts. After a notice, the ranks request places in the next generation at
// their next commit. ElasticCore owns this object and sends the notices. No I/O, no clock.
class ChangeNotice {
 public:
  // Returns the announced changes: flags of rendezvous::HostUpdates.
  int32_t updates() const { return updates_; }
  // Sets the current HostUpdates flags. Returns true if the flags have changed: the ranks need another notice.
  bool set(int32_t updates, Clock::time_point now);
  // Call when a generation begins: its ranks have not received a notice.
  void clear() { *this = {}; }
  // Returns, once a minute, a sentence about the ranks or hosts for which the next generation waits.
  std::optional<std::string> reminder(Clock::time_point now);
  // Returns the next time at which reminder() returns a sentence.
  Clock::time_point next() const { return reminder_.next(); }
  // Returns the cause of the change, as a part of a sentence in the past tense.
  std::string cause() const;

 private:
  int32_t updates_ = rendezvous::kHostsUnchanged;
  Clock::time_point since_{};
  Reminder reminder_;
};

struct ProcessFailure {
  int process = 0;
  int exit_code = 0;
  std::string sentence;  // describes how the process ended
  // The line with the name of the exception that ended the process, or empty.
  std::string exception = "";
};

// The policy for changes of a program's ranks, with two implementations. With ElasticRun, the processes stay and
// request their next places. With RestartProgram, all processes end, and the program starts again. Class Generations
// chooses the policy for each event.
class ProgramPolicy {
 public:
  using Time = Clock::time_point;
  virtual ~ProgramPolicy() = default;

  // Call when a process has failed. The cause may be another failure that is reported later.
  virtual void failed(const ProcessFailure& failure, Time now) = 0;
  // Call when a rank failed at `since` and, as far as the launcher knows, is itself the cause.
  virtual void settle(const ProcessFailure& failure, Time since, Time now) = 0;
  // Call when a host with ranks is lost. `consequence`: the sentence with the consequence for the host.
  virtual void host_lost(const std::string& sentence, const std::string& consequence, Time now) = 0;
  // Starts, ends and notifies processes as the current hosts and processes require. Returns whether a generation has
  // begun.
  virtual bool decide(Time now) = 0;

  // Returns a clause for a sentence to the user: "when its ranks next commit", for example. `whose`: the subject, "its
  // ranks".
  virtual std::string when_they_leave(const std::string& whose, Time now) const = 0;
  // Returns a clause like "when the new ones have started".
  virtual std::string when_they_come() const = 0;
  // Returns a clause like "its ranks have N s for their next commit", for a host that ends after this time.
  virtual std::string until_host_ends(int64_t seconds) const = 0;
};

// The stages of an elastic job in one launch. ElasticCore holds the current stage.
//
//   kUnknown ──┬─> kAssumed ──┬─> kAsking ──> kElastic
//              └──────────────┘
//   kAssumed, kAsking, kElastic ──> kFinishing
//   kAssumed, kAsking, kElastic, kFinishing ──> kOver
enum class JobStage {
  kUnknown,    // the launch has not begun
  kAssumed,    // no process has requested a place: the ranks are those with which the launch began
  kAsking,     // processes request their places; no rank has entered hvd.elastic.run
  kElastic,    // a rank has entered hvd.elastic.run
  kFinishing,  // a rank has ended with exit code 0: no further generation begins
  kOver,       // the job ends, or starts again
};

inline bool may_follow(JobStage stage, JobStage next) {
  using enum JobStage;
  static constexpr Move<JobStage> kMoves[] = {
      {{kUnknown}, kAssumed},
      {{kUnknown, kAssumed}, kAsking},
      {{kAsking}, kElastic},
      {{kAssumed, kAsking, kElastic}, kFinishing},
      {{kAssumed, kAsking, kElastic, kFinishing}, kOver},
  };
  return is_legal(kMoves, stage, next);
}

class GenerationActions {
 public:
  virtual ~GenerationActions() = default;
  // Adds this host to the table, and starts its agent, for `slots` processes. prepared() or start_failed() follows.
  virtual HostRun& start_host(const Host& host, int slots) = 0;
  // Starts the processes of a host after prepared().
  virtual void start_processes(HostRun& host) = 0;
  // Ends all processes of a started host. Their exits do not count as failures.
  virtual void end_host(HostRun& host) = 0;
  // Ends one process of a host that keeps other processes. Its exit does not count as a failure.
  virtual void end_process(RankRun& process) = 0;
  // Begins a generation. answer() follows for each of its processes.
  virtual void begin_generation(const rendezvous::Generation& generation) = 0;
  // Answers the last request of the process. The place is provisional if the process is not a rank yet.
  virtual void answer(const RankRun& process, const rendezvous::PlaceAnswer& answer) = 0;
  virtual void notify_updates(int32_t generation, rendezvous::HostUpdates updates) = 0;
  virtual void notify_loss(int32_t generation, const std::string& sentence) = 0;
  // Notifies the host's processes that their agent will end by itself after this number of seconds.
  virtual void notify_leave(const HostRun& host, double seconds) = 0;
  virtual void report(const std::string& sentence) = 0;
  // Ends the job, because it cannot continue. `process`: the process whose failure is the cause, or -1.
  virtual void end_job(int exit_code, const std::string& sentence, int process) = 0;
  // Ends all processes, and begins the job again with its history.
  virtual void restart() = 0;
};

struct ElasticCore {
  using Time = Clock::time_point;
  // All arguments except `given` must outlive this object. The job begins with the hosts in the table.
  ElasticCore(const GenerationLimits& given, GenerationActions& orders, JobHistory& of_job,
              HostTable& of_launch);
  ElasticCore(const ElasticCore&) = delete;

  void to(JobStage following);
  bool is_over() const { return stage == JobStage::kOver; }
  // Returns whether the current ranks, as far as the launcher knows, cannot survive a change.
  bool restarts_program() const;
  // Sets the current generation, or none if empty.
  void set_current(std::optional<Generation> generation);

  // Sets the start time of the host's processes: when the host is started, and again when its processes are.
  static void note_start(const HostRun& host, Time now);
  // Starts hosts that have free slots.
  void start_hosts(Time now);
  // Marks the hosts that are no longer offered as leaving, and ends those without ranks.
  void mark_leaving();
  // Ends the leaving hosts that have no ranks.
  void end_left_hosts();
  void drop_host(HostRun& host);
  // Ends a process that has lost its place.
  void end_process(RankRun& process);
  // Ends a process that is already in PlaceState::kGone, and its host if all processes there are gone.
  void end_alone(RankRun& process);
  // Ends the processes that cannot become ranks, the last started ones first.
  void drop_surplus();
  // Ends processes that do not call hvd.init while ranks work.
  void end_slow(Time now);

  // Returns the failure's sentence and its consequence for the host: whether it is used again at once, later or never.
  std::string follow_up(const ProcessFailure& failed, bool is_host_sound, Time now);
  // Excludes a host after a failure on it. Returns a sentence for the user, or nothing.
  std::string exclude(const std::string& name, Time now);
  // Like exclude(), after the loss of a host that may only be unreachable.
  std::string after_loss(const HostRun& host, Time now);
  // Delays the start of another process on the host. Call for a process that ended, or is too slow, before it is a
  // rank.
  std::string start_another_later(const std::string& name, Time now);

  // Returns whether a change may add the ready processes. If more processes may come (`may_come`), returns false for
  // the first second, so that one change adds all of them.
  bool has_gathered(bool may_come, Time now);
  // Returns whether the job may get more ranks than it has now.
  bool may_grow() const;
  // Returns kHostsRemoved if a rank must leave, else 0.
  int32_t departures() const;
  // Notifies the ranks of these changes, so that they request new places at their next commit.
  void notify_ranks(int32_t updates, Time now);
  bool may_reset(Time now) { return history.resets.may_reset(limits.resets, now); }
  void count_reset(const std::string& why, Time now);

  // Ends the job. Without `process`, the process of the first failure is the cause.
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
  FirstFailure failure;  // the first failure in the current generation
  TrainingEnd training_end{hosts};
  std::optional<Time>
      ready_since;          // when the first process became able to join the next generation
  Time next = Time::max();  // time of the next Generations::on_time()
};

}  // namespace hvd::launcher
