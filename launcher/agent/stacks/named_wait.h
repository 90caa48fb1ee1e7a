// Identifies the operation of a communication library in which a rank waits, from its Python stack, the threads and
// libraries of its process, and the source line of its innermost call. Pure.
#pragma once

#include <set>
#include <string>
#include <string_view>

#include "launcher/agent/stacks/python_stack.h"
#include "launcher/protocol/host_sample.h"

namespace hvd::launcher {

struct WaitSigns {
  PythonStack stack{};              // stack of the main thread
  std::string no_stack{};           // why the stack could not be read, as a sentence
  std::string channel{};            // kernel function of the main thread: "futex_do_wait"
  std::set<std::string> threads{};  // names of the process's threads
  bool has_mpi = false;             // the process has loaded an MPI library
  std::string line{};               // the line of source_to_read(), if it was read
  bool has_torch_store = false;  // the process has loaded PyTorch, and is connected at MASTER_PORT
  bool has_jax = false;          // the process has loaded JAX and communicates by gRPC
  bool is_in_io = false;         // the main thread is in a call that is_io() accepts
};

// The value of NamedWait::library for a wait that may be a computation.
inline constexpr const char* kGpu = "the GPU";

struct NamedWait {
  std::string library;    // "torch.distributed (gloo)"; empty: no known library
  std::string operation;  // "all_reduce"
  std::string place;      // "train.py:88", the user's line, or else the innermost one
};

// Returns whether a thread, according to its /proc/PID/syscall, reads or writes a file or socket. Includes a
// poll of one descriptor with a timeout, which Python uses; MPI polls several descriptors or none.
bool is_io(std::string_view call);
// Returns the innermost frame if its source line shows more than the stack: mpi4py and the waits of PyTorch have no
// Python frames. Otherwise null.
const PythonFrame* source_to_read(const WaitSigns& signs);
// Returns whether the rank waits for other ranks. A wait for the GPU or for JAX counts only if the rank communicates by
// NCCL or by JAX's gRPC; otherwise it may be the rank's own computation.
bool is_for_ranks(const NamedWait& wait, const WaitSigns& signs);
// Returns whether a rank without a readable stack may be in a collective: it has a process group or has loaded MPI, and
// its main thread waits in a futex.
bool may_be_for_ranks(const WaitSigns& signs);
NamedWait named_wait(const WaitSigns& signs);
// Returns "waits in torch.distributed (gloo): all_reduce, called at train.py:88"; empty without a library.
std::string describe_wait(const NamedWait& wait);

// Returns where a rank is, for the launcher, which detects hangs. `signs` has no stack if the stack could not be read.
// `state`: the kernel state of the rank's first process.
RankPlace place_of_rank(const WaitSigns& signs, const std::string& state);

}  // namespace hvd::launcher
