// A RemoteShell on this machine: any login shell, without an sshd.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "launcher/spawn/child_process.h"
#include "launcher/spawn/spawner.h"

namespace hvd::launcher {

class LocalShell : public RemoteShell {
 public:
  using Environment = std::vector<std::pair<std::string, std::string>>;
  // `shell` has a login shell's words; the function appends "-c" and the command.
  LocalShell(std::vector<std::string> shell, Environment environment)
      : shell_(std::move(shell)), environment_(std::move(environment)) {}

  net::Task<Result<std::unique_ptr<Duplex>>> run(std::string command) override {
    ++runs_;
    ChildCommand child;
    child.arguments = shell_;
    child.arguments.push_back("-c");
    child.arguments.push_back(std::move(command));
    child.environment = environment_;
    auto process = ChildProcess::start(co_await net::asio::this_coro::executor, child);
    if (!process.ok()) co_return process.status();
    co_return std::unique_ptr<Duplex>(std::move(*process));
  }
  int runs() const { return runs_; }

 private:
  std::vector<std::string> shell_;
  Environment environment_;
  int runs_ = 0;
};

}  // namespace hvd::launcher
