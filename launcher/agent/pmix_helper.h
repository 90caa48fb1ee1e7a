// Serves PMIx, and PMI-1 for MPICH, to the ranks of this host. The agent listens on two ports of 127.0.0.1, and passes
// the port numbers to the ranks. The first connection starts the helper (launcher/pmix, an executable embedded in the
// agent), because programs without MPI need no server. The agent closes connections of other users, because PMIx trusts
// the uid that a client sends, and PMI-1 clients send no uid. Other connections wait until the helper has registered
// the ranks, and are then relayed to it. If the helper fails, all connections are closed, so that MPI_Init fails, and
// the report contains the reason. The agent owns this object. Lives on the agent's loop and never blocks it.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "launcher/agent/ranks/rank_process.h"
#include "launcher/agent/socket_relay.h"
#include "launcher/pmix/conversation.h"
#include "launcher/protocol/protocol.h"
#include "net/endpoint.h"
#include "net/event_loop.h"

namespace hvd::launcher {

// Returns the helper's executable file; empty in a build without a helper.
std::string_view pmix_program();

// The prefix of the name of a job's folder on a host.
inline constexpr std::string_view kJobFolder = "horovod-job-";

class PmixHelper {
 public:
  using OnReport = std::function<void(const PmixReport&)>;

  // `folder`: for files of the job; must not exist yet. The destructor or the agent's guardian removes the folder.
  PmixHelper(net::EventLoop& loop, std::string folder, OnReport on_report)
      : loop_(loop), folder_(std::move(folder)), on_report_(std::move(on_report)) {}
  ~PmixHelper();

  // Opens the ports and creates the folder, unless the job excludes PMIx or this host lacks it. Returns whether it has
  // opened them. `environment`: the helper's environment.
  bool open(const HostJob& job, const Environment& environment);
  // Accepts connections after the call, if the ports are open and the launcher ordered PMIx. `store` is the store's
  // address for this host.
  void serve(const HostJob& job, const StartOrder& order, const std::string& store);
  // Returns the variables by which a rank finds PMIx, and other variables for MPI that the user has not set; empty
  // without PMIx.
  Environment environment_of(const Environment& rank, const StartOrder& order) const;

  // Returns whether a rank has connected, and the helper has started.
  bool was_used() const { return was_used_; }
  // Call when a process that is not a rank has ended.
  void on_reaped(pid_t pid);
  // Returns the running helper's pid, or -1. The helper must not end before the ranks.
  pid_t pid() const { return process_.pid; }
  // Returns true if the helper is the only remaining process of the job.
  bool is_alone() const;
  // Closes the helper's input, so that it cleans up and ends. on_deadline() kills a helper that does not end in time.
  void end();
  Deadline deadline() const { return answer_by_.is_never() ? kill_at_ : answer_by_; }
  void on_deadline();

 private:
  // A port of 127.0.0.1 for ranks. Connections are relayed to the helper's endpoint `server`.
  struct Port {
    UniqueFd listener;
    uint16_t number = 0;
    net::Endpoint server;
  };

  bool is_open() const { return static_cast<bool>(pmix_.listener); }
  Status listen(Port& port);
  void accept(const Port& port);
  Status start();
  void give_order();
  void read();
  void take(const PmixTexts& texts);
  void relay(const Port& port, UniqueFd socket);
  void fail(const std::string& why);
  void forget_order();
  std::string last_words() const;

  net::EventLoop& loop_;
  std::string folder_;
  OnReport on_report_;
  UniqueFd lock_;  // for folder_
  Port pmix_;      // has no listener if the job has no PMIx
  Port pmi_;       // has no listener if the job has no PMIx
  PmixOrder order_;
  Environment environment_;  // environment of the helper process
  net::PortRange ports_;
  RankProcess process_;
  std::string unsent_;       // bytes of the order that are not yet written
  std::string received_;     // bytes from the helper
  bool is_serving_ = false;  // the helper has registered the ranks
  bool was_used_ = false;
  bool has_failed_ = false;
  std::vector<std::pair<const Port*, UniqueFd>> waiting_;  // connections waiting for the helper
  std::map<uint64_t, SocketRelay> relays_;
  uint64_t next_relay_ = 0;
  PmixReport last_;  // the report of the rank that connected last
  Deadline answer_by_ = Deadline::never();
  Deadline kill_at_ = Deadline::never();
};

}  // namespace hvd::launcher
