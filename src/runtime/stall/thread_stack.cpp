#include "runtime/stall/thread_stack.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <fstream>

#include "base/clock.h"
#include "base/platform_calls.h"
#include "base/text.h"

namespace hvd::runtime {
namespace {

constexpr double kStackAnswerSeconds = 0.2;
constexpr size_t kMaxText = 64 << 10;
constexpr std::string_view kHeader = "(most recent call first)";

void* handler_of(int signal) {
  struct sigaction action {};
  if (::sigaction(signal, nullptr, &action) != 0) return nullptr;
  if ((action.sa_flags & SA_SIGINFO) != 0) return reinterpret_cast<void*>(action.sa_sigaction);
  if (action.sa_handler == SIG_DFL || action.sa_handler == SIG_IGN) return nullptr;
  return reinterpret_cast<void*>(action.sa_handler);
}

// Reads available bytes. Returns false if no byte arrived before the deadline, or if the text is
// too long.
bool read_some(int fd, Deadline deadline, std::string* text) {
  pollfd entry{fd, POLLIN, 0};
  if (::poll(&entry, 1, deadline.poll_timeout()) <= 0) return false;
  char bytes[4096];
  const ssize_t count = ::read(fd, bytes, sizeof bytes);
  if (count <= 0) return false;
  text->append(bytes, static_cast<size_t>(count));
  return text->size() < kMaxText;
}

// Returns the position of the second stack's header.
size_t second_header(const std::string& text) {
  const size_t first = text.find(kHeader);
  if (first == std::string::npos) return first;
  const size_t second = text.find(kHeader, first + kHeader.size());
  return second == std::string::npos ? second : text.rfind('\n', second) + 1;
}

std::string first_word(const std::string& path) {
  std::ifstream file(path);
  std::string word;
  file >> word;
  return word;
}

// Returns whether the file belongs neither to an installed package, nor to Horovod, nor to Python.
bool is_of_user(std::string_view path) {
  for (const std::string_view part :
       {"-packages/", "/lib/python3", "/python/horovod/", "<frozen "}) {
    if (path.find(part) != std::string_view::npos) return false;
  }
  return true;
}

}  // namespace

Result<StackChannel> open_stack_channel(int signal, int fd) {
  StackChannel channel{signal, fd, nullptr};
  if (signal == 0) return channel;
  if (signal < 0 || signal > SIGRTMAX) {
    return invalid_argument(cat("there is no signal ", signal));
  }
  channel.handler = handler_of(signal);
  if (channel.handler == nullptr) {
    return failed_precondition(cat("nobody in this process handles signal ", signal));
  }
  const int flags = ::fcntl(fd, F_GETFL);
  if (flags < 0) return invalid_argument(cat("descriptor ", fd, " is not open"));
  if ((flags & O_NONBLOCK) == 0) {
    return invalid_argument(cat("descriptor ", fd, " must be non-blocking"));
  }
  return channel;
}

std::string main_thread_stack(const StackChannel& channel) {
  if (channel.signal == 0 || handler_of(channel.signal) != channel.handler) return {};
  std::string text;
  while (read_some(channel.fd, Deadline::after_seconds(0), &text)) text.clear();
  text.clear();
  // Send the signal twice: the handler does not interrupt itself, so when its second run begins, the
  // output of the first is complete.
  const pid_t process = ::getpid();
  for (int i = 0; i < 2; ++i) {
    if (::syscall(SYS_tgkill, process, process, channel.signal) != 0) return {};
  }
  const Deadline deadline = Deadline::after_seconds(kStackAnswerSeconds);
  size_t end = std::string::npos;
  while (end == std::string::npos && read_some(channel.fd, deadline, &text)) {
    end = second_header(text);
  }
  if (end != std::string::npos) text.resize(end);
  const size_t header = text.find(kHeader);
  const size_t begin = header == std::string::npos ? header : text.find('\n', header);
  return begin == std::string::npos ? std::string() : text.substr(begin + 1);
}

std::string user_place(std::string_view stack) {
  constexpr std::string_view kFile = "File \"", kLine = "\", line ";
  std::string place;
  while (!stack.empty()) {
    const std::string_view line = trim(take_line(stack));
    const size_t end = line.rfind(kLine);
    if (!line.starts_with(kFile) || end == std::string_view::npos) continue;
    const std::string_view path = line.substr(kFile.size(), end - kFile.size());
    std::string here(path.substr(path.rfind('/') + 1));
    here += cat(":", line.substr(end + kLine.size()));
    if (place.empty()) place = here;
    if (is_of_user(path)) return here;
  }
  return place;
}

std::string main_thread_note() {
  const std::string folder = cat("/proc/self/task/", ::getpid(), "/");
  std::string name;
  std::getline(std::ifstream(folder + "comm") >> std::ws, name);
  std::string where = first_word(folder + "syscall");
  if (const auto number = parse_int(where)) {
    const std::string_view call = waiting_call(static_cast<long>(*number));
    where = cat("system call ", call.empty() ? std::to_string(*number) : std::string(call));
  } else if (where == "running") {
    where = "user code, running";
  } else {
    where = "an unknown place";
  }
  return cat("its main thread '", printable(name), "' is in ", where);
}

}  // namespace hvd::runtime
