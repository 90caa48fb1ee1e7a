#include "launcher/detach/output_recorder.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <system_error>
#include <vector>

#include "base/process/signals.h"
#include "launcher/output/line_tagger.h"

namespace hvd::launcher {
namespace {

// A pipe holds as much: one read empties it.
constexpr size_t kPipeSize = 64 << 10;
constexpr char kFlush = 'f', kStop = 's';

Status open_pipe(UniqueFd& reader, UniqueFd& writer) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return system_error("cannot make a pipe", errno);
  reader.reset(ends[0]);
  writer.reset(ends[1]);
  return {};
}

}  // namespace

Result<std::unique_ptr<OutputRecorder>> OutputRecorder::start(std::unique_ptr<Spool> spool,
                                                              std::function<void()> on_flushed) {
  std::unique_ptr<OutputRecorder> recorder(
      new OutputRecorder(std::move(spool), std::move(on_flushed)));
  HVD_RETURN_IF_ERROR(open_pipe(recorder->orders_, recorder->order_sink_));
  std::array<UniqueFd, 2> writers;
  for (size_t stream = 0; stream < writers.size(); ++stream) {
    UniqueFd& reader = recorder->streams_[stream];
    HVD_RETURN_IF_ERROR(open_pipe(reader, writers[stream]));
    ::fcntl(reader.get(), F_SETFL, O_NONBLOCK);
    ::fcntl(reader.get(), F_SETPIPE_SZ, kPipeSize);
  }
  try {
    const AllSignalsBlocked blocked;  // they are for the loop's thread
    recorder->thread_ = std::thread([it = recorder.get()] { it->record(); });
  } catch (const std::system_error& error) {
    return system_error("cannot start a thread", error.code().value());
  }
  std::fflush(nullptr);
  ::dup2(writers[0].get(), STDOUT_FILENO);
  ::dup2(writers[1].get(), STDERR_FILENO);
  return recorder;
}

OutputRecorder::~OutputRecorder() { stop(); }

void OutputRecorder::flush() {
  [[maybe_unused]] const ssize_t size = ::write(order_sink_.get(), &kFlush, 1);
}

void OutputRecorder::stop() {
  if (!thread_.joinable()) return;
  std::fflush(nullptr);
  [[maybe_unused]] const ssize_t size = ::write(order_sink_.get(), &kStop, 1);
  thread_.join();
}

void OutputRecorder::end(int exit_code) {
  stop();
  spool_->end(exit_code);
}

void OutputRecorder::record() {
  for (char order = 0; order != kStop;) {
    std::array<pollfd, 3> watched{};
    watched[0] = {.fd = streams_[0].get(), .events = POLLIN, .revents = 0};
    watched[1] = {.fd = streams_[1].get(), .events = POLLIN, .revents = 0};
    watched[2] = {.fd = orders_.get(), .events = POLLIN, .revents = 0};
    if (::poll(watched.data(), watched.size(), -1) < 0) continue;
    order = 0;
    if (watched[2].revents != 0 && ::read(orders_.get(), &order, 1) != 1) order = kStop;
    // Also those that poll did not report: they may hold what was written before the order.
    for (size_t stream = 0; stream < streams_.size(); ++stream) read_stream(stream);
    if (order == kFlush) on_flushed_();
  }
  for (size_t stream = 0; stream < streams_.size(); ++stream) {
    if (!held_[stream].empty()) spool_->write(stream == 1, held_[stream]);
  }
}

// Only whole lines go to the spool: those of the other stream come between records.
void OutputRecorder::read_stream(size_t stream) {
  std::array<char, kPipeSize> buffer;
  const ssize_t size = ::read(streams_[stream].get(), buffer.data(), buffer.size());
  if (size <= 0) return;
  std::string& held = held_[stream];
  held.append(buffer.data(), static_cast<size_t>(size));
  size_t end = held.find_last_of("\r\n") + 1;  // 0 without any
  if (held.size() - end > 2 * kMaxLine) end = held.size();
  if (end == 0) return;
  spool_->write(stream == 1, std::string_view(held).substr(0, end));
  held.erase(0, end);
}

}  // namespace hvd::launcher
