// Detects programs whose ranks work independently. Each rank then does the work of the whole job, and the job seems to
// succeed: the launcher prints a warning at the end. Looks for signs that ranks know of each other: calls of
// hvd.init(), the program's sources, the master port, and, at growing intervals and on a thread, connections of
// processes that have loaded PyTorch, JAX or an MPI. Passes on the programs that it finds. The agent owns this object.
// Lives on the agent's loop.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "launcher/agent/host/blocking_call.h"
#include "launcher/agent/host/library_users.h"

namespace hvd::launcher {

class Independence {
 public:
  // Called with the programs of each look. Returns whether the caller needs more looks even if ranks have met.
  using OnLook = std::function<bool(const std::map<pid_t, LibraryUsers::Program>&)>;
  Independence(net::EventLoop& loop, OnLook on_look) : on_look_(std::move(on_look)), call_(loop) {}
  // Call when the ranks start, with their command and folder. `master_port`: the port on which rank 0 here may listen;
  // 0: rank 0 is on another host.
  void begin(std::vector<std::string> command, std::string folder, uint16_t master_port);
  // Call when a rank has joined a world: the ranks do not work independently.
  void on_sign();
  // Checks whether a socket uses the master port, if the result could change the verdict. The kernel usually lists a
  // closed connection for another minute.
  void look_at_master_port();
  // Returns the value of Finished::is_independent.
  uint8_t verdict();

  // Returns the time of the next check of the processes.
  Deadline deadline() const { return look_at_; }
  void on_deadline();

 private:
  bool has_no_word();
  void on_look(const LibraryUsers::Look& look);

  OnLook on_look_;
  std::vector<std::string> command_;
  std::string folder_;
  uint16_t master_port_ = 0;
  // True if the sources of the program contain no word about ranks; unset: not read yet.
  std::optional<bool> has_no_word_;
  bool has_met_ = true;     // true before the ranks start
  bool is_wanted_ = false;  // on_look_ needs more looks
  uint8_t library_ = 0;     // Finished::is_independent for the library that a process has loaded
  // library_ is valid until this time: afterwards, processes may have connected since the last look.
  Deadline known_until_ = Deadline::never();
  std::shared_ptr<LibraryUsers> users_;  // shared with the thread that checks
  BlockingCall call_;                    // runs a check
  Deadline look_at_ = Deadline::never();
  double pause_ = 0;
  int frequent_looks_ = 0;  // remaining number of frequent checks
};

}  // namespace hvd::launcher
