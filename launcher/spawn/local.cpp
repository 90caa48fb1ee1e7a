#include "launcher/spawn/local.h"

#include "launcher/spawn/child_process.h"

namespace hvd::launcher {

net::Task<Result<std::unique_ptr<Duplex>>> LocalSpawner::spawn(
    const SpawnTarget& target, std::function<void(SpawnStage)> on_stage) {
  const auto executor = co_await net::asio::this_coro::executor;
  on_stage(SpawnStage::kStartAgent);
  ChildCommand command;
  command.arguments = {target.agent_path};
  Result<std::unique_ptr<ChildProcess>> child = ChildProcess::start(executor, command);
  if (!child.ok()) co_return child.status();
  on_stage(SpawnStage::kReady);
  co_return std::unique_ptr<Duplex>(std::move(*child));
}

}  // namespace hvd::launcher
