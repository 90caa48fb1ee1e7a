// Looks for MPI's library in ranks to which the agent serves no PMIx, because their program seemed to use no MPI.
// Such a rank is a world of one in MPI. Looks some times after the start, less often as the job gets older, and
// when ranks join or end: an ended process cannot be looked at. The agent owns it. Lives on the agent's loop.
#pragma once

#include <sys/types.h>

#include <functional>
#include <string>

#include "base/clock.h"

namespace hvd::launcher {

// The path of MPI's library (libmpi.so.40, libmpich.so.12) in that process; else empty.
std::string mpi_library_in(pid_t pid);

class LoneMpi {
 public:
  // Calls `on_found` at most once.
  explicit LoneMpi(std::function<void(const std::string& library)> on_found)
      : on_found_(std::move(on_found)) {}

  // The ranks start now, without PMIx.
  void begin();
  // A rank has joined a world, or another one has ended: looks at this process, which still runs, or -1.
  void on_sign(pid_t pid);
  // The time at which the agent must call on_deadline().
  Deadline deadline() const { return next_; }
  void on_deadline(pid_t pid);

 private:
  void look(pid_t pid);

  std::function<void(const std::string&)> on_found_;
  Deadline next_ = Deadline::never();
  double pause_ = 0;
  int signs_ = 0;
};

}  // namespace hvd::launcher
