// Ranks as real processes of a worker program that get only their environment, and their rendezvous
// server.
#pragma once

#include <sys/types.h>
#include <sys/wait.h>

#include <string>
#include <thread>
#include <vector>

#include "base/unique_fd.h"
#include "rendezvous/server/server.h"

namespace hvd::test {

// A server whose loop runs on its own thread.
class Rendezvous {
 public:
  explicit Rendezvous(int size);
  ~Rendezvous();
  // Returns the environment variables with which a worker reaches this server.
  std::vector<std::string> variables() const;

 private:
  net::asio::io_context loop_;
  net::asio::executor_work_guard<net::asio::io_context::executor_type> work_{loop_.get_executor()};
  Secret secret_;
  rendezvous::Server server_;
  std::thread thread_;
};

struct Worker {
  pid_t pid = -1;
  UniqueFd output;  // standard output of the process
};

struct Outcome {
  int status = 0;  // status of waitpid
  std::string output;
  int code() const { return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status); }
};

// Returns this process's environment without HOROVOD_*, plus `variables`.
Worker spawn(const std::string& program, const std::vector<std::string>& arguments,
             const std::vector<std::string>& variables);
// Reads the whole output and waits for the end of the process.
Outcome join(Worker worker);

struct Launch {
  std::string program;
  std::vector<std::string> arguments;
  bool with_ranks = true;  // put ranks into the environment; otherwise the rendezvous assigns them
  // Simulated machine number of each rank; empty: all ranks share this machine.
  std::vector<int> machines;
};
std::vector<Worker> start(int size, const Launch& launch, const Rendezvous& rendezvous);
std::vector<Outcome> run(int size, const Launch& launch);

}  // namespace hvd::test
