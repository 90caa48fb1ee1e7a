// Finds the processes below this process that have loaded PyTorch, JAX or an MPI, whether they are connected to other
// processes, and the variables with which the program of each child began. A scan reads /proc, and may block while a
// process changes its memory map. Class Independence owns this object. Any thread, one at a time.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/process/spawn.h"
#include "launcher/agent/host/process_tree.h"
#include "launcher/protocol/host_job.h"

namespace hvd::launcher {

class LibraryUsers {
 public:
  static constexpr size_t kLibraries = 3;
  static constexpr uint8_t kTorch = 2;
  // The program of a child of this process: the first process with a library, among the child and its descendants. If
  // none has a library: the last descendant, if the child and each of its descendants has at most one child.
  struct Program {
    pid_t pid = 0;  // -1: several processes can be the program
    uint8_t library = 0;
    bool is_connected = false;  // this process or another one below the same child is connected
    std::optional<Environment> variables = {};  // kWorldVariables; nullopt: unknown
  };
  struct Look {
    uint8_t library =
        0;  // library that a process has loaded: 2 PyTorch, 3 JAX, 4 an MPI; 0: none of these
    bool is_connected = false;
    // A program has loaded a library since the last scan; false for a fork of a program that had loaded one before.
    bool is_new = false;
    std::map<pid_t, Program> programs = {};  // by the child
  };
  Look look();

 private:
  struct User {
    Clock::time_point seen;
    Clock::time_point read = {};
    uint8_t library = 0;
    std::optional<Environment> variables = {};  // as in Program
  };
  static User read_again(const User& before, pid_t process);

  // Processes of the last scan, by pid and start time.
  std::map<std::pair<pid_t, int64_t>, User> users_;
};

// Returns the changes of kWorldVariables from `given`, a rank's environment, to `found`, that of the rank's program.
std::vector<VariableChange> changes_between(const Environment& given, const Environment& found);

}  // namespace hvd::launcher
