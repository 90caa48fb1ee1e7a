// Ranks as real processes, each with nothing but its environment, over a rendezvous server.
#include <doctest/doctest.h>

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <thread>

#include "base/settings.h"
#include "base/text.h"
#include "base/unique_fd.h"
#include "rendezvous/server.h"

namespace {

using hvd::cat;
namespace asio = hvd::net::asio;

struct Outcome {
  int status = 0;  // of waitpid
  std::string output;
  int code() const { return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status); }
};

// A server with its loop on a thread of its own.
class Rendezvous {
 public:
  explicit Rendezvous(int size)
      : secret_(hvd::Secret::random()), server_(loop_.get_executor(), {secret_, size}) {
    auto endpoint = hvd::net::parse_endpoint("tcp:127.0.0.1:0");
    REQUIRE(endpoint.ok());
    REQUIRE(server_.listen(*endpoint).ok());
    thread_ = std::thread([this] { loop_.run(); });
  }
  ~Rendezvous() {
    asio::post(loop_, [this] { server_.close(); });
    work_.reset();
    thread_.join();
  }
  std::vector<std::string> variables() const {
    return {cat("HOROVOD_STORE=tcp:127.0.0.1:", server_.port()),
            cat("HOROVOD_JOB_SECRET=", secret_.hex()), "HOROVOD_JOB_ID=00000000000000aa",
            "HOROVOD_START_TIMEOUT=30"};
  }

 private:
  asio::io_context loop_;
  asio::executor_work_guard<asio::io_context::executor_type> work_{loop_.get_executor()};
  hvd::Secret secret_;
  hvd::rendezvous::Server server_;
  std::thread thread_;
};

struct Worker {
  pid_t pid = -1;
  hvd::UniqueFd output;
};

Worker spawn(const std::string& what, const std::vector<std::string>& variables) {
  std::vector<std::string> environment = variables;
  for (const auto& [name, value] : hvd::environment()) {
    if (!name.starts_with("HOROVOD_")) environment.push_back(name + "=" + value);
  }
  std::vector<char*> pointers;
  for (std::string& variable : environment) pointers.push_back(variable.data());
  pointers.push_back(nullptr);
  std::string program = HVD_TEST_WORKER;
  std::string argument = what;
  char* const arguments[] = {program.data(), argument.data(), nullptr};

  int ends[2];
  REQUIRE(::pipe2(ends, O_CLOEXEC) == 0);
  Worker worker;
  worker.output.reset(ends[0]);
  const hvd::UniqueFd write_end(ends[1]);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, ends[1], 1);
  REQUIRE(::posix_spawn(&worker.pid, program.c_str(), &actions, nullptr, arguments,
                        pointers.data()) == 0);
  posix_spawn_file_actions_destroy(&actions);
  return worker;
}

Outcome join(Worker worker) {
  Outcome outcome;
  char buffer[1024];
  for (ssize_t n; (n = ::read(worker.output.get(), buffer, sizeof buffer)) > 0;) {
    outcome.output.append(buffer, static_cast<size_t>(n));
  }
  REQUIRE(::waitpid(worker.pid, &outcome.status, 0) == worker.pid);
  return outcome;
}

std::vector<Outcome> run(int size, const std::string& what, bool with_ranks) {
  Rendezvous rendezvous(size);
  std::vector<Worker> workers;
  for (int rank = 0; rank < size; ++rank) {
    std::vector<std::string> variables = rendezvous.variables();
    if (with_ranks) {
      variables.push_back(cat("HOROVOD_RANK=", rank));
      variables.push_back(cat("HOROVOD_SIZE=", size));
    }
    workers.push_back(spawn(what, variables));
  }
  std::vector<Outcome> outcomes;
  for (Worker& worker : workers) outcomes.push_back(join(std::move(worker)));
  return outcomes;
}

}  // namespace

TEST_CASE("processes with ranks in their environment work together") {
  const auto outcomes = run(3, "sum", true);
  for (int rank = 0; rank < 3; ++rank) {
    CHECK(outcomes[static_cast<size_t>(rank)].code() == 0);
    CHECK(outcomes[static_cast<size_t>(rank)].output ==
          cat(rank, " of 3, ", rank, " of 3 here\n"));
  }
}

TEST_CASE("processes without ranks get them from the rendezvous") {
  std::vector<std::string> outputs;
  for (const Outcome& outcome : run(3, "sum", false)) {
    CHECK(outcome.code() == 0);
    outputs.push_back(outcome.output);
  }
  std::sort(outputs.begin(), outputs.end());
  CHECK(outputs == std::vector<std::string>{"0 of 3, 0 of 3 here\n", "1 of 3, 1 of 3 here\n",
                                            "2 of 3, 2 of 3 here\n"});
}

TEST_CASE("processes start and end the runtime again and again") {
  for (const Outcome& outcome : run(2, "again-and-again", true)) CHECK(outcome.code() == 0);
}

TEST_CASE("a process that exits without shutdown does not crash") {
  for (const Outcome& outcome : run(2, "sum-and-exit", true)) CHECK(outcome.code() == 0);
}

TEST_CASE("a rank that is killed or exits fails the others with one cause that names it") {
  for (const char* what : {"lose-by-exit", "lose-by-signal"}) {
    CAPTURE(what);
    const auto outcomes = run(3, what, true);
    CHECK(outcomes[1].code() == (std::string(what) == "lose-by-exit" ? 3 : 128 + SIGKILL));
    for (const int rank : {0, 2}) {
      const Outcome& outcome = outcomes[static_cast<size_t>(rank)];
      INFO(outcome.output);
      CHECK(outcome.code() == 7);
      CHECK(outcome.output.find("rank 1") != std::string::npos);
    }
    CHECK(outcomes[0].output == outcomes[2].output);
  }
}

TEST_CASE("a forked child is told that it cannot use the runtime, and the parent goes on") {
  for (const Outcome& outcome : run(2, "fork", true)) CHECK(outcome.code() == 0);
}

TEST_CASE("a world of one needs no rendezvous") {
  const Outcome outcome = join(spawn("sum", {}));
  CHECK(outcome.code() == 0);
  CHECK(outcome.output == "0 of 1, 0 of 1 here\n");
}
