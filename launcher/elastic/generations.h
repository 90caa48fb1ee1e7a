// Decides the generations of an elastic job: which processes are its ranks, when the next generation
// begins, which hosts are started and ended, and when the job cannot go on. Takes the events of the job
// and orders actions. No I/O, no clock, no thread of its own: each event carries its time, and the owner
// calls on_time() at next_time(). ElasticJob owns one.
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "launcher/elastic/elastic_settings.h"
#include "launcher/elastic/host_pool.h"
#include "launcher/elastic/membership.h"
#include "launcher/plan/hosts.h"
#include "rendezvous/wire/generation.h"

namespace hvd::launcher {

struct GenerationLimits {
  int least = 1;                     // ranks; below, the job pauses
  std::optional<int> most;           // ranks
  double pause_seconds = 600;        // longest pause
  double return_seconds = 30;        // a rank has to ask for its next place after the first one did
  std::optional<ResetLimit> resets;  // of generations after the first
  bool finds_hosts = false;          // discovered() may be called again
  bool hosts_join = false;           // each with an agent of its own, which starts processes once
  bool restarts_ranks = false;       // a failed rank is started again on its host
  // A program whose ranks do not enter hvd.elastic.run is started again when the ranks change.
  bool restarts_programs = false;
  // The ranks may be Horovod's own workers: they have their first places in their environment, and a new
  // one starts when its place is known.
  bool may_be_originals = false;
  std::optional<int> most_restarts;  // of these, after failures; what the user has said
  double cause_seconds = 3.5;        // a lost host may be the cause of a rank's exit so long before
};

// The part of a job that outlives its launch: a program without elastic.run is launched again.
struct JobHistory {
  struct Reset {
    Clock::time_point time;
    int64_t generation = 0;  // that began
    std::string why;
  };
  explicit JobHistory(HostPool pool) : pool(std::move(pool)) {}

  HostPool pool;
  std::optional<int> most;    // ranks, where a user has said so
  std::vector<Reset> resets;  // if they are limited
  int restarts = 0;           // after failures
  Clock::time_point began = Clock::now();
  std::optional<Clock::time_point> waits_since;  // for hosts, since the last launch with ranks
  int32_t generation = 0;                        // the first one of the next launch
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

  // The hosts that the job may use now, in their order.
  void discovered(std::vector<Host> hosts, Time now);
  // These processes, `count` from `first` on, are being started on a host. For the hosts that the job
  // begins with, and inside start_host().
  void add(int host, const std::string& name, int first, int count);
  void prepared(int host, Time now);
  void start_failed(int host, const std::string& sentence, Time now);
  // A rank has entered hvd.elastic.run.
  void takes_part(Time now);
  void requested(int process, const rendezvous::PlaceRequest& request, Time now);
  // The same for one of Horovod's own workers, after the first generation.
  void original_requested(int process, int64_t request, Time now);
  // The process has asked for its next place, and waits for it.
  bool is_asking(int process) const;
  // Ranks have asked for the next generation, and wait for others.
  bool is_asked() const { return asking_since_.has_value(); }
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
  Time next_time() const;

  int32_t generation() const {
    return current_ ? static_cast<int32_t>(current_->number) : history_.generation - 1;
  }
  // The rank of a process in the present generation, or -1.
  int rank_of(int process) const;
  // The slot of a process on its host, which was free when the process was added.
  int slot_of(int process) const { return processes_.at(process).slot; }
  // Without those that a user has removed.
  int live_processes(const std::string& host) const;
  // By rank: the processes of the present generation, also those that have ended since.
  std::vector<int> members() const;

 private:
  // kHeld: its agent may be there, but the program might not wait for its place in hvd.init.
  // kPreparing: its hvd.init has returned a provisional place. It has not asked again.
  enum class Phase { kHeld, kStarting, kAsking, kPreparing, kMember, kGone };
  struct Process {
    int host = 0;
    int slot = 0;  // free on its host when it was started
    Phase phase = Phase::kStarting;
    int64_t request = 0;
    int32_t generation = -1;  // that it was in last
    bool is_removed = false;  // by a user; it leaves at the next commit
    Time since{};             // its start was ordered; of a process with which the job began: unset
    Time told{};              // the last sentence about its silence
    // Which its hvd.init has returned, until it has met the other ranks.
    std::optional<rendezvous::Place> provisional = std::nullopt;
    bool takes_any_place = false;  // it waits in hvd.elastic.run
  };
  // A rank that has failed, perhaps because another one did.
  struct Suspect {
    int process = 0;
    int exit_code = 0;
    std::string sentence;
    Time since;
  };
  // An exception that has ended a rank, and then perhaps another one.
  struct Repetition {
    struct Failure {
      int process = 0;
      int slot = 0;
      int32_t generation = 0;
      std::string host;
      std::string whose;
      std::string sentence;
    };
    std::string exception;
    int exit_code = 0;
    Failure first;
    std::optional<Failure> again;
  };
  struct HostState {
    std::string name;
    std::vector<int> processes;
    bool is_leaving = false;  // no longer among the discovered ones
    bool is_gone = false;
    std::string why_it_ends;  // its agent ends by itself, at ends_at; empty: it does not
    Time ends_at{};
    bool is_prepared = false;
  };

  void note_start(int host, Time now);
  void consider(Time now);
  void start_hosts(Time now);
  void mark_leaving();
  void fail(int process, int exit_code, const std::string& sentence, Time now);
  void fail(int process, int exit_code, const std::string& sentence, Time now, Time since);
  bool has_live_member_beside(int host) const;
  void decide_suspect(Time now);
  void note_exception(int process, int exit_code, const std::string& sentence,
                      const std::string& exception);
  void note_commit(int32_t generation);
  bool ends_by_repetition();
  std::string exclude(const std::string& name, Time now);
  bool has_worked(const std::string& host) const;
  std::string start_another_later(const std::string& name, Time now);
  void drop_host(HostState& host);
  void dismiss(int process);
  void end_alone(int process);
  void drop_surplus();
  void give_up_silent(Time now);
  void give_up_slow(Time now);
  void name_unaware(Time now);
  void give_up_unprepared(Time now);
  std::string whose(int process) const;
  bool has_survivor() const;
  MembershipPlan plan_joining(const std::set<int>& newcomers) const;
  void plan_newcomers(Time now);
  void check_joining();
  bool start_misplaced_again(const std::set<int>& processes, const Generation& generation);
  void tell_provisional_places(Time now);
  bool has_joining(int process) const;
  bool all_joining_are_prepared() const;
  int32_t slots_ready(Time now);
  void announce(Time now);
  bool restarts_program() const;
  std::string when_they_leave(const std::string& whose, Time now) const;
  void assume_ranks();
  void drop_assumption(Time now);
  void restart(const std::string& why, Time now);
  void restart_after_failure(const std::string& sentence, int exit_code, Time since, Time now);
  bool all_have_asked() const;
  using Takes = std::function<bool(int process)>;
  MembershipPlan next() const;
  MembershipPlan plan_with(const Takes& takes) const;
  MembershipPlan hand_over(MembershipChange change) const;
  void begin(Generation generation, Time now);
  void count_reset(const std::string& why, Time now);
  std::string why_it_resets() const;
  std::string awaited_hosts(Time now) const;
  bool may_reset(Time now);
  Status may_change(Time now);
  int offered_slots() const;
  Status may_remove(const std::string& host, int slots, const std::string& what) const;
  bool has_met(int process) const;
  int usable_slots(const Host& host) const;
  bool has_state_without(const std::string& host) const;
  void let_go(const HostState& host, Time now);
  void let_hosts_go(Time now);
  int live_members() const;
  int staying_members() const;
  int members_of(const std::string& host) const;
  bool has_spare_place(const Process& process) const;
  void pause(int found, Time now);
  bool may_grow() const;
  void end_by_reset_limit();
  void over(int exit_code, const std::string& sentence, int process);
  void finish();
  bool is_live(int process) const;
  int live_processes() const;
  int staying_processes() const;  // on hosts that do not leave
  bool is_member(int process) const;
  bool is_held(const Process& process) const;
  int free_slot(const std::string& host) const;
  void tell_loss(const std::string& sentence, Time now);

  GenerationLimits limits_;
  GenerationActions& actions_;
  JobHistory& history_;
  HostPool& pool_;
  std::map<int, Process> processes_;
  std::map<int, HostState> hosts_;
  std::optional<Generation> current_;
  // No process has asked for a place: current_ has those with which the launch began.
  bool is_assumed_ = false;
  bool has_begun_ = false;
  bool takes_part_ = false;
  Time begun_{};
  Clock::duration first_start_{};  // from begun_ until the first ranks had asked for their places
  Time first_began_{};             // the first generation
  Clock::duration first_work_{};   // from then until a rank of it entered hvd.elastic.run
  int32_t announced_ = rendezvous::kHostsUnchanged;  // to the present generation
  bool is_over_ = false;
  std::optional<Suspect> suspect_;
  std::optional<Repetition> repetition_;  // with no commit since
  std::optional<Time> finishing_;         // since a rank has ended with exit code 0
  std::optional<Time> asking_since_;      // the first request for the next generation
  bool has_named_silent_ = false;
  std::optional<Time> lost_since_;  // a rank, while nobody has asked for the next generation
  Time told_loss_{};
  // The next generation with the processes that are ready to join it, while the ranks train. They have been told
  // these places.
  std::optional<Generation> joining_;
  std::optional<Time> told_unprepared_;  // which of them it waits for
  std::optional<Time> ready_since_;      // a process that is no member can become one
  std::optional<Time> paused_since_;
  Time told_pause_{};
  std::optional<Time> next_;
  // The first failure since the present generation began, for the end of a job that has no rank left.
  int failure_code_ = 0;
  std::string failure_;
  int failed_process_ = -1;
};

}  // namespace hvd::launcher
