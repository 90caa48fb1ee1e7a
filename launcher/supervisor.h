// Decides how a running job ends: is told what happened, says what to do about it, and in the end
// which exit code and sentence the user gets. Pure; lives wherever its owner lives.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"
#include "launcher/agent_link.h"
#include "launcher/slot_plan.h"

namespace hvd::launcher {

class Supervisor {
 public:
  enum class Action {
    kNone,
    kEnd,   // end the ranks on all hosts, with grace
    kKill,  // at once
  };

  explicit Supervisor(const SlotPlan& plan);

  // The first rank that fails ends the job.
  Action on_exit(const RankExit& exit);
  Action on_finished(int host);
  // So does a host that is lost.
  Action on_lost(int host, const Status& why);
  // So does a host whose ranks cannot be started.
  Action on_start_failed(int host, const Status& why);
  // So does the user; a second time means now.
  Action on_signal(int number);
  // So does a standard output that nobody reads, quietly, as SIGPIPE would.
  Action on_output_broken(int error_number);

  bool is_ending() const { return ending_; }
  bool is_done() const { return hosts_left_ == 0; }
  bool is_done(int host) const { return host_done_[static_cast<size_t>(host)]; }

  int exit_code() const;
  // One sentence about the first cause, or empty.
  std::string report() const;

 private:
  Action fail(int exit_code, std::string sentence);
  void leave(int host);
  std::string place(int rank) const;      // "rank 3 on host b"
  std::string host_name(int host) const;  // "host b"

  const SlotPlan& plan_;
  std::vector<bool> host_done_, rank_done_;
  int hosts_left_;
  bool ending_ = false;
  int signals_ = 0;
  int exit_code_ = 0;
  std::string sentence_;
};

}  // namespace hvd::launcher
