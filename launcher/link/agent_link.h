// The launcher's connection to one agent: prepares, starts, watches and ends the ranks of one host, and
// carries their store connections. Owns the Duplex, and speaks launcher/protocol/protocol.h over it. Class Preflight
// creates the link and prepares the host; HostRun owns the link afterwards. Lives on the launcher's loop and never
// blocks. The states of a link, with the call or the agent's message that makes each move:
//
//       new
//        | prepare()
//     handshake
//        | AgentHello
//     preparing -- EnvironmentWanted --> environment
//        |                                   | EnvironmentFilesWanted
//        |                                 files ---- source of files ----> forwarded
//        |                                   ^                                  |
//        |                                   '------ EnvironmentFilesWanted ----'   the other host has failed
//        |
//        |<----- from environment, files and forwarded, too
//        |-- PackageWanted --> package
//        | Prepared               | Prepared
//     prepared <------------------'
//        |-- hold() --> held
//        | start()        | start()
//     starting <----------'
//        |-- Started --> failed
//        | Started
//     started                          start() has not returned
//        | start() returns
//     running
//
// From each state after new, Finished moves to finished, and the end of the connection to lost. In finished, the end of
// the connection is expected, and moves to ended. close() moves from each state to closed.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "launcher/link/frame_channel.h"
#include "launcher/link/rank_outputs.h"
#include "launcher/link/store_streams.h"
#include "launcher/protocol/host_job.h"
#include "launcher/protocol/protocol.h"
#include "launcher/spawn/spawner.h"
#include "net/asio.h"
#include "net/notification.h"

namespace hvd::launcher {

enum class LinkState : uint8_t {
  kNew,
  kHandshake,
  kPreparing,
  kEnvironment,
  kFiles,
  kForwarded,
  kPackage,
  kPrepared,
  kHeld,
  kStarting,
  kStarted,
  kFailed,
  kRunning,
  kFinished,
  kEnded,
  kLost,
  kClosed
};

// Returns whether the diagram above has this transition.
bool may_move(LinkState from, LinkState to);
std::string_view to_string(LinkState state);  // "new", "handshake", ...

// Returns the next piece of the files, or nullopt after the last piece.
using NextPart = std::function<Result<std::optional<StagePart>>()>;

// The environment of --stage-env for one host. The link owns it while the host receives the environment.
class EnvironmentFeed {
 public:
  virtual ~EnvironmentFeed() = default;
  virtual EnvironmentOffer offer() const = 0;
  // Called when the host requests the files. Returns the source of the files.
  virtual EnvironmentSource join(const MasterCandidates& own) = 0;
  // Returns the pieces of the files from number `first` on.
  virtual NextPart parts(uint64_t first) = 0;
  // Called when the host gets the remaining files from the launcher, for the reason `why`.
  virtual void on_detour(const std::string& why) = 0;
};

class AgentLink : public std::enable_shared_from_this<AgentLink> {
 public:
  using NextPart = launcher::NextPart;
  // Returns the pieces of the launcher's package.
  using PackageParts = std::function<net::Task<Result<NextPart>>()>;
  // Returns the environment of --stage-env for the Python of a host.
  using Environment =
      std::function<net::Task<Result<std::unique_ptr<EnvironmentFeed>>>(EnvironmentWanted)>;

  // `events` must outlive the returned pointer. Destroying the last copy of the pointer closes the link.
  static std::shared_ptr<AgentLink> open(net::asio::any_io_executor executor,
                                         std::unique_ptr<Duplex> duplex, AgentEvents& events);
  AgentLink(net::asio::any_io_executor executor, std::unique_ptr<Duplex> duplex,
            AgentEvents& events);
  AgentLink(const AgentLink&) = delete;

  // Waits for the agent's hello, sends the job to the agent, and waits until the host is prepared. The agent checks
  // everything that it can check before the start: for example the working directory, and the program on PATH. An error
  // is one sentence about the host. The caller limits the time by close(). `code`: called for the next piece, at the
  // speed of the host. `package`, `environment`: called once, if the host requests them.
  net::Task<Status> prepare(HostJob job, NextPart code = {}, PackageParts package = {},
                            Environment environment = {});
  // Returns the reason why the link is lost, or ok.
  const Status& loss() const { return loss_; }
  // From now until start(), on_lost reports a loss. Returns loss(), which reports an earlier loss.
  Status hold();
  // Returns the agent's answer to prepare(); empty before the answer.
  const Prepared& prepared() const { return prepared_; }
  // Returns the version of the software `name` on the host, from the answer to prepare(); or an empty text.
  std::string version_of(std::string_view name) const;
  // Returns host_identity() of the agent's host. Call after prepare(). Empty if /proc on the host lacks the identity.
  const std::string& machine() const { return machine_; }
  // Tests which addresses of rank 0's host the agent can reach. Takes a few seconds at most. The
  // result is empty if the link is lost; start() then reports the loss.
  net::Task<Reached> test_reachability(MasterCandidates candidates);
  // Starts the ranks, and waits for the agent's answer.
  net::Task<Status> start(StartOrder order);
  // Sends an order of protocol.h, which defines the agent's answers.
  void send(const Message& order);
  // For a host that the job treats as lost but that may only be unreachable: orders the agent to end its ranks at once,
  // without a grace period. The only later event is on_end: the agent confirms that the ranks have ended.
  void give_up(std::function<void()> on_end);
  void consumed(int rank, OutputStream stream, size_t size);
  // Lets the agent use this py-spy for queries with stacks; `parts` is called once if the host has no copy.
  void offer_stack_tool(const StackToolOffer& offer, PackageParts parts);
  const LeasePings& pings() const { return pings_; }
  // Requests that the agent suspends the lease, before SIGTSTP stops the launcher. Returns ok when the agent has
  // suspended it, or an error after two seconds. The link renews the lease three seconds after the call, or later as
  // soon as the launcher runs again.
  net::Task<Status> suspend();
  // After Finished: returns when the agent knows that its last message has arrived, and has ended the link. Otherwise
  // returns at once. The caller limits the time by close().
  net::Task<void> wait_for_end();
  // Drops the link. The agent then ends all ranks. No event follows.
  void close();

 private:
  // Ends the launcher if the diagram lacks this transition.
  void to(LinkState next);
  // Makes the transition that a message of the agent causes. Returns an error if the diagram lacks it.
  Status arrive(LinkState next);
  bool has_failed_start() const { return started_ && !started_->ok(); }
  // Whether on_lost reports a loss in this state.
  bool reports_loss() const { return state_ == LinkState::kHeld || state_ == LinkState::kRunning; }
  // Waits until is_there() returns true. Returns an error if the link is lost.
  template <typename Claim>
  net::Task<Status> wait_for(Claim is_there);
  // Waits until a message of the agent moves the link from this state to the next one of its preparation.
  net::Task<Status> leave(LinkState state);

  // Starts a coroutine of this object, and keeps the object alive until the coroutine returns.
  void spawn(net::Task<void> (AgentLink::*body)());
  net::Task<void> read_link();
  net::Task<void> write_link();
  net::Task<void> ping();
  net::Task<Status> send_environment(Environment environment);
  net::Task<Status> send_package(PackageParts package, std::string_view what);
  net::Task<void> send_stack_tool();
  // Sends files at the speed of the host: at most `window` bytes are in flight.
  net::Task<Status> stage(const NextPart& next, std::string_view what, uint64_t window);

  Status handle(const net::Frame& frame);
  // An error ends the link: the message is a Failed, or the link is in the wrong state for it.
  Status receive(AgentHello& hello);
  Status receive(Staged& staged);
  Status receive(EnvironmentWanted& wanted);
  Status receive(EnvironmentFilesWanted& wanted);
  Status receive(const PackageWanted&) { return arrive(LinkState::kPackage); }
  Status receive(Prepared& prepared);
  Status receive(ReachabilityTested& tested);
  Status receive(const Started& started);
  Status receive(const Suspended&);
  Status receive(const StackToolWanted&);
  Status receive(const Failed& failed);
  Status receive(const Finished& finished);
  Status receive(const Pong& answer);
  // For all other messages of an agent.
  Status receive(const AgentReport& report);
  void lose(Status why);
  void shut();

  net::asio::any_io_executor executor_;
  LinkState state_ = LinkState::kNew;
  FrameChannel frames_;
  AgentEvents* events_;
  net::Notification answered_;
  LeasePings pings_;
  HostJob job_;
  RankOutputs outputs_;
  const std::shared_ptr<StoreStreams> stores_;

  std::string machine_;
  Message wanted_;  // the agent's last request in the states environment and files
  Staged staged_;
  Prepared prepared_;
  std::optional<Reached> reached_;
  std::optional<Status> started_;  // the result of the start
  bool is_suspended_ = false;
  PackageParts stack_tool_;                // null after the agent has requested it
  std::unique_ptr<AgentEvents> given_up_;  // after give_up(), the receiver of the events
  double agents_silence_ = 0;  // how long this process was silent, as reported by the agent
  Status loss_;
};

}  // namespace hvd::launcher
