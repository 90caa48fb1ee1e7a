// Decides how a running job ends: is told what happened, says what to do about it, and in the end
// which exit code and sentence the user gets. Pure; lives wherever its owner lives.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "launcher/link/agent_link.h"
#include "launcher/plan/slot_plan.h"

namespace hvd::launcher {

class Supervisor {
 public:
  enum class Action {
    kNone,
    kEnd,    // end the ranks on all hosts, with grace
    kKill,   // at once
    kAwait,  // a moment for the rank that another's failure comes from; then call on_awaited
  };

  // `waits`: a rank's failure leaves the others alone, and counts when all have ended.
  explicit Supervisor(const SlotPlan& plan, bool waits = false);

  // The first rank that fails ends the job. `left_by`: the rank whose leaving made this one fail,
  // as it said; that one's end, if it comes soon and is a failure too, is the cause.
  Action on_exit(const RankExit& exit, std::optional<int> left_by = {});
  // A process of the rank is in this world (or about to be), which should be the job's: so is another world an end,
  // but for what such a rank does later.
  Action on_joined(int rank, int world_rank, int world_size);
  // The moment is over.
  Action on_awaited();
  Action on_finished(int host);
  // So does a host that is lost.
  Action on_lost(int host, const Status& why);
  // So does one whose agent ends its ranks; on_finished or on_lost follows.
  Action on_agent_ending(int host, const std::string& why);
  // So does a host whose ranks cannot be started.
  Action on_start_failed(int host, const Status& why);
  // So does the end of the time that the job may take.
  Action on_timeout(double seconds);
  // So does the user; a second time means now.
  Action on_signal(int number);
  // So does a standard output that nobody reads, quietly, as SIGPIPE would.
  Action on_output_broken(int error_number);

  bool is_ending() const { return ending_; }
  bool is_done() const { return hosts_left_ == 0; }
  bool is_done(int host) const { return host_done_[static_cast<size_t>(host)]; }

  // A sentence about a failure that does not end the job, once.
  std::optional<std::string> take_news() { return std::exchange(news_, {}); }

  int exit_code() const;
  // One sentence about the first cause, or empty.
  std::string report() const;
  // Those that the end signal did not end within the grace: "rank 3 on host b", "ranks 0-2 on 2 hosts",
  // or empty, also where a second signal asked for SIGKILL.
  std::string killed_ranks() const;
  // Whose failure was the first cause, or -1.
  int failed_rank() const { return failed_rank_; }

 private:
  struct Failure {
    int exit_code;
    std::string sentence;
  };

  Action fail(int exit_code, std::string sentence, int rank = -1);
  // A rank failed; whether that ends the job is the user's choice.
  Action fail_rank(int rank, Failure failure);
  Failure describe(const RankExit& exit) const;
  Action fail_late();
  void leave(int host);
  std::string place(int rank) const;      // "rank 3 on host b"
  std::string host_name(int host) const;  // "host b"

  const SlotPlan& plan_;
  std::vector<bool> host_done_, rank_done_, rank_joined_, rank_killed_;
  int hosts_left_;
  const bool waits_;
  bool ending_ = false;
  int ended_by_ = 0;  // the signal that a rank died of, or SIGTERM where an agent ends its ranks
  int failed_rank_ = -1;
  int signals_ = 0;
  int exit_code_ = 0;
  std::string sentence_;
  std::optional<std::string> news_;
  std::optional<Failure> late_;  // waits for the end of awaited_
  int late_rank_ = -1;
  int awaited_ = -1;
};

}  // namespace hvd::launcher
