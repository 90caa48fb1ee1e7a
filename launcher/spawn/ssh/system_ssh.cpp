#include "launcher/spawn/ssh/system_ssh.h"

#include "launcher/spawn/child_process.h"

namespace hvd::launcher {

std::vector<std::string> system_ssh_command(const SshLogin& login, std::string command) {
  std::vector<std::string> arguments = {
      "ssh", "-T", "-x", "-o", "BatchMode=yes", "-o", "RemoteCommand=none", "-o", "LogLevel=ERROR"};
  const auto add = [&](std::initializer_list<std::string> words) {
    arguments.insert(arguments.end(), words);
  };
  const SshSettings& settings = login.settings;
  if (settings.strict_host_key_checking == "ask" && !settings.asks_about_new_keys) {
    add({"-o", "StrictHostKeyChecking=accept-new"});
  }
  for (const std::string& flag : ssh_flags(login.target, login.user)) arguments.push_back(flag);
  add({"--", login.target.host, std::move(command)});
  return arguments;
}

net::Task<Result<std::unique_ptr<Duplex>>> SystemSsh::run(std::string command) {
  ChildCommand child;
  child.arguments = system_ssh_command(login_, std::move(command));
  child.end = ChildEnd::kTerminate;
  const auto executor = co_await net::asio::this_coro::executor;
  Result<std::unique_ptr<ChildProcess>> process = ChildProcess::start(executor, child);
  if (!process.ok()) co_return process.status();
  co_return std::unique_ptr<Duplex>(std::move(*process));
}

}  // namespace hvd::launcher
