#include "launcher/spawn/local.h"

#include "base/settings.h"
#include "launcher/spawn/child_process.h"

namespace hvd::launcher {

net::Task<Result<std::unique_ptr<Duplex>>> LocalSpawner::spawn(
    const SpawnTarget& target, std::function<void(SpawnStage)> on_stage) {
  const auto executor = co_await net::asio::this_coro::executor;
  on_stage(SpawnStage::kStartAgent);
  ChildCommand command;
  command.arguments = {target.agent_path};
  if (is_bare_) {
    command.inherits_environment = false;
    for (const char* name :
         {"HOME", "USER", "LOGNAME", "SHELL", "PATH", "LANG", "TERM", "TMPDIR"}) {
      if (auto value = environment_variable(name)) command.environment.emplace_back(name, *value);
    }
  }
  Result<std::unique_ptr<ChildProcess>> child = ChildProcess::start(executor, command);
  if (!child.ok()) co_return child.status();
  on_stage(SpawnStage::kReady);
  co_return std::unique_ptr<Duplex>(std::move(*child));
}

}  // namespace hvd::launcher
