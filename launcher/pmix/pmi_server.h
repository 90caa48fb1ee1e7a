// Serves PMI-1, which MPICH uses, to the ranks of one host. Ranks' values are sent to other hosts at a barrier, by
// PmixFences. If a client ends before it finalizes, its MPI program fails: barriers fail on all hosts. Listens at a
// Unix socket. The agent relays connections of the job's user to this socket, since PMI-1 has no authentication.
// pmix_server creates one server and never destroys it. Each connection has a thread, which may block.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

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
    std::function<int(int rank)> on_init;  // returns how many times this rank has initialised MPI
    std::function<void()> on_met;          // all ranks have entered a barrier
    // A barrier or a connection has failed.
    std::function<void(const std::string& sentence)> on_failure;
  };

  // `store` must outlive the server, and may be null if this is the only host.
  PmiServer(const PmixOrder& order, rendezvous::Store* store, Events events)
      : order_(order), fences_(order), store_(store), events_(std::move(events)) {}

  // Starts to serve. Returns the abstract name of the socket.
  Result<std::string> listen();

 private:
  using Socket = std::shared_ptr<const UniqueFd>;
  // The n-th MPI program of each rank: a rank may run several MPI programs, one after another. Guarded by mutex_.
  struct Program {
    std::map<std::string, std::string> values;
    std::string unshared;         // values since the last barrier on this host: "key=value\n"
    std::vector<Socket> waiting;  // clients that wait in a barrier
    bool is_exchanging = false;   // this host's ranks wait for other hosts
    size_t ended = 0;             // clients that have finalized or disconnected
    uint64_t barriers = 0;        // completed barriers
    std::string failure;          // why the program failed; its later barriers fail too
    bool is_failure_reported = false;
  };
  struct Client {
    Socket socket;
    int rank = -1;   // -1 before the command initack
    int number = 0;  // number of the client's program
    std::shared_ptr<Program> program = {};
    bool has_ended = false;  // counted in Program::ended
  };

  void accept(const UniqueFd& listener);
  void serve(Socket socket);
  // Serves one client. An error ends the connection.
  Status converse(Client& client);
  Result<std::string> answer(Client& client, const PmiCommand& command);
  Result<std::string> admit(Client& client, const PmiCommand& command);
  std::string put(const Client& client, const PmiCommand& command);
  std::string get(const Client& client, const PmiCommand& command);
  Status enter_barrier(const Client& client);
  void meet(Program& program, const PmixFences::Fence& fence);
  Status finish(Client& client);
  bool is_waiting(const Client& client) const HVD_REQUIRES(mutex_);
  bool is_failed(const Client& client);
  void on_closed(Client& client);
  void count_end(Client& client) HVD_REQUIRES(mutex_);
  void fail(Program& program, const std::string& why) HVD_REQUIRES(mutex_);
  void report_failure(Program& program) HVD_REQUIRES(mutex_);
  void report_once(const std::string& sentence);
  std::string name_of(const Client& client) const;
  std::string fence_of(const Client& client, uint64_t barrier) const;

  const PmixOrder order_;
  const PmixFences fences_;
  rendezvous::Store* const store_;
  const Events events_;
  Mutex mutex_;
  std::map<int, std::shared_ptr<Program>> programs_ HVD_GUARDED_BY(mutex_);
  bool has_reported_ HVD_GUARDED_BY(mutex_) = false;
};

}  // namespace hvd::launcher
