#include "launcher/agent/ranks/helper_command.h"

#include <sys/epoll.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <utility>

namespace hvd::launcher {

namespace {

constexpr size_t kMostOutput = 4 << 20;
constexpr size_t kMostErrors = 4 << 10;

}  // namespace

Result<std::unique_ptr<HelperCommand>> HelperCommand::start(net::EventLoop& loop,
                                                            const RankCommand& command, Done done) {
  HVD_ASSIGN_OR_RETURN(RankProcess process, start_rank(command));
  return std::unique_ptr<HelperCommand>(
      new HelperCommand(loop, std::move(process), std::move(done)));
}

HelperCommand::HelperCommand(net::EventLoop& loop, RankProcess process, Done done)
    : loop_(loop), process_(std::move(process)), done_(std::move(done)) {
  for (size_t stream = 0; stream < 2; ++stream) {
    loop_.watch(process_.output[stream].get(), EPOLLIN, [this, stream](uint32_t) { read(stream); });
  }
}

HelperCommand::~HelperCommand() {
  for (const UniqueFd& pipe : process_.output) {
    if (pipe) loop_.unwatch(pipe.get());
  }
}

void HelperCommand::read(size_t stream) {
  UniqueFd& pipe = process_.output[stream];
  std::string& text = stream == 0 ? outcome_.output : outcome_.errors;
  ssize_t size = 0;
  std::array<char, 4096> buffer;
  while (pipe && (size = ::read(pipe.get(), buffer.data(), buffer.size())) > 0) {
    text.append(buffer.data(), static_cast<size_t>(size));
    if (stream == 1 && text.size() > kMostErrors) text.erase(0, text.size() - kMostErrors);
    if (text.size() > kMostOutput) break;
  }
  if (!pipe || (size < 0 && (errno == EAGAIN || errno == EINTR))) return;
  loop_.unwatch(pipe.get());
  pipe.reset();
  if (stream == 0) settle();
}

void HelperCommand::on_reaped(pid_t pid, int status) {
  if (pid != process_.pid) return;
  outcome_.status = status;
  has_ended_ = true;
  settle();
}

void HelperCommand::kill() {
  if (!has_ended_) ::kill(-process_.pid, SIGKILL);
}

void HelperCommand::settle() {
  if (!has_ended_ || process_.output[0] || !done_) return;
  read(1);  // reads all errors so far: a background process may keep the pipe open
  std::exchange(done_, nullptr)(std::move(outcome_));
}

}  // namespace hvd::launcher
