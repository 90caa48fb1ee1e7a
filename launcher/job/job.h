// Runs one launch, from a plan to its exit code: starts the agents on all hosts, the rendezvous server in this process
// and the ranks, forwards their output, and ends them. Uses one thread and one loop.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "launcher/elastic/job_history.h"
#include "launcher/output/launch_events.h"
#include "launcher/plan/launch_settings.h"
#include "launcher/plan/slot_plan.h"
#include "launcher/reach/staged_environment.h"

namespace hvd::launcher {

class JoinQueue;

// The result of a launch. run_job has printed the sentence that explains the result.
struct JobEnd {
  int exit_code = 0;  // exit code of horovodrun
  bool has_started = false;
  bool may_be_tried_again = false;   // a rank or a host failed; false after a signal or a timeout
  bool is_by_scheduler = false;      // a scheduler has ended the ranks of at least one host
  std::vector<int> failed_hosts{};   // not prepared, lost, or taken away
  Clock::time_point ranks_end_by{};  // the latest time at which the ranks of lost hosts have ended
  bool wants_restart = false;        // an elastic job must start again, with the same history
  int slow_host = -1;  // the host that a spare must replace, because its ranks are late; -1: none
};

// Sets up this process: log level, environment, SIGPIPE. Call once, before the first launch.
void prepare_process(const Options& options);
// `history`: the history of an elastic job; its pool names all hosts that the job may use. Null: the job has a constant
// size.
// `generation`: the number of earlier launches of this job. `environment`: the files that earlier launches have
// resolved. `join_queue`: the queue in which the hosts have joined; null: the launcher connects to the hosts.
// `has_spare`: returns true if a spare host can replace this host; empty: there are no spares.
JobEnd run_job(const Options& options, const SlotPlan& plan, uint32_t generation,
               ResolvedEnvironment& environment, JoinQueue* join_queue, const LaunchEvents& events,
               JobHistory* history, std::function<bool(int host)> has_spare = {});

}  // namespace hvd::launcher
