// The queue of agents that connect to the launcher (horovod-agent --join), on hosts that the launcher cannot reach. An
// agent connects to the launcher's rendezvous server, proves that it holds the token, and waits here until the job has
// enough hosts. Owns the server and the waiting connections. `horovodrun --listen` creates and owns the queue, and
// waits for hosts; HostStartup uses the queue as a spawner. Lives on the launcher's loop.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/secrets/secret.h"
#include "launcher/link/admission.h"
#include "launcher/plan/hosts.h"
#include "launcher/plan/worker_env.h"
#include "launcher/spawn/spawner.h"
#include "net/asio.h"
#include "rendezvous/server/server.h"

namespace hvd::launcher {

class JoinQueue : public Spawner {
 public:
  // Maximum number of connections whose agents have not yet proved that they hold the token, in addition to one for
  // each wanted host. Limited to a quarter of the file descriptors.
  static constexpr size_t kMostUnproven = 512;

  // Hosts with these names; without names, any hosts that have `slots` slots in total.
  struct Wanted {
    std::vector<Host> hosts;
    int slots = 0;
    std::string join_command = {};  // the command that a user types on a host to join
    bool is_plaintext = false;      // hosts join without TLS
    bool stays_open = false;        // an elastic job: more hosts may join after the wanted hosts
  };

  // `server` listens already; its secret is the secret of `identity`. Agents prove that they hold the token.
  JoinQueue(net::asio::io_context& loop, std::unique_ptr<rendezvous::Server> server,
            const Secret& token, JobIdentity identity, Wanted wanted);
  ~JoinQueue() override;

  // Waits until all wanted hosts have joined, or returns an error after `seconds`. Later agents are refused. If the
  // queue stays open, they wait until spawn() takes them or close() ends them.
  net::Task<Status> wait(double seconds);
  // `changed` is called when an agent has joined, or, after wait(), has gone.
  void on_hosts(std::function<void()> changed) { notify_ = std::move(changed); }
  // Forgets the agent that spawn() took under this name. Call when that agent has ended or will end.
  void remove(const std::string& name);
  // Ends the waiting agents.
  void close();
  // Returns the hosts that have joined, in the order of arrival, with the slots that they provide.
  std::vector<Host> hosts() const;
  // Returns "hosts a and b", or "hosts that provide 8 slots".
  std::string describe_wanted() const;

  // Sets the function that continues the link of an agent that has connected again. On an error, the function
  // leaves the connection to the queue. The queue may call the function until the server closes.
  using Resumer =
      std::function<net::Task<Status>(std::unique_ptr<Duplex>&, Resume offer, Nonce challenge)>;
  void on_return(Resumer resume) { resume_ = std::move(resume); }

  // Closes the queue, and runs the loop until all waiting agents were notified, but at most two seconds.
  void end_waiting();

  net::asio::io_context& loop() { return loop_; }
  const JobIdentity& identity() const { return identity_; }
  std::unique_ptr<rendezvous::Server> take_server() { return std::move(server_); }

  // Returns the connection of the agent that joined under the target's name.
  net::Task<Result<std::unique_ptr<Duplex>>> spawn(
      const SpawnTarget& target, std::function<void(SpawnStage)> on_stage) override;

 private:
  struct Joined {
    Host host;
    std::unique_ptr<Duplex> duplex;  // null: spawn() has taken it
    Clock::time_point since = Clock::now();
    bool is_pinged = false;      // a write of a ping is in progress
    std::string rejection = {};  // reason to end the agent after the ping
  };

  // An agent that is proving that it has the token, or that is being rejected.
  struct Caller;

  // Runs the task. Cancels it when its agent exceeds the time limit, or when too many other agents have connected after
  // it.
  void spawn_bounded(net::Task<void> task);
  net::Task<void> receive(net::AcceptedSocket socket);
  void take(AdmittedAgent agent);
  net::Task<void> take(ReturnedAgent agent);
  // Calls reject() when no ping is being written.
  void reject_after_ping(Joined& joined, const std::string& why);
  // Ends an agent. The agent prints `why` for its user.
  void reject(std::unique_ptr<Duplex> duplex, const std::string& why);
  // Updates /status of the server, until take_server() is called.
  void on_change();
  net::Task<void> ping_all();
  net::Task<void> ping_until_closed();
  bool has(const std::string& name) const;
  const Host* find_wanted(const std::string& name) const;
  bool is_complete() const;
  std::vector<Host> missing_hosts() const;
  std::string describe_missing() const;
  std::string advice() const;

  net::asio::io_context& loop_;
  std::unique_ptr<rendezvous::Server> server_;
  const Secret token_;  // without TLS: its plaintext_token()
  const JobIdentity identity_;
  const Wanted wanted_;
  net::asio::steady_timer changed_;  // cancelled when a host joins
  net::asio::steady_timer pinged_;   // cancelled when a host has been pinged
  std::vector<std::shared_ptr<Joined>> joined_;
  std::set<std::string> strangers_;            // refused agents: their names are not in wanted_
  std::deque<std::weak_ptr<Caller>> callers_;  // in order of arrival
  RefusedCallers refused_;
  Resumer resume_;
  std::function<void()> notify_;  // the callback of on_hosts()
  bool is_closed_ = false;
};

}  // namespace hvd::launcher
