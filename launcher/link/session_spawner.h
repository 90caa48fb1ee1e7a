// A spawner whose streams survive the loss of their connection. Begins a session on the stream of another spawner, and
// finds the session when an agent offers to resume. Owns no stream. HostStartup owns this object. Lives on the
// launcher's loop.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "launcher/link/resumable_duplex.h"
#include "launcher/spawn/spawner.h"

namespace hvd::launcher {

class SessionSpawner : public Spawner {
 public:
  enum class Return {
    kNever,      // a local agent: its pipes do not break
    kBySpawner,  // by the same command again
    kByAgent,    // the agent connects again
  };

  // `inner` outlives this object and its streams.
  SessionSpawner(Spawner& inner, Return how) : inner_(inner), how_(how) {}

  net::Task<Result<std::unique_ptr<Duplex>>> spawn(
      const SpawnTarget& target, std::function<void(SpawnStage)> on_stage) override;
  std::string try_command(const SpawnTarget& target) const override {
    return inner_.try_command(target);
  }

  // Continues the session of an agent that has connected again. After an error, the caller keeps
  // `connection`.
  net::Task<Status> resume(std::unique_ptr<Duplex>& connection, Resume offer, Nonce of_launcher);

 private:
  Spawner& inner_;
  const Return how_;
  // Sessions that an agent can continue; used only with kByAgent.
  std::map<SessionId, std::weak_ptr<ResumableDuplex::Running>> sessions_;
};

}  // namespace hvd::launcher
