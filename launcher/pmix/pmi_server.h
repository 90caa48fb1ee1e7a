// Serves PMI-1 to the ranks of one host: MPICH, Intel MPI and MVAPICH use it. Values that ranks have put cross to other
// hosts at a barrier, by the fences of PMIx. Listens at a Unix socket, to which the agent relays connections of the
// job's user: PMI-1 itself proves nothing. pmix_server makes the only one and never destroys it. Each connection has
// a thread, which may block.
#pragma once

#include <condition_variable>
#include <functional>
#include <map>
#include <string>

#include "base/mutex.h"
#include "base/unique_fd.h"
#include "launcher/pmix/conversation.h"
#include "launcher/pmix/fences.h"
#include "launcher/pmix/pmi_commands.h"
#include "rendezvous/store/store.h"

namespace hvd::launcher {

class PmiServer {
 public:
  struct Events {
    std::function<int(int rank)> on_init;  // returns how often this rank has begun to use MPI
    std::function<void()> on_met;          // all ranks have met in a barrier
  };

  // `store` may be null when this host is alone, and outlives the server.
  PmiServer(const PmixOrder& order, rendezvous::Store* store, Events events)
      : order_(order), fences_(order), store_(store), events_(std::move(events)) {}

  // Serves from here on. Returns the abstract name of the socket.
  Result<std::string> listen();

 private:
  // The ranks' n-th programs of MPI, one for each n: a rank may run several, one after another.
  struct Program {
    std::map<std::string, std::string> values;
    std::string unshared;  // put on this host since the last barrier: "key=value\n"
    size_t in_barrier = 0;
    size_t in_finalize = 0;
    uint64_t barriers = 0;  // that are over
    Status last;            // the outcome of the last one
  };
  struct Client {
    int rank = -1;   // before initack
    int number = 0;  // of its program
  };

  void accept(const UniqueFd& listener);
  void serve(const UniqueFd& socket);
  // An error ends the connection.
  Result<std::string> answer(Client& client, const PmiCommand& command);
  Result<std::string> admit(Client& client, const PmiCommand& command);
  std::string put(const Client& client, const PmiCommand& command);
  std::string get(const Client& client, const PmiCommand& command);
  Status wait_in_barrier(const Client& client);
  void finish(const Client& client);
  std::string name_of(const Client& client) const;
  Program& program_of(const Client& client) HVD_REQUIRES(mutex_);

  const PmixOrder order_;
  const PmixFences fences_;
  rendezvous::Store* const store_;
  const Events events_;
  Mutex mutex_;
  std::condition_variable barrier_over_;
  std::map<int, Program> programs_ HVD_GUARDED_BY(mutex_);
};

}  // namespace hvd::launcher
