#include "launcher/agent/stacks/named_wait.h"

#include <algorithm>
#include <span>
#include <vector>

#include "base/platform_calls.h"
#include "base/text.h"

namespace hvd::launcher {
namespace {

constexpr const char* kJax = "JAX";

bool contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

bool has_thread(const WaitSigns& signs, std::string_view beginning) {
  return std::ranges::any_of(signs.threads,
                             [&](const std::string& name) { return name.starts_with(beginning); });
}

bool has_nccl(const WaitSigns& signs) { return has_thread(signs, "pt_nccl"); }

// Returns whether the frame belongs to the package horovod, and not to a script in a folder named horovod.
bool is_horovod(const PythonFrame& frame) {
  return contains(frame.file, "-packages/horovod/") || contains(frame.file, "/python/horovod/");
}

// This module of ours stands between two functions of torch.distributed, also where its own backend is not used.
bool is_registration(const PythonFrame& frame) {
  return frame.file.ends_with("/horovod_torch_backend.py");
}

bool is_torch_distributed(const PythonFrame& frame) {
  // torchrun waits for its workers and not for ranks.
  const bool is_launcher = contains(frame.file, "/torch/distributed/elastic/") ||
                           contains(frame.file, "/torch/distributed/launcher/") ||
                           frame.file.ends_with("/torch/distributed/run.py") ||
                           frame.file.ends_with("/torch/distributed/launch.py");
  return (contains(frame.file, "/torch/distributed/") && !is_launcher) ||
         frame.file.ends_with("/torch/nn/parallel/distributed.py") || is_registration(frame);
}

// Returns whether the frame only passes a call on.
bool is_wrapper(const PythonFrame& frame) {
  return contains(frame.function, "wrapper") || frame.file.ends_with("/c10d_logger.py") ||
         is_registration(frame);
}

bool is_jax(const PythonFrame& frame) {
  return contains(frame.file, "/jax/") || contains(frame.file, "/jaxlib/");
}

bool is_deepspeed(const PythonFrame& frame) { return contains(frame.file, "/deepspeed/comm/"); }

// Returns the innermost frames that belong to the library. The outermost of them is the function that the user has
// called.
std::span<const PythonFrame> innermost(const PythonStack& stack,
                                       bool (*is_of_library)(const PythonFrame&)) {
  const auto end = std::ranges::find_if_not(stack, is_of_library);
  return {stack.begin(), end};
}

std::string called(std::span<const PythonFrame> frames) {
  const auto found = std::find_if_not(frames.rbegin(), frames.rend(),
                                      [](const auto& each) { return is_wrapper(each); });
  return found == frames.rend() ? frames.back().function : found->function;
}

std::string torch_distributed(const WaitSigns& signs) {
  if (has_nccl(signs)) return "torch.distributed (NCCL)";
  if (has_thread(signs, "pt_gloo")) return "torch.distributed (gloo)";
  return "torch.distributed";
}

bool is_backward(const PythonFrame& frame) {
  return contains(frame.file, "/torch/autograd/") &&
         (frame.function == "_engine_run_backward" || frame.function == "backward");
}

constexpr const char* kBackward = "the reduction of gradients in backward()";

// Returns the user's call. If torch has called horovod as the backend of its groups, the user has called torch.
std::string called_of_horovod(const PythonStack& stack, std::span<const PythonFrame> own) {
  const PythonStack above(stack.begin() + std::ssize(own), stack.end());
  if (const auto torch = innermost(above, is_torch_distributed); !torch.empty())
    return called(torch);
  std::string name = called(own);
  const bool is_hook = name.starts_with('_') && !above.empty() && is_backward(above.front());
  return is_hook ? kBackward : name;
}

bool has_torch_group(const WaitSigns& signs) {
  // Before PyTorch 2, the threads of a process group had no names.
  return has_nccl(signs) || has_thread(signs, "pt_gloo") || signs.has_torch_store;
}

NamedWait wait_of_frames(const WaitSigns& signs) {
  PythonStack stack = signs.stack;
  std::erase_if(stack, [](const PythonFrame& frame) { return frame.line == 0; });
  if (stack.empty()) return {};
  const PythonFrame& first = stack.front();
  if (const auto own = innermost(stack, is_horovod); !own.empty()) {
    return {"horovod", called_of_horovod(stack, own), {}};
  }
  for (const auto is_of_torch : {is_torch_distributed, is_deepspeed}) {
    const auto torch = innermost(stack, is_of_torch);
    if (!torch.empty()) return {torch_distributed(signs), called(torch), {}};
  }
  if (is_backward(first) && has_torch_group(signs)) {
    return {torch_distributed(signs), kBackward, {}};
  }
  if (first.file.ends_with("/torch/cuda/__init__.py") && first.function == "synchronize") {
    return {kGpu, "torch.cuda.synchronize", {}};
  }
  const bool is_jax_wait = contains(first.function, "block_until_ready") ||
                           first.function == "_value" || first.function == "__array__";
  if (is_jax_wait && is_jax(first)) return {kJax, first.function, {}};
  return {};
}

// Methods that wait in native code without a Python frame, separated by spaces.
constexpr std::string_view kOfTorch = " wait synchronize ";
constexpr std::string_view kOfJax = " block_until_ready ";
constexpr std::string_view kOfMpi =
    " Allreduce allreduce Allgather allgather Allgatherv Alltoall alltoall Alltoallv Alltoallw "
    "Barrier barrier Bcast "
    "bcast Disconnect Exscan exscan Fence Gather gather Gatherv Probe probe Recv recv Reduce "
    "reduce Reduce_scatter "
    "Reduce_scatter_block Scan scan Scatter scatter Scatterv Send send Sendrecv sendrecv "
    "Sendrecv_replace Ssend ssend "
    "Wait wait Waitall waitall Waitany waitany Waitsome ";

// Returns the first of these methods that the source line calls; or an empty text.
std::string called_in(std::string_view line, std::string_view methods) {
  for (size_t at = line.find('('); at != std::string_view::npos; at = line.find('(', at + 1)) {
    const size_t dot = line.substr(0, at).rfind('.');
    if (dot == std::string_view::npos) continue;
    std::string name(line.substr(dot + 1, at - dot - 1));
    if (!name.empty() && contains(methods, cat(" ", name, " "))) return name;
  }
  return {};
}

NamedWait wait_of_line(const WaitSigns& signs) {
  if (signs.has_mpi && !signs.is_in_io) {
    const std::string operation = called_in(signs.line, kOfMpi);
    if (!operation.empty() && !has_torch_group(signs)) return {"MPI", operation, {}};
  }
  if (signs.has_jax) {
    const std::string operation = called_in(signs.line, kOfJax);
    if (!operation.empty()) return {kJax, operation, {}};
  }
  const std::string operation =
      has_torch_group(signs) ? called_in(signs.line, kOfTorch) : std::string();
  return operation.empty() ? NamedWait{} : NamedWait{torch_distributed(signs), operation, {}};
}

// Continues the FNV-1a hash `before` with the text.
uint64_t digest(uint64_t before, std::string_view text) {
  for (const char byte : text) before = (before ^ static_cast<uint8_t>(byte)) * 0x100000001b3;
  return (before ^ 0xff) * 0x100000001b3;
}

bool is_of_debugger(const PythonFrame& frame) {
  const std::string_view file = frame.file;
  const auto has = [&](std::string_view part) { return file.find(part) != std::string_view::npos; };
  return file.ends_with("/pdb.py") || file.ends_with("/bdb.py") || file.ends_with("/code.py") ||
         file.ends_with("/getpass.py") || has("/debugpy/") || has("/pydevd") || has("/ipdb/") ||
         has("/IPython/");
}

// Returns whether a program in this frame waits for its clients.
bool is_of_server(const PythonFrame& frame) {
  const std::string_view file = frame.file;
  return file.ends_with("/asyncio/base_events.py") || file.ends_with("/asyncio/runners.py") ||
         file.ends_with("/socketserver.py") ||
         (file.ends_with("/socket.py") && frame.function == "accept");
}

// Returns whether a program without a readable stack waits for one of several descriptors, or for a client.
bool may_serve(const WaitSigns& signs) {
  constexpr std::string_view kOfServers[] = {"poll_schedule", "ep_poll", "do_epoll",
                                             "inet_csk_accept"};
  return !signs.no_stack.empty() && std::ranges::any_of(kOfServers, [&](auto each) {
    return signs.channel.starts_with(each);
  });
}

// Returns the library function that the user's code has called, else the user's own function.
std::string function_of(const PythonStack& stack) {
  const PythonFrame* const own = own_frame(stack);
  if (own == nullptr) return {};
  const bool is_inner = own == stack.data();
  return (is_inner ? own : own - 1)->function;
}

}  // namespace

bool is_io(std::string_view call) {
  constexpr std::string_view kReadsAndWrites =
      " read write recvfrom recvmsg sendto sendmsg accept connect ";
  const std::vector<std::string_view> words = words_of(call);
  if (words.size() < 4) return false;
  const std::string_view name = waiting_call(parse_int(words[0]).value_or(-1));
  // Python polls a socket only if it has a timeout; a negative number means no timeout.
  if (name == "poll" || name == "ppoll")
    return words[2] == "0x1" && words[3] != "0x0" && !words[3].starts_with("0xffffffff");
  return !name.empty() && contains(kReadsAndWrites, cat(" ", name, " "));
}

const PythonFrame* source_to_read(const WaitSigns& signs) {
  const auto found =
      std::ranges::find_if(signs.stack, [](const PythonFrame& frame) { return frame.line != 0; });
  if (found == signs.stack.end() || !found->file.starts_with('/')) return nullptr;
  const bool has_silent_library = signs.has_mpi || signs.has_jax || has_torch_group(signs);
  return has_silent_library && wait_of_frames(signs).library.empty() ? &*found : nullptr;
}

bool is_for_ranks(const NamedWait& wait, const WaitSigns& signs) {
  if (wait.library == kGpu) return has_nccl(signs);
  return wait.library == kJax ? signs.has_jax : !wait.library.empty();
}

bool may_be_for_ranks(const WaitSigns& signs) {
  const bool has_group = has_torch_group(signs) || signs.has_jax || signs.has_mpi;
  return !signs.no_stack.empty() && has_group && signs.channel.starts_with("futex");
}

NamedWait named_wait(const WaitSigns& signs) {
  NamedWait wait = wait_of_frames(signs);
  if (wait.library.empty()) wait = wait_of_line(signs);
  if (!wait.library.empty()) wait.place = place_of(signs.stack);
  return wait;
}

std::string describe_wait(const NamedWait& wait) {
  if (wait.library.empty()) return {};
  return cat("waits in ", wait.library, ": ", printable(wait.operation), ", called at ",
             wait.place);
}

RankPlace place_of_rank(const WaitSigns& signs, const std::string& state) {
  const NamedWait wait = named_wait(signs);
  RankPlace place{.library = wait.library,
                  .operation = wait.operation,
                  .function = function_of(signs.stack),
                  .line = place_of(signs.stack),
                  .state = state,
                  .no_stack = signs.no_stack};
  const bool serves = wait.library.empty() && std::ranges::any_of(signs.stack, is_of_server);
  const bool is_excused =
      serves || may_serve(signs) || std::ranges::any_of(signs.stack, is_of_debugger);
  place.is_excused = is_excused ? 1 : 0;
  place.is_collective = is_for_ranks(wait, signs) || may_be_for_ranks(signs) ? 1 : 0;
  place.frames = 0xcbf29ce484222325;
  for (const PythonFrame& frame : signs.stack) {
    place.frames = digest(digest(place.frames, frame.function), frame.file) +
                   static_cast<uint64_t>(frame.line);
  }
  if (signs.stack.empty()) place.frames = digest(place.frames, state);
  for (std::string* text : {&place.library, &place.operation, &place.function, &place.line,
                            &place.state, &place.no_stack}) {
    if (text->size() > kMostPlaceText) text->resize(kMostPlaceText);
  }
  return place;
}

}  // namespace hvd::launcher
