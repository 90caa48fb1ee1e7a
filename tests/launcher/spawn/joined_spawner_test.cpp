// Agents that join by themselves, as a spawner: the agent that dials the join queue is a child of
// this test.
#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/text.h"
#include "conformance/spawner_conformance.h"
#include "launcher/agent/loop/link.h"
#include "launcher/link/join_queue.h"
#include "rendezvous/server/listening.h"

namespace hvd::launcher {
namespace {

// Joins as `horovod-agent --join` does, and becomes the stand-in.
[[noreturn]] void join_and_become(const std::string& agent, const std::string& where,
                                  const std::string& name, const Secret& token) {
  const auto link =
      call_home(where, to_bytes(token.hex()), name, Deadline::after_seconds(30), Door::kServer);
  if (!link.ok()) ::_exit(1);
  for (const int fd : {link->input.get(), link->output.get()}) {
    ::fcntl(fd, F_SETFL, ::fcntl(fd, F_GETFL) & ~O_NONBLOCK);
  }
  ::dup2(link->input.get(), STDIN_FILENO);
  ::dup2(link->output.get(), STDOUT_FILENO);
  ::execl(agent.c_str(), agent.c_str(), nullptr);
  ::_exit(1);
}

// A job's join queue, which closes when the host has joined, as in a launcher.
class Joining : public Spawner {
 public:
  explicit Joining(net::asio::io_context& loop) : loop_(loop) {}
  ~Joining() override {
    for (const pid_t pid : children_) ::waitpid(pid, nullptr, 0);
  }
  net::Task<Result<std::unique_ptr<Duplex>>> spawn(
      const SpawnTarget& target, std::function<void(SpawnStage)> on_stage) override {
    const Secret token = Secret::random();
    rendezvous::ServerOptions options{.secret = token, .size = 1};
    auto server = std::make_unique<rendezvous::Server>(loop_.get_executor(), std::move(options));
    const auto bound = rendezvous::listen_at(*server, "127.0.0.1:0", "");
    if (!bound.ok()) co_return bound.status();
    Host host;
    host.name = target.host;
    host.slots = 1;
    JoinQueue::Wanted wanted;
    wanted.hosts.push_back(host);
    JoinQueue join_queue(loop_, std::move(server), token, std::move(wanted));
    const std::string where = net::to_string(*bound), name = cat(target.host, ":1");
    const pid_t pid = ::fork();
    if (pid == 0) join_and_become(target.agent_path, where, name, token);
    children_.push_back(pid);
    const Status status = co_await join_queue.wait(30);
    if (!status.ok()) co_return status;
    co_return co_await join_queue.spawn(target, std::move(on_stage));
  }

 private:
  net::asio::io_context& loop_;
  std::vector<pid_t> children_;
};

TEST_CASE("agents that join by themselves do what a spawner owes") {
  net::asio::io_context loop(1);
  Joining spawner(loop);
  SpawnTarget target;
  target.host = "c0";
  check_spawner(loop, spawner, target, {.starts_agents = false});
}

TEST_CASE("a host that joined is taken once, and one that did not is none") {
  net::asio::io_context loop(1);
  auto server = std::make_unique<rendezvous::Server>(
      loop.get_executor(), rendezvous::ServerOptions{.secret = Secret::random(), .size = 1});
  JoinQueue join_queue(loop, std::move(server), Secret::random(), {.hosts = {}, .slots = 2});
  SpawnTarget target;
  target.host = "c0";
  const auto stream = run_on(loop, join_queue.spawn(target, [](SpawnStage) {}));
  REQUIRE_FALSE(stream.ok());
  CHECK(stream.error().message() == "it has not joined");
  const Status status = run_on(loop, join_queue.wait(0.05));
  CHECK(status.message().starts_with("only 0 of 2 slots joined within 0.05 s; "));
}

}  // namespace
}  // namespace hvd::launcher
