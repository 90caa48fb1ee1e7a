// Hears from the ranks of this host, and from what runs below them, in which world they are
// (rendezvous/wire/world_report.h). Lives on the agent's loop.
#pragma once

#include <sys/types.h>

#include <functional>
#include <map>

#include "base/result.h"
#include "base/unique_fd.h"
#include "launcher/agent/loop/poll_loop.h"
#include "rendezvous/wire/world_report.h"

namespace hvd::launcher {

class WorldWatch {
 public:
  // `pid`: of the process that reports.
  using Told = std::function<void(pid_t pid, const rendezvous::WorldReport& report)>;

  WorldWatch(PollLoop& loop, Told told) : loop_(loop), told_(std::move(told)) {}
  ~WorldWatch() { close(); }

  Status listen();
  void close();

 private:
  void hear(int caller);

  PollLoop& loop_;
  Told told_;
  UniqueFd listener_;
  std::map<int, UniqueFd> callers_;  // by descriptor
};

}  // namespace hvd::launcher
