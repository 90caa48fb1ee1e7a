// Decides the generations of an elastic job: which processes are its ranks, when the next generation begins, which
// hosts are started and ended, and when the job cannot continue. The policy of the program (ProgramPolicy) decides
// how the ranks change. No I/O, no clock, no thread: each event carries its time, and the owner calls on_time() at
// next_time(). ElasticJob owns this object.
//
//   an event ---> note it in ElasticCore ---> consider(now), which all events end with:
//                                               |  a process without an answer in time has failed; the job may be over
//                                               |  policy.decide(): hosts and processes to start, to end, to inform
//                                               '- next_time(): the earliest moment that could change this answer
//
//   generation n trains --- a host, a rank or a user's order comes or goes ---> ranks ask for their next places
//        ^                                                                        | when all have asked
//        '------- NextGeneration numbers them, ranks with the state first --------'
//
// Invariants: consider() repeats until nothing more can begin; then the owner has to wait only for next_time(). A
// generation begins when all awaited processes have requested a place. A lost host is used again only when its old
// ranks have ended, or can no longer run. After kOver (elastic_core.h), orders only end hosts and processes.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "launcher/elastic/elastic_core.h"
#include "launcher/elastic/elastic_settings.h"
#include "launcher/elastic/job_history.h"
#include "launcher/elastic/next_generation.h"
#include "launcher/elastic/program_policies.h"
#include "launcher/elastic/rank_changes.h"
#include "launcher/hosts/host_run.h"
#include "launcher/plan/hosts.h"
#include "rendezvous/wire/generation.h"

namespace hvd::launcher {

class Generations {
 public:
  using Time = Clock::time_point;
  // All arguments except `limits` must outlive this object. The job begins with the hosts in the table.
  Generations(const GenerationLimits& limits, GenerationActions& actions, JobHistory& history,
              HostTable& hosts)
      : core_(limits, actions, history, hosts) {}
  Generations(const Generations&) = delete;

  // Takes the hosts that the job may use now, in order.
  void discovered(std::vector<Host> hosts, Time now);
  void prepared(HostRun& host, Time now);
  void start_failed(HostRun& host, const std::string& sentence, Time now);
  // Call when a rank has entered hvd.elastic.run.
  void takes_part(Time now);
  // runs() and requested() ignore numbers of processes that have not started or are gone.
  void runs(int64_t process, ElasticCall call);
  void requested(int64_t process, const rendezvous::PlaceRequest& request, Time now);
  // Call when a process has ended. Returns false if the job has failed: another rank has already ended with success,
  // and this rank neither runs in hvd.elastic.run nor has returned from it. `exception`: the line with the name of the
  // exception that ended the process, or empty.
  bool ended(int process, int exit_code, const std::string& sentence, Time now,
             const std::string& exception = "");
  // Call when a host is lost or its agent ends all its processes. Returns false in the same case as ended().
  bool host_lost(HostRun& host, const std::string& sentence, Time now);
  // Call when the ranks of an unreachable host have ended.
  void ranks_ended(const HostRun& host, Time now);
  // Call when a user requests this maximum number of ranks. Returns a sentence about the consequence.
  Result<std::string> resize(int ranks, Time now);
  // Call when a user requests that a host, or one rank, leaves at the next commit. The freed slots are used again
  // when a resize needs them. A host's slots are also used again when discovery names the
  // host after an answer without it.
  Result<std::string> remove_host(const std::string& name, Time now);
  Result<std::string> remove_rank(int64_t rank, Time now);
  // Call when a host will be lost after this number of seconds. Its ranks leave at their next commit, as if a user had
  // removed the host. If no other rank has the state, these ranks continue until another rank has the state.
  void host_leaves(HostRun& host, const std::string& why, double seconds, Time now);
  void on_time(Time now) { consider(now); }
  // Returns the time of the next on_time(). Time::max(): only an event can change anything.
  Time next_time() const { return core_.next; }

  // Returns whether the other hosts have enough slots, and the state, to continue the job without these hosts.
  bool can_spare(const std::set<std::string>& hosts) const;

 private:
  ProgramPolicy& policy();
  void consider(Time now);
  bool decide(Time now);
  void give_up_silent(Time now);
  bool has_live_rank() const;
  RankRun* started(int64_t process);
  void finished(RankRun& process, Time now);
  void note_after_training(const Ranks& ranks, int exit_code, const std::string& sentence,
                           Time now);
  bool is_after_training(const Ranks& ranks) const;
  void finish(Time now);
  void remind_of_end(Time now);
  bool fails_after_training();
  void check_unfinished(Time now);

  ElasticCore core_;
  NextGeneration next_{core_};
  ElasticRun elastic_run_{core_, next_};
  RestartProgram restart_program_{core_, next_};
  RankChanges changes_{core_};
};

}  // namespace hvd::launcher
