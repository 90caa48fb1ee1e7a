// Decides how a running job ends. Takes the events of the job, moves its hosts and ranks to the states in which they
// end, returns the next action for each event, and keeps the exit code and the sentence for the user. JobLaunch owns
// this object, passes the events to it and carries out the actions. Does no I/O and has no thread.
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

  // `waits`: a rank's failure does not end the other ranks, but sets the exit code of the job. `hosts` must outlive
  // this object.
  explicit Supervisor(HostTable& hosts, bool waits = false);

  // For elastic jobs. Called when a rank has ended, and when a host is lost or cannot be prepared (rank -1). After
  // success, the exit code is 0 and the sentence is empty. Returns whether the job continues.
  using Survives =
      std::function<bool(int rank, int host, int exit_code, const std::string& sentence)>;
  void ask_before_end(Survives survives) { survives_ = std::move(survives); }
  // Returns whether a host has not yet answered the launcher's last ping. The loss of such a host may cause the failure
  // of a rank on another host. Therefore the supervisor judges the failure only when all silent hosts have answered.
  using IsSilent = std::function<bool(int host)>;
  void ask_about_silence(IsSilent is_silent) { is_silent_ = std::move(is_silent); }
  // `rank`: the rank whose failure is the cause, or -1.
  Action end_job(int exit_code, const std::string& sentence, int rank);

  // Why a rank failed, from its report: a peer left, a connection to the peer broke, or the peer was silent.
  struct LeftBy {
    LeftBy(int rank, std::string cause = {}) : rank(rank), cause(std::move(cause)) {}
    int rank;
    std::string cause;  // a sentence, if the peer may not have ended; else empty
  };
  // Call when a rank has ended. The first failure ends the job, unless `waits` is set or an elastic job continues.
  // `left_by`: the rank whose exit caused the failure, according to the failed rank. If that rank fails within 2 s as
  // well, its failure is the cause. `meanwhile`: the failed rank's activity, appended to the sentence; may be empty.
  Action on_exit(const RankExit& exit, const std::optional<LeftBy>& left_by = {},
                 const std::string& meanwhile = "");
  // Returns whether a failure waits to be judged until silent hosts have answered.
  bool is_holding() const { return !held_.empty(); }
  // Returns the signal that killed the rank whose failure is the cause; SIGTERM if an agent has ended its ranks; else
  // 0.
  int ended_by() const { return ended_by_; }
  // Ends the job, because a rank has ended and other ranks wait for it in `call` (hvd.init(), MPI_Init).
  Action on_awaited_rank_ended(int rank, const std::vector<int>& waiting, const char* call);
  // Call when a process of the rank joins a world. Ends the job if the rank's first world is not the job's world.
  // Elastic jobs and jobs of one rank ignore the call.
  Action on_joined(int rank, int world_rank, int world_size);
  Action on_answer(int host);
  // Call when the wait that kAwait requested is over.
  Action on_awaited();
  // Call when all ranks of a host have ended.
  Action on_finished(int host);
  // Call when the connection to a host is lost. Ends the job, unless an elastic job continues. The report also names
  // hosts that are lost later for the same reason: hosts that become silent together are not lost at the same moment.
  Action on_lost(int host, const Status& why);
  // Call when a host's agent ends its ranks. Ends the job, unless an elastic job continues. on_finished or on_lost
  // follows.
  Action on_agent_ending(int host, const std::string& why);
  // Call when the ranks of a host cannot be started. Ends the job, unless an elastic job continues.
  Action on_start_failed(int host, const Status& why);
  // Call when the agent of a host cannot be started. Ends the job, unless an elastic job continues. The reason names
  // the host.
  Action on_preparation_failed(int host, const Status& why);
  // Ends the job because of a signal to the launcher. A second signal kills the ranks.
  Action on_signal(int number);
  // Call when a scheduler ends all processes that this script has started. If the scheduler may have caused the job's
  // end, the report then names the script as the cause.
  void on_script_ended(const std::string& script);
  // Ends the job, because standard output can no longer be written. `file`: the file behind standard output. If its
  // reader has closed it (EPIPE), the report has no sentence.
  Action on_output_broken(int error_number, const std::string& file);

  bool is_ending() const { return ending_; }

  // Returns and removes the newest sentence about a failure that has not ended the job.
  std::optional<std::string> take_news() { return std::exchange(news_, {}); }

  int exit_code() const;
  // Returns one sentence about the first cause, or an empty text.
  std::string report() const;
  // Returns the ranks that were killed after the grace period: "rank 3 on host b", "ranks 0-2 on 2 hosts". Empty if no
  // rank was killed, or after a second signal, with which the user requests SIGKILL.
  std::string killed_ranks() const;
  // Returns the rank whose failure was the first cause, or -1.
  int failed_rank() const { return failed_rank_; }

 private:
  struct Failure {
    int exit_code;
    std::string sentence;
  };

  struct RankFailure {
    RankExit exit;
    std::optional<LeftBy> left_by;  // the argument of on_exit()
    std::string meanwhile;          // the argument of on_exit()
  };

  // The loss of one or more hosts that ended the job.
  struct Loss {
    std::vector<int> hosts;
    std::string why;
    std::string before;  // an earlier failure that this loss caused, or empty
  };

  Action fail(int exit_code, std::string sentence, int rank = -1);
  // Ends the job. With --on-failure wait, only records the failure.
  Action fail_rank(int rank, Failure failure);
  Failure describe(const RankExit& exit) const;
  std::string describe(const Loss& loss) const;
  std::string ended_before() const;
  Action fail_late();
  // Ends the job for the failure of a rank, unless another rank may be the cause.
  Action judge(const RankFailure& rank_failure);
  // Waits for a failure of `peer`, the rank that this rank names as the cause of its failure.
  Action await_peer(int rank, Failure failure, const LeftBy& peer);
  // Returns whether the failure waits for answers from the hosts that are silent now.
  bool holds(const RankFailure& failure);
  // Moves the host to the state lost, unless the host is over.
  void lose(int host);
  bool goes_on(int rank, int host, const Failure& failure) const;
  std::string place(int rank) const;      // "rank 3 on host b"
  std::string host_name(int host) const;  // "host b"

  HostTable& hosts_;
  const bool waits_;
  Survives survives_;
  IsSilent is_silent_;
  std::vector<RankFailure> held_;  // failures that may be consequences of a host's loss
  std::set<int> silent_hosts_;     // the hosts for whose answers held_ waits
  bool ending_ = false;
  int ended_by_ = 0;
  int failed_rank_ = -1;
  int signals_ = 0;
  int exit_code_ = 0;
  std::string sentence_;
  std::optional<Loss> loss_;
  std::optional<std::string> news_;
  std::set<int> failed_alike_;   // ranks whose reports have a cause other than a rank's exit
  std::optional<Failure> late_;  // the failure to report unless awaited_ fails as well
  std::string late_if_left_;     // the sentence of late_ if awaited_ exits with code 0
  int late_rank_ = -1;
  int awaited_ = -1;
};

}  // namespace hvd::launcher
