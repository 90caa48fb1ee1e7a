#include "launcher/link/session_spawner.h"

#include <utility>

namespace hvd::launcher {
namespace {

// Seconds for which an agent waits after the loss of its launcher, before the agent ends its ranks.
constexpr double kAgentWaits = 5;

}  // namespace

net::Task<Result<std::unique_ptr<Duplex>>> SessionSpawner::spawn(
    const SpawnTarget& target, std::function<void(SpawnStage)> on_stage) {
  auto connection = co_await inner_.spawn(target, std::move(on_stage));
  if (!connection.ok()) co_return connection.status();
  Reconnection reconnection{.host = target.host};
  reconnection.is_by_agent = how_ == Return::kByAgent;
  if (how_ == Return::kBySpawner) {
    reconnection.agent_wait_seconds = kAgentWaits;
    reconnection.respawn = [this, again = target](bool is_silent) mutable {
      again.may_ask = false;
      again.may_share = !is_silent;
      return inner_.spawn(again, [](SpawnStage) {});
    };
  }
  const auto executor = co_await net::asio::this_coro::executor;
  auto stream =
      std::make_unique<ResumableDuplex>(executor, *std::move(connection), std::move(reconnection));
  if (how_ == Return::kByAgent) {
    // Hosts of an elastic job may join and fail many times, so drop expired sessions.
    std::erase_if(sessions_, [](const auto& session) { return session.second.expired(); });
    sessions_[stream->session()] = stream->running();
  }
  co_return Result<std::unique_ptr<Duplex>>(std::move(stream));
}

net::Task<Status> SessionSpawner::resume(std::unique_ptr<Duplex>& connection, Resume offer,
                                         Nonce of_launcher) {
  const auto found = sessions_.find(offer.session);
  const auto running = found == sessions_.end() ? nullptr : found->second.lock();
  if (!running) {
    co_return failed_precondition("it runs no job with this host: the job of that agent has ended");
  }
  co_return co_await ResumableDuplex::resume(running, connection, offer, of_launcher);
}

}  // namespace hvd::launcher
