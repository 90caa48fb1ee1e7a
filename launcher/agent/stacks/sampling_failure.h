// Explains why py-spy could not read the stack of a process, and the remedy, as one sentence. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace hvd::launcher {

// The facts that determine whether the agent may read the memory of a process.
struct ReadAccess {
  int64_t uid = 0;          // user of the process
  int64_t own_uid = 0;      // user of the agent
  int64_t yama_scope = -1;  // kernel.yama.ptrace_scope; -1: a kernel without Yama
  // The agent started the process, which has permitted the agent to read it.
  bool is_first_process = false;
};

// `errors`: py-spy's standard error.
std::string why_no_stack(std::string_view errors, const ReadAccess& access);

// Returns "3 processes with Python run side by side below this one", for a rank with several possible Pythons.
std::string several_pythons(size_t count);

// Begins a sentence about a host without py-spy, and how to install it.
inline constexpr std::string_view kInstallPySpy =
    "Python stacks of these ranks need py-spy, which is neither on this host nor next to "
    "horovodrun: "
    "pip install 'horovodrun[stacks]' where horovodrun runs, or pip install py-spy on this host";

}  // namespace hvd::launcher
