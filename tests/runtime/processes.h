// Ranks as real processes of a worker program, each with nothing but its environment, and the
// rendezvous server where they meet.
#pragma once

#include <sys/types.h>
#include <sys/wait.h>

#include <string>
#include <thread>
#include <vector>

#include "base/unique_fd.h"
#include "rendezvous/server/server.h"

namespace hvd::test {

// A server with its loop on a thread of its own.
class Rendezvous {
 public:
  explicit Rendezvous(int size);
  ~Rendezvous();
  // The environment variables with which a worker reaches this server.
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
  UniqueFd output;  // its standard output
};

struct Outcome {
  int status = 0;  // status from waitpid
  std::string output;
  int code() const { return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status); }
};

// The environment of this process without HOROVOD_*, and `variables`.
Worker spawn(const std::string& program, const std::vector<std::string>& arguments,
             const std::vector<std::string>& variables);
// Reads to the end of its output, and waits for its end.
Outcome join(Worker worker);

struct Launch {
  std::string program;
  std::vector<std::string> arguments;
  bool with_ranks = true;  // in the environment; else the rendezvous gives them
  // Ranks that are to believe in a machine of their own, by number; empty: all share this one.
  std::vector<int> machines;
};
std::vector<Worker> start(int size, const Launch& launch, const Rendezvous& rendezvous);
std::vector<Outcome> run(int size, const Launch& launch);

}  // namespace hvd::test
