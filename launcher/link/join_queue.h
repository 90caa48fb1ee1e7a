// The queue of agents that join a job by themselves (horovod-agent --join), on hosts that the
// launcher cannot reach. An agent dials the launcher's rendezvous server, proves that it holds the
// token, and waits here until the job has the hosts that it needs. Lives on the launcher's loop.
#pragma once

#include <memory>
#include <set>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/secrets/secret.h"
#include "launcher/link/admission.h"
#include "launcher/plan/hosts.h"
#include "launcher/spawn/spawner.h"
#include "net/asio.h"
#include "rendezvous/server/server.h"

namespace hvd::launcher {

class JoinQueue : public Spawner {
 public:
  // The hosts of these names; without names, any hosts that give `slots` slots together.
  struct Wanted {
    std::vector<Host> hosts;
    int slots = 0;
    std::string join_command = {};  // by which a host joins, as a user types it
  };

  // `server` listens already; its secret is the token.
  JoinQueue(net::asio::io_context& loop, std::unique_ptr<rendezvous::Server> server, Secret token,
            Wanted wanted);
  ~JoinQueue() override;

  // Returns when all wanted hosts have joined. Later agents are refused.
  net::Task<Status> wait(double seconds);
  // The hosts that have joined, in the order of arrival, with the slots that they give.
  std::vector<Host> hosts() const;
  // "hosts a and b", "hosts that give 8 slots".
  std::string describe_wanted() const;

  net::asio::io_context& loop() { return loop_; }
  const Secret& secret() const { return token_; }
  std::unique_ptr<rendezvous::Server> take_server() { return std::move(server_); }

  // The agent that joined under the target's name.
  net::Task<Result<std::unique_ptr<Duplex>>> spawn(
      const SpawnTarget& target, std::function<void(SpawnStage)> on_stage) override;

 private:
  struct Joined {
    Host host;
    std::unique_ptr<Duplex> duplex;
    Clock::time_point since = Clock::now();
  };

  // Cancels the task when an honest agent would long have done its part.
  void spawn_bounded(net::Task<void> task);
  net::Task<void> receive(net::StreamSocket socket);
  void take(AdmittedAgent agent);
  // Ends an agent, with a sentence for its user.
  void dismiss(std::unique_ptr<Duplex> duplex, const std::string& why);
  // The view of others (/status) follows.
  void on_change();
  net::Task<void> ping_all();
  bool has(const std::string& name) const;
  const Host* find_wanted(const std::string& name) const;
  bool is_complete() const;
  std::vector<Host> missing_hosts() const;
  std::string describe_missing() const;
  std::string advice() const;

  net::asio::io_context& loop_;
  std::unique_ptr<rendezvous::Server> server_;
  const Secret token_;
  const Wanted wanted_;
  net::asio::steady_timer changed_;  // cancelled when a host joins
  std::vector<std::shared_ptr<Joined>> joined_;
  std::set<std::string> strangers_;  // agents whose names are not awaited
};

}  // namespace hvd::launcher
