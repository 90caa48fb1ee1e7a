// Receives the world reports (rendezvous/wire/world_report.h) of this host's ranks and of their
// descendants. Lives on the agent's loop.
#pragma once

#include <sys/types.h>

#include <functional>
#include <map>

#include "base/result.h"
#include "base/unique_fd.h"
#include "net/event_loop.h"
#include "rendezvous/wire/world_report.h"

namespace hvd::launcher {

class WorldReports {
 public:
  // `pid`: the process that reports.
  using OnReport = std::function<void(pid_t pid, const rendezvous::WorldReport& report)>;

  WorldReports(net::EventLoop& loop, OnReport on_report)
      : loop_(loop), on_report_(std::move(on_report)) {}
  ~WorldReports() { close(); }

  Status listen();
  void close();

 private:
  void receive(int caller);

  net::EventLoop& loop_;
  OnReport on_report_;
  UniqueFd listener_;
  std::map<int, UniqueFd> callers_;  // key: descriptor
};

}  // namespace hvd::launcher
