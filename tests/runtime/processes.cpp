#include "runtime/processes.h"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <spawn.h>
#include <unistd.h>

#include "base/settings.h"
#include "base/text.h"

namespace hvd::test {

namespace asio = net::asio;

Rendezvous::Rendezvous(int size)
    : secret_(Secret::random()), server_(loop_.get_executor(), {secret_, size}) {
  auto endpoint = net::parse_endpoint("tcp:127.0.0.1:0");
  REQUIRE(endpoint.ok());
  REQUIRE(server_.listen(*endpoint).ok());
  thread_ = std::thread([this] { loop_.run(); });
}

Rendezvous::~Rendezvous() {
  asio::post(loop_, [this] { server_.close(); });
  work_.reset();
  thread_.join();
}

std::vector<std::string> Rendezvous::variables() const {
  return {cat("HOROVOD_STORE=tcp:127.0.0.1:", server_.port()),
          cat("HOROVOD_JOB_SECRET=", secret_.hex()), "HOROVOD_JOB_ID=00000000000000aa",
          "HOROVOD_START_TIMEOUT=30"};
}

namespace {

std::vector<char*> pointers_to(std::vector<std::string>* texts) {
  std::vector<char*> pointers;
  for (std::string& text : *texts) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

}  // namespace

Worker spawn(const std::string& program, const std::vector<std::string>& arguments,
             const std::vector<std::string>& variables) {
  std::vector<std::string> environment_texts = variables;
  for (const auto& [name, value] : environment()) {
    if (!name.starts_with("HOROVOD_")) environment_texts.push_back(name + "=" + value);
  }
  std::vector<std::string> words = {program};
  words.insert(words.end(), arguments.begin(), arguments.end());

  int ends[2];
  REQUIRE(::pipe2(ends, O_CLOEXEC) == 0);
  Worker worker;
  worker.output.reset(ends[0]);
  const UniqueFd write_end(ends[1]);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, ends[1], 1);
  // Close the sockets of this process's server and its inherited descriptors in the child.
  posix_spawn_file_actions_addclosefrom_np(&actions, STDERR_FILENO + 1);
  REQUIRE(::posix_spawn(&worker.pid, program.c_str(), &actions, nullptr, pointers_to(&words).data(),
                        pointers_to(&environment_texts).data()) == 0);
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

std::vector<Worker> start(int size, const Launch& launch, const Rendezvous& rendezvous) {
  std::vector<Worker> workers;
  for (int rank = 0; rank < size; ++rank) {
    std::vector<std::string> variables = rendezvous.variables();
    if (launch.with_ranks) {
      variables.push_back(cat("HOROVOD_RANK=", rank));
      variables.push_back(cat("HOROVOD_SIZE=", size));
    }
    if (!launch.machines.empty()) {
      variables.push_back(
          cat("HOROVOD_TEST_MACHINE=/", launch.machines[static_cast<size_t>(rank)]));
      variables.push_back("HOROVOD_TEST_LOOPBACK=1");
    }
    workers.push_back(spawn(launch.program, launch.arguments, variables));
  }
  return workers;
}

std::vector<Outcome> run(int size, const Launch& launch) {
  const Rendezvous rendezvous(size);
  std::vector<Outcome> outcomes;
  for (Worker& worker : start(size, launch, rendezvous)) {
    outcomes.push_back(join(std::move(worker)));
  }
  return outcomes;
}

}  // namespace hvd::test
