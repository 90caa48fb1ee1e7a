// Finds the processes below this process that have loaded PyTorch, JAX or an MPI, and whether one of them is connected
// to another process. A scan reads /proc, and may block while a process changes its memory map. Class Independence owns
// this object. Any thread, one at a time.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>

#include "base/clock.h"
#include "launcher/agent/host/process_tree.h"

namespace hvd::launcher {

class LibraryUsers {
 public:
  static constexpr size_t kLibraries = 3;
  struct Look {
    uint8_t library =
        0;  // library that a process has loaded: 2 PyTorch, 3 JAX, 4 an MPI; 0: none of these
    bool is_connected = false;
    // A program has loaded a library since the last scan; false for a fork of a program that had loaded one before.
    bool is_new = false;
  };
  Look look();

 private:
  struct User {
    Clock::time_point seen;
    Clock::time_point read = {};
    uint8_t library = 0;
  };
  static User read_again(const User& before, pid_t process);

  // Processes of the last scan, by pid and start time.
  std::map<std::pair<pid_t, int64_t>, User> users_;
};

}  // namespace hvd::launcher
