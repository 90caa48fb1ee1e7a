#include "launcher/agent/stacks/python_stack.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "base/text.h"

namespace hvd::launcher {
namespace {

using Json = nlohmann::json;

constexpr size_t kMaxFrames = 200;

// Returns an empty text if the object has no text for the key: py-spy may write null.
std::string text_in(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found == object.end() || !found->is_string() ? "" : found->get<std::string>();
}

int64_t integer_in(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found == object.end() || !found->is_number_integer() ? 0 : found->get<int64_t>();
}

PythonFrame read_frame(const Json& json) {
  PythonFrame frame{text_in(json, "name"), text_in(json, "filename"), integer_in(json, "line")};
  const std::string module = text_in(json, "module");
  if (frame.line == 0 && !module.empty()) frame.file = module;
  return frame;
}

std::optional<PythonStack> read_frames(const Json& thread) {
  const auto frames = thread.find("frames");
  if (frames == thread.end() || !frames->is_array()) return {};
  PythonStack stack;
  for (const Json& frame : *frames) {
    if (!frame.is_object()) return {};
    if (stack.size() < kMaxFrames) stack.push_back(read_frame(frame));
  }
  return stack;
}

bool is_installed(std::string_view file) {
  return file.find("/site-packages/") != std::string_view::npos ||
         file.find("/dist-packages/") != std::string_view::npos ||
         file.find("/python/horovod/") != std::string_view::npos ||  // in a build or a copy
         file.ends_with("/python/horovod_torch_backend.py") ||
         file.find("/lib/python3") != std::string_view::npos || file.starts_with("<frozen ");
}

bool has_words(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

std::string why_refused(const ReadAccess& access) {
  if (access.uid != access.own_uid && access.own_uid != 0) {
    return cat("it runs as another user (uid ", access.uid,
               "), whose memory only that user and root may read: run horovodrun as that user");
  }
  if (access.yama_scope >= 3) {
    return "kernel.yama.ptrace_scope is 3 on this host, and no process may read another one until "
           "the next boot: set it to 1 in /etc/sysctl.d and reboot";
  }
  if (access.yama_scope == 2) {
    return "kernel.yama.ptrace_scope is 2 on this host, and only processes with CAP_SYS_PTRACE may "
           "read others: run sysctl kernel.yama.ptrace_scope=1 as root";
  }
  if (access.yama_scope == 1 && !access.is_first_process) {
    return "kernel.yama.ptrace_scope is 1 on this host, and only the first process of a rank "
           "admits "
           "the agent: write exec before the command in the rank's script, or run sysctl "
           "kernel.yama.ptrace_scope=0 as root";
  }
  return "the kernel refuses process_vm_readv, as in a container with a strict seccomp profile: "
         "give the container the capability SYS_PTRACE (--cap-add SYS_PTRACE)";
}

// Returns the line with py-spy's error. py-spy may print its own stack after that line.
std::string error_line(std::string_view errors) {
  constexpr std::string_view kError = "Error: ";
  const size_t at = errors.find(kError);
  if (at != std::string_view::npos) errors.remove_prefix(at + kError.size());
  return printable(trim(take_line(errors)));
}

}  // namespace

Result<PythonStack> read_py_spy(std::string_view text, pid_t pid) {
  const Status refused = internal_error("py-spy printed no stacks");
  const Json threads = Json::parse(text, nullptr, false);
  if (!threads.is_array()) return refused;
  std::optional<PythonStack> first, main, own;
  for (const Json& thread : threads) {
    if (!thread.is_object()) return refused;
    auto stack = read_frames(thread);
    if (!stack) return refused;
    if (!first) first = stack;
    if (!main && text_in(thread, "thread_name") == "MainThread") main = stack;
    if (!own && integer_in(thread, "os_thread_id") == pid) own = std::move(stack);
  }
  if (own) return *own;
  return main ? *main : first.value_or(PythonStack());
}

PythonStack read_faulthandler(std::string_view text) {
  PythonStack stack;
  constexpr std::string_view kFile = "File \"", kLine = "\", line ", kIn = " in ";
  while (!text.empty()) {
    const std::string_view line = trim(take_line(text));
    const size_t end = line.rfind(kLine);
    if (!line.starts_with(kFile) || end == std::string_view::npos) continue;
    const std::string_view rest = line.substr(end + kLine.size());
    const size_t in = rest.find(kIn);
    const auto number = parse_int(rest.substr(0, in));
    if (!number || in == std::string_view::npos) continue;
    stack.push_back({.function = std::string(rest.substr(in + kIn.size())),
                     .file = std::string(line.substr(kFile.size(), end - kFile.size())),
                     .line = *number});
  }
  return stack;
}

std::string describe_frame(const PythonFrame& frame) {
  constexpr size_t kLongest = 400;
  const std::string function = printable(frame.function, kLongest);
  if (frame.line == 0) return cat(function, " in ", printable(frame.file, kLongest));
  return cat("File \"", printable(frame.file, kLongest), "\", line ", frame.line, " in ", function);
}

const PythonFrame* own_frame(const PythonStack& stack) {
  if (stack.empty()) return nullptr;
  const auto own = std::ranges::find_if(
      stack, [](const PythonFrame& frame) { return frame.line != 0 && !is_installed(frame.file); });
  return own == stack.end() ? &stack.front() : &*own;
}

std::string place_of(const PythonStack& stack) {
  const PythonFrame* const frame = own_frame(stack);
  if (frame == nullptr) return {};
  const std::string_view file = frame->file;
  return cat(printable(file.substr(file.rfind('/') + 1)), ":", frame->line);
}

std::string why_no_stack(std::string_view errors, const ReadAccess& access) {
  const std::string text = to_lower(errors);
  if (has_words(text, "permission denied") || has_words(text, "not permitted") ||
      has_words(text, "not implemented")) {
    return why_refused(access);
  }
  constexpr std::string_view kUnsupported = "unsupported version of python: ";
  if (const size_t at = text.find(kUnsupported); at != std::string::npos) {
    std::string_view rest = std::string_view(text).substr(at + kUnsupported.size());
    return cat("py-spy does not know Python ", printable(trim(take_line(rest)), 40),
               ": install a newer one (pip install -U py-spy)");
  }
  if (has_words(text, "failed to find python version") || has_words(text, "failed to get python")) {
    return "py-spy finds no Python that it knows in this process: a newer one may (pip install -U "
           "py-spy)";
  }
  const std::string words = error_line(errors);
  return words.empty() ? "py-spy ended without a word" : cat("py-spy: ", words);
}

std::string several_pythons(size_t count) {
  return cat(count,
             " processes with Python run side by side in this rank, and none of them is above the "
             "others: horovodrun exec --rank N py-spy dump --nonblocking --pid PID shows one");
}

}  // namespace hvd::launcher
