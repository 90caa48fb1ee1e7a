// Agents that join by themselves, as a spawner: the agent that connects to the join queue is a
// child of this test.
#include <doctest/doctest.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <thread>

#include "base/limits/descriptor_limit.h"
#include "base/text.h"
#include "conformance/spawner_conformance.h"
#include "launcher/agent/link/link.h"
#include "launcher/link/admission.h"
#include "launcher/link/join_queue.h"
#include "launcher/protocol/record.h"
#include "launcher/protocol/token_proof.h"
#include "net/blocking_stream.h"
#include "net/http.h"
#include "rendezvous/server/server.h"

namespace hvd::launcher {
namespace {

// Joins as `horovod-agent --join --insecure-plaintext` does, and executes the stand-in, which
// cannot decrypt.
[[noreturn]] void join_and_become(const std::string& agent, const std::string& where,
                                  const std::string& name, const Secret& token) {
  const auto link = call_home(where, to_bytes(plaintext_token(token).hex()), name,
                              Deadline::after_seconds(200), {}, false);
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
    wanted.is_plaintext = true;
    JoinQueue join_queue(loop_, std::move(server), token, joined_job(token, 0), std::move(wanted));
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
  JoinQueue join_queue(loop, std::move(server), Secret::random(), random_job(),
                       {.hosts = {}, .slots = 2});
  SpawnTarget target;
  target.host = "c0";
  const auto stream = run_on(loop, join_queue.spawn(target, [](SpawnStage) {}));
  REQUIRE_FALSE(stream.ok());
  CHECK(stream.error().message() == "it has not joined");
  const Status status = run_on(loop, join_queue.wait(0.05));
  CHECK(status.message().starts_with("only 0 of 2 slots joined within 0.05 s; "));
}

// Connects to the launcher, and reads status 101 and the challenge.
net::BlockingStream call_launcher(const net::Endpoint& where) {
  auto stream = net::BlockingStream::connect(std::vector{*net::numeric_address(where)},
                                             Deadline::after_seconds(200));
  REQUIRE(stream.ok());
  const std::string head = net::request_head(
      "GET", "/v1/agent", {{"Connection", "Upgrade"}, {"Upgrade", "horovod-agent"}}, 0);
  bool is_interrupted = false;
  REQUIRE(stream->write(as_bytes(head), {}, Deadline::after_seconds(200), is_interrupted).ok());
  const size_t size =
      net::response_head(101, {{"Connection", "Upgrade"}, {"Upgrade", "horovod-agent"}}, 0).size() +
      framed(Challenge{}).size();
  std::vector<std::byte> buffer(size);
  for (size_t seen = 0; seen < size;) {
    const auto read =
        stream->read_some(std::span(buffer).subspan(seen), Deadline::after_seconds(200));
    REQUIRE((read.ok() && *read > 0));
    seen += *read;
  }
  return std::move(*stream);
}

TEST_CASE("callers that prove nothing do not pile up") {
  constexpr size_t kMore = 8;
  raise_descriptor_limit();
  net::asio::io_context loop(1);
  const Secret token = Secret::random();
  auto server = std::make_unique<rendezvous::Server>(
      loop.get_executor(), rendezvous::ServerOptions{.secret = token, .size = 1});
  const auto bound = rendezvous::listen_at(*server, "127.0.0.1:0", "");
  REQUIRE(bound.ok());
  JoinQueue join_queue(loop, std::move(server), token, random_job(), {.hosts = {}, .slots = 1});
  const auto work = net::asio::make_work_guard(loop);
  std::thread thread([&] { loop.run(); });
  std::vector<net::BlockingStream> callers;
  for (size_t i = 0; i < JoinQueue::kMostUnproven + 1 + kMore; ++i) {
    callers.push_back(call_launcher(*bound));
  }
  for (size_t i = 0; i < kMore; ++i) {
    pollfd entry{callers[i].fd(), POLLIN, 0};
    CHECK(::poll(&entry, 1, 5000) == 1);  // half of the client's time limit
  }
  loop.stop();
  thread.join();
}

}  // namespace
}  // namespace hvd::launcher
