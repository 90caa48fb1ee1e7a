#include "launcher/agent/host/process_snapshot.h"

#include <dirent.h>
#include <poll.h>
#include <sys/syscall.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <iterator>
#include <memory>
#include <optional>
#include <set>

#include "base/clock.h"
#include "base/proc_file.h"
#include "base/text.h"
#include "launcher/agent/host/process_tree.h"
#include "launcher/protocol/program.h"

namespace hvd::launcher {
namespace {

constexpr double kReadTimeoutSeconds = 0.3;
constexpr size_t kMaxStack = 32 << 10;
// The prefix of the name of the file that horovod/_stack.py keeps open. In the name, a signal number and a descriptor
// follow the prefix.
constexpr std::string_view kChannelName = "/memfd:horovod-stack:";
constexpr std::string_view kHeader = "(most recent call first)";

struct StackChannel {
  int signal;
  int fd;
};

std::optional<StackChannel> find_stack_channel(const std::string& folder) {
  const std::string fds = folder + "fd/";
  const std::unique_ptr<DIR, int (*)(DIR*)> directory(::opendir(fds.c_str()), ::closedir);
  while (const dirent* entry = directory ? ::readdir(directory.get()) : nullptr) {
    std::array<char, 128> target{};
    const ssize_t size = ::readlink((fds + entry->d_name).c_str(), target.data(), target.size());
    std::string_view name(target.data(), size > 0 ? static_cast<size_t>(size) : 0);
    if (!name.starts_with(kChannelName)) continue;
    name.remove_prefix(kChannelName.size());
    name = name.substr(0, name.find(' '));
    const auto signal = parse_int(name.substr(0, name.find(':')));
    const auto fd = parse_int(name.substr(name.find(':') + 1));
    if (!signal || !fd || *signal < SIGRTMIN || *signal > SIGRTMAX) return {};
    return StackChannel{static_cast<int>(*signal), static_cast<int>(*fd)};
  }
  return {};
}

std::string python_stack(pid_t pid, const std::string& folder) {
  const auto channel = find_stack_channel(folder);
  if (!channel || !handles_signal(read_proc_file(folder + "status"), channel->signal)) return {};
  const UniqueFd pipe(
      ::open(cat(folder, "fd/", channel->fd).c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  std::array<char, 4096> buffer;
  while (pipe && ::read(pipe.get(), buffer.data(), buffer.size()) > 0) continue;
  if (!pipe || ::syscall(SYS_tgkill, pid, pid, channel->signal) != 0) return {};
  std::string text;
  Deadline deadline = Deadline::after_seconds(kReadTimeoutSeconds);
  while (text.size() < kMaxStack) {
    pollfd entry{pipe.get(), POLLIN, 0};
    if (::poll(&entry, 1, deadline.poll_timeout()) <= 0) break;
    const ssize_t size = ::read(pipe.get(), buffer.data(), buffer.size());
    if (size <= 0) break;
    text.append(buffer.data(), static_cast<size_t>(size));
    // The remaining text follows without a pause.
    deadline = Deadline::after_seconds(kReadTimeoutSeconds / 10);
  }
  const size_t header = text.find(kHeader);
  if (header == std::string::npos) return {};
  return text.substr(text.find('\n', header) + 1);
}

// Returns `before` and the kernel function in which the process waits ("futex_do_wait"); or an empty text.
std::string kernel_place(const std::string& folder, const char* before) {
  const std::string contents = read_proc_file(folder + "wchan");
  const std::string_view place = trim(contents);
  if (place.empty() || place == "0") return "";
  return cat(before, printable(place));
}

std::string command_of(const std::string& folder) {
  constexpr size_t kWords = 100;
  std::string command = read_proc_file(folder + "cmdline");
  for (char& byte : command) byte = byte == '\0' ? ' ' : byte;
  if (command.size() > kWords) command = command.substr(0, kWords) + "...";
  return printable(trim(command));
}

std::string state_of(std::string_view status) {
  const size_t at = status.find("\nState:");
  if (at == std::string_view::npos) return "";
  const size_t open = status.find('(', at), close = status.find(')', at);
  return std::string(status.substr(open + 1, close - open - 1));
}

bool runs_python(pid_t pid) {
  std::error_code error;
  const auto program = std::filesystem::read_symlink(cat("/proc/", pid, "/exe"), error);
  if (!error) return is_python(program.string());
  // The exe link of another user's process cannot be read.
  const std::string words = read_proc_file(cat("/proc/", pid, "/cmdline"));
  return is_python(words.c_str());
}

}  // namespace

ProcessSnapshot process_snapshot(pid_t pid, bool with_stack) {
  const std::string folder = cat("/proc/", pid, "/");
  const std::string status = read_proc_file(folder + "status");
  const std::string command = command_of(folder);
  if (status.empty() || command.empty()) return {};  // the process has ended or is a zombie
  ProcessSnapshot snapshot{pid, {}, {}};
  snapshot.line =
      cat("pid ", pid, ", ", state_of(status), kernel_place(folder, ", in "), ": ", command);
  const bool is_stopped = state_of(status).find("stop") != std::string::npos;
  if (with_stack && !is_stopped) snapshot.stack = python_stack(pid, folder);
  return snapshot;
}

std::string process_activity_line(pid_t pid) {
  const std::string folder = cat("/proc/", pid, "/");
  const std::string status = read_proc_file(folder + "status");
  const std::string command = command_of(folder);
  if (status.empty() || command.empty()) return {};
  return cat(state_of(status), kernel_place(folder, " in "), " (", command, ")");
}

std::vector<pid_t> topmost_pythons(const std::vector<pid_t>& processes) {
  const std::set<pid_t> all(processes.begin(), processes.end());
  std::set<pid_t> pythons;
  std::ranges::copy_if(processes, std::inserter(pythons, pythons.end()), runs_python);
  std::vector<pid_t> topmost;
  for (const pid_t pid : pythons) {
    pid_t above = parent_of(pid);
    while (all.contains(above) && !pythons.contains(above)) above = parent_of(above);
    if (!pythons.contains(above)) topmost.push_back(pid);
  }
  return topmost;
}

}  // namespace hvd::launcher
