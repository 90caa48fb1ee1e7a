// The hosts and processes of an elastic job, and its present generation.
// ElasticCore owns one. No thread of its own.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "launcher/elastic/membership.h"
#include "launcher/hosts/host_run.h"
#include "rendezvous/store/membership.h"

namespace hvd::launcher {

//   kPlanned ──> kHeld ──> kStarting ──> kAsking <──> kMember
//      └───────────────────────^            ^
//                                           └───────> kPreparing
//   each of them ──> kGone
// While ranks are assumed (job_stage.h), those with which the launch began are kMember, and become kStarting again.
enum class ProcessPhase {
  kPlanned,    // its agent is not there yet
  kHeld,       // its agent is there, but the program might not wait for its place in hvd.init
  kStarting,   // it has not asked for a place
  kAsking,     // it has asked for its next place, and waits for it
  kPreparing,  // its hvd.init has returned a provisional place; it has not asked again
  kMember,     // it is a rank of the present generation
  kGone,       // it has ended or is being ended
};

struct JobProcess {
  int host = 0;
  int slot = 0;  // free on its host when it was started
  ProcessPhase phase = ProcessPhase::kStarting;
  int64_t request = 0;
  int32_t generation = -1;  // the last one that it was in
  bool is_removed = false;  // a user has removed it: it leaves at the next commit
  Clock::time_point
      since{};  // its order to start, or its provisional place; unset: the job began with it
  // Which its hvd.init has returned, until it has met the other ranks.
  std::optional<rendezvous::Place> provisional = std::nullopt;
  bool takes_any_place = false;  // it waits in hvd.elastic.run
  bool is_in_run = false;        // it has entered hvd.elastic.run, which has not returned
  bool has_returned = false;     // from hvd.elastic.run, and has not entered it again

  // It is going to ask for its first place.
  bool is_coming() const {
    return phase == ProcessPhase::kPlanned || phase == ProcessPhase::kStarting;
  }
};

enum class HostUse {
  kUsed,
  kLeaving,  // no longer among the discovered ones; may be used again
  kGone,     // it is lost, or its end was ordered
};

struct JobHost {
  explicit JobHost(const HostRun& run) : run(run) {}
  const std::string& name() const { return run.name(); }

  const HostRun& run;
  HostUse use = HostUse::kUsed;
  std::string why_it_ends;  // not empty: its agent ends by itself, at ends_at
  Clock::time_point ends_at{};
};

struct ProcessTable {
  std::map<int, JobProcess> processes;
  std::map<int, JobHost> hosts;  // keys: numbers of agents; a host may have had several
  std::optional<Generation> current;

  // The host that this process is on.
  JobHost& host_of(int process) { return hosts.at(processes.at(process).host); }
  const JobHost& host_of(int process) const { return hosts.at(processes.at(process).host); }
  // The rank of a process in the present generation, or -1.
  int rank_of(int process) const;
  bool is_member(int process) const;
  bool is_live(int process) const;
  bool has_live_process(const JobHost& host) const;
  // Whether the process was a rank of a generation whose ranks have met, as far as the launcher knows.
  bool has_met(int process) const;
  // By rank: the processes of the present generation, also those that have ended since.
  std::vector<int> members() const;
  // "rank 3 on host b".
  std::string whose(int process) const;

  int live_processes() const;
  // Without those that a user has removed.
  int live_processes(const std::string& host) const;
  int staying_processes() const;  // on hosts that do not leave
  int live_members() const;
  int staying_members() const;  // without those that are to leave
  int members_of(const std::string& host) const;
  std::vector<int> live_members_of(const JobHost& host) const;
  bool has_live_member_beside(int host) const;
  // Whether a rank of the present generation still runs that the launcher ends, alone or with its host: it may save
  // its work.
  bool has_ending_member() const;
  // Whether a rank that has the state goes on.
  bool has_survivor() const;
  bool all_have_asked() const;
  // Places on free slots of a host, as entry `host` of the launch's table, for the processes from `first` on.
  std::vector<Slot> places_on(const std::string& name, int host, int first, int count) const;
};

}  // namespace hvd::launcher
