// Decides how a running job ends. Takes the events of the job, moves its hosts and ranks to the states in which they
// end, returns the next action for each event, and holds the exit code and the sentence for the user. JobLaunch owns
// it, passes it the events and carries out the actions. Does no I/O and has no thread.
#pragma once

#include <functional>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "launcher/hosts/host_table.h"
#include "launcher/plan/slot_plan.h"

namespace hvd::launcher {

class Supervisor {
 public:
  enum class Action {
    kNone,
    kEnd,    // end the ranks on all hosts, with grace
    kKill,   // kill the ranks on all hosts now
    kAwait,  // wait up to 2 s for the end of the rank that caused a failure; then call on_awaited
  };

  // `waits`: a rank's failure does not end the other ranks; it sets the exit code when all have ended.
  // `hosts` outlives this object.
  explicit Supervisor(HostTable& hosts, bool waits = false);

  // In an elastic job: called for each end of a rank (rank -1: of a host), with exit code 0 and no
  // sentence after success. Returns whether the job goes on: Generations decides it, behind JobPolicy::survives().
  using Survives =
      std::function<bool(int rank, int host, int exit_code, const std::string& sentence)>;
  void ask_before_end(Survives survives) { survives_ = std::move(survives); }
  // Whether a host has not yet answered the launcher's last ping. A failure of a rank on another host may be
  // the consequence of its loss: the failure counts once each silent host has answered.
  using IsSilent = std::function<bool(int host)>;
  void ask_about_silence(IsSilent is_silent) { is_silent_ = std::move(is_silent); }
  // Ends the job for another reason. `rank`: whose failure is the cause, or -1.
  Action end_job(int exit_code, const std::string& sentence, int rank);

  // Why a rank failed, as it has reported: a peer left, the connection to it broke, or it did not answer.
  struct LeftBy {
    LeftBy(int rank, std::string cause = {}) : rank(rank), cause(std::move(cause)) {}
    int rank;
    std::string cause;  // the sentence about it, where the peer need not have ended, or empty
  };
  // A rank has ended. The first failure ends the job. `left_by`: the rank whose exit made this rank fail,
  // as this rank reported. If that rank fails within 2 s as well, its failure is the cause.
  // `meanwhile`: what the rank was doing, to be added to a failure; or empty.
  Action on_exit(const RankExit& exit, const std::optional<LeftBy>& left_by = {},
                 const std::string& meanwhile = "");
  // Whether the failure of a rank waits for silent hosts: it will end the job.
  bool is_holding() const { return !held_.empty(); }
  // The signal that killed the rank whose failure is the cause, or SIGTERM when an agent ends its ranks; or 0.
  int ended_by() const { return ended_by_; }
  // A rank has ended, and others wait for it in `call` (hvd.init(), MPI_Init): ends the job.
  Action on_awaited_rank_ended(int rank, const std::vector<int>& waiting, const char* call);
  // A process of the rank joins a world. The first world of each rank must be the job's: another one ends
  // the job.
  Action on_joined(int rank, int world_rank, int world_size);
  // The host has answered.
  Action on_answer(int host);
  // The wait after kAwait is over.
  Action on_awaited();
  // All ranks of a host have ended.
  Action on_finished(int host);
  // The connection to a host is lost: ends the job. The report also names a host that is lost afterwards for the
  // same reason: hosts that fall silent together are not lost at the same moment.
  Action on_lost(int host, const Status& why);
  // A host's agent ends its ranks: ends the job. on_finished or on_lost follows.
  Action on_agent_ending(int host, const std::string& why);
  // The ranks of a host cannot be started: ends the job.
  Action on_start_failed(int host, const Status& why);
  // The agent of a host cannot be brought up; the reason names the host.
  Action on_preparation_failed(int host, const Status& why);
  // A signal to the launcher ends the job. A second signal kills the ranks.
  Action on_signal(int number);
  // A scheduler ends all that this script has started: the script is the cause of an end that the scheduler can have
  // caused, whichever of the processes it ended first.
  void on_script_ended(const std::string& script);
  // Standard output, which is this file, takes no more: ends the job. When its reader has gone, there
  // is no sentence, as after SIGPIPE.
  Action on_output_broken(int error_number, const std::string& file);

  bool is_ending() const { return ending_; }

  // Returns each sentence about a failure that does not end the job once.
  std::optional<std::string> take_news() { return std::exchange(news_, {}); }

  int exit_code() const;
  // One sentence about the first cause, or empty.
  std::string report() const;
  // The ranks that SIGKILL ended after the grace period: "rank 3 on host b", "ranks 0-2 on 2 hosts".
  // Empty without any, and after a second signal, which asks for SIGKILL.
  std::string killed_ranks() const;
  // The rank whose failure was the first cause, or -1.
  int failed_rank() const { return failed_rank_; }

 private:
  struct Failure {
    int exit_code;
    std::string sentence;
  };

  struct RankFailure {
    RankExit exit;
    std::optional<LeftBy> left_by;  // as in on_exit
    std::string meanwhile;          // as in on_exit
  };

  // Hosts whose loss is the cause of the end.
  struct Loss {
    std::vector<int> hosts;
    std::string why;
    std::string before;  // the failure that it caused before, or empty
  };

  Action fail(int exit_code, std::string sentence, int rank = -1);
  // A rank failed; whether that ends the job is the user's choice.
  Action fail_rank(int rank, Failure failure);
  Failure describe(const RankExit& exit) const;
  std::string describe(const Loss& loss) const;
  std::string ended_before() const;
  Action fail_late();
  // Ends the job for the failure of a rank, unless another rank is the cause.
  Action judge(const RankFailure& rank_failure);
  // `peer`: the rank that made this rank fail, as this rank reported.
  Action await_peer(int rank, Failure failure, const LeftBy& peer);
  // Whether the failure waits until the hosts that are silent now have answered.
  bool holds(const RankFailure& failure);
  // The host is lost, unless it is over already.
  void lose(int host);
  bool goes_on(int rank, int host, const Failure& failure) const;
  std::string place(int rank) const;      // "rank 3 on host b"
  std::string host_name(int host) const;  // "host b"

  HostTable& hosts_;
  const bool waits_;
  Survives survives_;
  IsSilent is_silent_;
  std::vector<RankFailure> held_;  // may be consequences
  std::set<int> silent_hosts_;     // that held_ waits for
  bool ending_ = false;
  int ended_by_ = 0;  // the signal that killed a rank, or SIGTERM when an agent ends its ranks
  int failed_rank_ = -1;
  int signals_ = 0;
  int exit_code_ = 0;
  std::string sentence_;
  std::optional<Loss> loss_;
  std::optional<std::string> news_;
  std::set<int> failed_alike_;   // ranks that failed because of a cause other than a rank's end
  std::optional<Failure> late_;  // the cause unless awaited_ fails as well
  std::string late_if_left_;     // the sentence of late_ if awaited_ ends well
  int late_rank_ = -1;
  int awaited_ = -1;
};

}  // namespace hvd::launcher
