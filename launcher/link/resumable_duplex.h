// The byte stream to one agent, which survives the loss of a connection: another connection continues the stream. Owns
// the connections and the session's key. The first bytes to the agent begin the session. SessionSpawner creates the
// stream, and AgentLink owns the stream. Lives on the launcher's loop.
//
//   carried --- the connection breaks ------> waiting --- survive() seconds, or refused ---> failed: I/O returns why
//      |  ^                                      |
//      |  '--- resume(): over another connection-'   which respawn or the agent opens
//      |
//      '--- on_silence(): respawn opens another connection. If only the agent can connect, the current connection is
//           closed, so that the agent notices. The first connection on which the agent answers stays.
//
// ResumableStream numbers the bytes of both directions, and keeps unconfirmed bytes: a new connection begins with the
// numbers that each end has received. Invariants: no order of breaks loses or duplicates a byte. At most one connection
// carries the stream: a task that awaited an event on an older connection first compares it with `connection_`, or its
// number with `losses_` and `offers_`. After close() or a failure no attempt continues. While the network may be cut
// off, the stream has no time limit of its own: the limit of LeasePings for unanswered pings ends it.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>

#include "base/result.h"
#include "launcher/protocol/protocol.h"
#include "launcher/spawn/spawner.h"
#include "net/asio.h"

namespace hvd::launcher {

// The source of another connection to the same agent.
struct Reconnection {
  std::string host = {};  // for log messages
  // Runs the command that started the agent once more. `is_silent`: the current connection is silent, and other
  // connections over the same ssh connection may be silent too. Null: this launcher cannot open another connection.
  std::function<net::Task<Result<std::unique_ptr<Duplex>>>(bool is_silent)> respawn = {};
  // The agent connects to the launcher: resume() receives the connection.
  bool is_by_agent = false;
  // How long an agent waits for another connection, unless it connects by itself.
  double agent_wait_seconds = 0;
};

class ResumableDuplex : public Duplex {
 public:
  // `first`: the connection to a newly started agent.
  ResumableDuplex(net::asio::any_io_executor executor, std::unique_ptr<Duplex> first,
                  Reconnection reconnection = {});
  ~ResumableDuplex() override;

  net::Task<Result<size_t>> read_some(std::span<std::byte> buffer) override;
  net::Task<Status> write(ByteView bytes) override;
  void survive(double seconds, double silence_seconds) override;
  void on_silence(double seconds) override;
  void close() override;
  std::string last_words() const override;

  // The running session, which outlives this object while the session takes over a connection.
  class Running;
  const SessionId& session() const;
  std::weak_ptr<Running> running() const { return running_; }
  // Continues the stream over `connection`, on which the agent of this session offers to resume. Closes the older
  // connection. After an error, the caller keeps `connection`.
  static net::Task<Status> resume(std::shared_ptr<Running> running,
                                  std::unique_ptr<Duplex>& connection, Resume offer,
                                  Nonce of_launcher);

 private:
  const std::shared_ptr<Running> running_;
};

// A spawner whose streams survive the loss of their connection. Begins a session on the stream of another spawner, and
// finds the session when an agent offers to resume. Owns no stream. HostStartup owns this object. Lives on the
// launcher's loop.
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
