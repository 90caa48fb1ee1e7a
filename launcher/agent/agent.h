// The agent of one host: prepares the host, starts and watches its ranks, and relays their output, as
// its launcher orders over the link. Ends all its descendants when the launcher orders it, when the
// launcher is silent for longer than the lease, or when the link is lost. The agent's main runs it.
// One thread.
#pragma once

#include <optional>
#include <string>

#include "base/clock.h"
#include "launcher/agent/loop/link.h"
#include "launcher/agent/loop/outbox.h"
#include "launcher/agent/loop/poll_loop.h"
#include "launcher/agent/pmix/pmix_helper.h"
#include "launcher/agent/preflight/host_preparation.h"
#include "launcher/agent/preflight/master_port_reservation.h"
#include "launcher/agent/preflight/reachability.h"
#include "launcher/agent/ranks/executions.h"
#include "launcher/agent/ranks/ranks.h"
#include "launcher/agent/ranks/staging.h"
#include "launcher/agent/store/host_aggregator.h"
#include "launcher/agent/store/store_tunnel.h"
#include "launcher/agent/store/world_reports.h"
#include "launcher/protocol/outside_signals.h"
#include "launcher/protocol/protocol.h"
#include "net/frame.h"

namespace hvd::launcher {

class Agent {
 public:
  // The signals of agent_signals() must be blocked.
  // `folder`: for files of the job; `staging`: where a copy of the code may lie. The starter of the
  // agent removes both.
  Agent(PollLoop loop, Link link, std::string build, Environment environment, std::string folder,
        std::string staging);
  ~Agent();

  // Until nothing of the job is left; the exit status of the agent.
  int run();

 private:
  enum class Phase { kIdle, kPrepared, kStarted };

  Status open();
  void greet();
  void read_link();
  void take_deciphered();
  void take(ByteView received);
  void handle(const net::Frame& frame);
  void handle(const Prepare& order);
  void handle(const Start& order);
  bool is_non_mpi() const;
  void announce();
  Status open_listeners(uint32_t store_credit);
  Status reserve_master_port();
  void obey(const Message& message);
  void on_signal();
  void act(const OutsideSignal& signal);
  void reap();
  // Ends all of the job: the job's end signal now, unless the ranks have one already, SIGKILL after the
  // grace. A later call can only hasten it.
  void end(double grace_seconds, bool has_signal_already = false);
  void kill_what_is_left();
  // Ends all and closes the link; the launcher hears why, if it can.
  void fail(const std::string& sentence);
  void lose_link();
  void renew_lease();
  void watch_over();
  Deadline next_deadline() const;

  PollLoop loop_;
  Link link_;
  std::string build_;
  Environment environment_;
  Outbox outbox_;
  StoreTunnel store_;
  HostAggregator aggregator_;
  Executions executions_;
  Ranks ranks_;
  HostPreparation host_preparation_;
  MasterPortReservation master_port_;
  ReachabilityTest reachability_;
  PmixHelper pmix_;
  std::optional<Prepared> prepared_;  // not yet told
  WorldReports world_reports_;
  Staging staging_;
  net::FrameParser parser_;
  UniqueFd signals_;
  OutsideSignals outside_signals_;
  int parent_;

  Phase phase_ = Phase::kIdle;
  HostJob job_;
  net::PortRange ports_;
  net::InterfaceChoice interfaces_;
  Deadline lease_;
  bool is_suspended_ = false;
  bool is_linked_ = true;
  bool is_ending_ = false;
  bool is_killing_ = false;
  bool is_finished_ = false;
  Deadline kill_at_ = Deadline::never();
  Deadline kill_again_at_ = Deadline::never();
  Deadline give_up_at_ = Deadline::never();
};

}  // namespace hvd::launcher
