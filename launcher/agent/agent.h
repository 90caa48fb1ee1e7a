// The agent of one host. On the orders of its launcher, it prepares the host, starts and watches ranks, and relays
// their output. The agent ends all its descendants when the launcher orders the end, when the launcher is silent for
// longer than the lease, or when the link is lost. One thread.
#pragma once

#include <optional>
#include <string>
#include <tuple>

#include "base/clock.h"
#include "launcher/agent/agent_state.h"
#include "launcher/agent/host/blocking_call.h"
#include "launcher/agent/launcher_lease.h"
#include "launcher/agent/link/host_aggregator.h"
#include "launcher/agent/link/launcher_link.h"
#include "launcher/agent/link/outbox.h"
#include "launcher/agent/link/store_tunnel.h"
#include "launcher/agent/link/world_reports.h"
#include "launcher/agent/pmix_helper.h"
#include "launcher/agent/preflight/host_preparation.h"
#include "launcher/agent/preflight/master_port_reservation.h"
#include "launcher/agent/preflight/reachability.h"
#include "launcher/agent/ranks/executions.h"
#include "launcher/agent/ranks/independence.h"
#include "launcher/agent/ranks/rank_hold.h"
#include "launcher/agent/ranks/ranks.h"
#include "launcher/agent/ranks/samples.h"
#include "launcher/agent/ranks/staging.h"
#include "launcher/agent/stacks/inspections.h"
#include "launcher/agent/watchdog.h"
#include "launcher/protocol/outside_signals.h"
#include "launcher/protocol/protocol.h"
#include "net/event_loop.h"
#include "net/frame.h"

namespace hvd::launcher {

class Agent {
 public:
  // The signals of agent_signals() must be blocked. `folder`: for files of the job. `staging`: for a copy of the user's
  // code. The guardian removes the two folders. The agent's ranks end if `watchdog` reports that this process hangs.
  Agent(net::EventLoop loop, OpenedLink link, std::string build, Environment environment,
        std::string folder, std::string staging, Watchdog& watchdog);
  ~Agent();

  // Blocks until the launcher knows the end of the job, or the job has ended without a link. Returns the exit status of
  // this process.
  int run();

 private:
  Status open();
  void send_hello();
  void take(ByteView received);
  void handle(const net::Frame& frame);
  // One overload for each message that the launcher sends.
  void execute(const Prepare& order);
  void execute(const StagePart& part);
  void execute(const EnvironmentOffer& offer);
  void execute(const EnvironmentSource& source);
  void execute(const Start& order);
  void execute(const TestReachability& order);
  void execute(const Signal& order);
  void execute(const Inspect& question) { inspections_.begin(question); }
  void execute(const InspectLate& question) { inspections_.begin(question); }
  void execute(const TakeSample& question) { samples_.begin(question); }
  void execute(const LongestWait& wait) { ranks_.show_longest_wait(wait.microseconds); }
  void execute(const StackToolOffer& offer);
  void execute(const Run& order);
  void execute(const OutputCredit& taken);
  void execute(const StopRun& order);
  void execute(const Input& input);
  void execute(const End& order);
  void execute(const EndRank& order);
  void execute(const Ping& ping);
  void execute(const Suspend& order);
  void conclude_start(const Status& status);
  Status open_listeners(uint32_t store_credit);
  Status reserve_master_port();
  EnvironmentTransfer::Network transfer_network() const;
  void on_signal();
  bool is_end_of_old_command(const OutsideSignal& signal) const;
  void act(const OutsideSignal& signal);
  bool announce_end(const OutsideSignal& signal);
  bool leave();
  void reap_ranks();
  void reap();
  // Ends all processes of the job. Sends the job's end signal now, unless the ranks already have a
  // signal, and SIGKILL after the grace period. A later call can only shorten the grace period.
  void end(double grace_seconds, bool has_signal_already = false);
  void kill_what_is_left();
  void end_lease();
  // Ends the job and closes the link. Sends the sentence to the launcher, if the link still works.
  void fail(const std::string& sentence);
  // Closes the link and ends all processes of the job, after the job's grace period by SIGKILL. `is_given_up`: the
  // launcher treats this host as lost; if another host may replace it, there is no grace period.
  void lose_link(bool is_given_up = false);
  void renew_lease();
  // Returns the exit status of this process; nullopt until the launcher knows the end of the job, or the job has ended
  // without a link.
  std::optional<int> exit_status();
  void watch_over();
  void on_state_deadline();
  void finish_when_over();
  bool is_removing_staged_code();
  void finish(bool is_given_up);
  // The members with a deadline: the agent calls on_deadline() when deadline() has passed.
  auto timers() {
    return std::tie(master_port_, reachability_, pmix_, executions_, ranks_, hold_, inspections_,
                    samples_, link_, host_preparation_.transfer(), independence_);
  }
  Deadline next_deadline();

  net::EventLoop loop_;
  LauncherLink link_;
  std::string build_;
  Environment environment_;
  Outbox outbox_;
  StoreTunnel store_;
  HostAggregator aggregator_;
  Executions executions_;
  Ranks ranks_;
  Inspections inspections_;
  Samples samples_;
  HostPreparation host_preparation_;
  MasterPortReservation master_port_;
  ReachabilityTest reachability_;
  PmixHelper pmix_;
  WorldReports world_reports_;
  Independence independence_;
  bool has_run_to_its_end_ = false;  // the ranks ended by themselves but left processes running
  Staging staging_;
  BlockingCall removal_;       // removes staging_
  std::string written_files_;  // result of describe_written_files()
  net::FrameParser parser_;
  UniqueFd signals_;
  OutsideSignals outside_signals_;
  int parent_;

  AgentStateMachine state_;
  HostJob job_;
  net::PortRange ports_;
  net::InterfaceChoice interfaces_;
  Watchdog& watchdog_;
  LauncherLease lease_;
  RankHold hold_;
  Deadline kill_again_at_ = Deadline::never();
};

}  // namespace hvd::launcher
