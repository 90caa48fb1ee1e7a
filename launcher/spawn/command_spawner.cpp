#include "launcher/spawn/command_spawner.h"

#include "base/log/log.h"
#include "base/settings.h"
#include "base/text.h"
#include "launcher/spawn/child_process.h"

namespace hvd::launcher {
namespace {

// The shell that the user's command starts. "/bin/sh" is a single word, so it works both for a
// program that executes its arguments and for a program that joins its arguments for a shell. The shell reads
// its command as one line from standard input. The spawner sends nothing else until that command has
// replied.
class CommandShell : public RemoteShell {
 public:
  CommandShell(std::string line, const SpawnTarget& target)
      : line_(std::move(line)), may_ask_(target.may_ask), is_step_(target.is_step) {}

  net::Task<Result<std::unique_ptr<Duplex>>> run(std::string command) override {
    ChildCommand child;
    child.arguments = {"/bin/sh", "-c", line_};
    child.end = ChildEnd::kTerminate;
    // The child has no terminal, so ssh can only ask through SSH_ASKPASS.
    if (!may_ask_) child.environment = {{"SSH_ASKPASS_REQUIRE", "never"}};
    const auto executor = co_await net::asio::this_coro::executor;
    Result<std::unique_ptr<ChildProcess>> process = ChildProcess::start(executor, child);
    if (!process.ok()) co_return process.status();
    // A write to an ended program fails; the caller reports the program's last words instead.
    static_cast<void>(co_await (*process)->write(as_bytes(command + "\n")));
    co_return std::unique_ptr<Duplex>(std::move(*process));
  }
  // A step's command is internal and long: only --verbose shows it.
  std::string who_ended() const override { return is_step_ ? "srun" : cat("'", line_, "'"); }

 private:
  std::string line_;
  bool may_ask_;
  bool is_step_;
};

bool replace_all(std::string& text, std::string_view what, std::string_view by) {
  bool is_found = false;
  for (size_t at = 0; (at = text.find(what, at)) != std::string::npos; at += by.size()) {
    text.replace(at, what.size(), by);
    is_found = true;
  }
  return is_found;
}

}  // namespace

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

std::string command_line(std::string command, const SpawnTarget& target) {
  const bool names_user = replace_all(command, "{user}", shell_quote(target.user));
  if (target.port != 0) replace_all(command, "{port}", cat(target.port));
  std::string host = target.host;
  if (!names_user && !target.user.empty()) host = cat(target.user, "@", host);
  if (!replace_all(command, "{host}", shell_quote(host))) command += " " + shell_quote(host);
  return command + " /bin/sh";
}

net::Task<Result<std::unique_ptr<Duplex>>> CommandSpawner::spawn(
    const SpawnTarget& target, std::function<void(SpawnStage)> on_stage) {
  auto& agent = agents_[target.agent_path];
  if (!agent) {
    auto loaded = AgentFile::load(target.agent_path);
    if (!loaded.ok()) co_return loaded.status();
    agent = *loaded;
  }
  on_stage(SpawnStage::kConnect);
  if (target.is_step) log::info(cat("host ", target.host, ": by ", target.command));
  CommandShell shell(command_line(target.command, target), target);
  co_return co_await start_agent(shell, agent, target.agent_dir, on_stage);
}

}  // namespace hvd::launcher
