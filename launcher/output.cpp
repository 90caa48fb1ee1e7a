#include "launcher/output.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>

#include "base/check.h"
#include "base/text.h"

namespace hvd::launcher {

std::string output_tag(int rank, OutputStream stream) {
  return cat("[", rank, stream == OutputStream::kStdout ? "]<stdout>:" : "]<stderr>:");
}

std::string padded_rank(int rank, int size) {
  const std::string text = cat(rank);
  const size_t width = cat(size - 1).size();
  return text.size() < width ? std::string(width - text.size(), '0') + text : text;
}

Output::Channel::Channel(int rank, OutputStream stream) : tagger(output_tag(rank, stream)) {}

Output::Output(net::asio::any_io_executor executor, int size)
    : size_(size), stdout_(executor, STDOUT_FILENO), stderr_(executor, STDERR_FILENO) {
  channels_.reserve(2 * static_cast<size_t>(size));
  for (int rank = 0; rank < size; ++rank) {
    channels_.emplace_back(rank, OutputStream::kStdout);
    channels_.emplace_back(rank, OutputStream::kStderr);
  }
}

Result<std::unique_ptr<Output>> Output::open(net::asio::any_io_executor executor, int size,
                                             const std::string& directory) {
  std::unique_ptr<Output> output(new Output(std::move(executor), size));
  if (!directory.empty()) HVD_RETURN_IF_ERROR(output->open_files(directory));
  return output;
}

Status Output::open_files(const std::string& directory) {
  for (int rank = 0; rank < size_; ++rank) {
    const auto folder = std::filesystem::path(directory) / cat("rank.", padded_rank(rank, size_));
    std::error_code error;
    std::filesystem::create_directories(folder, error);
    if (error) return system_error(cat("cannot make directory ", folder.string()), error.value());
    for (const auto stream : {OutputStream::kStdout, OutputStream::kStderr}) {
      Channel& target = channel(rank, stream);
      target.path = folder / (stream == OutputStream::kStdout ? "stdout" : "stderr");
      target.file.reset(
          ::open(target.path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
      if (!target.file) return system_error(cat("cannot write to ", target.path), errno);
    }
  }
  return {};
}

Output::Channel& Output::channel(int rank, OutputStream stream) {
  HVD_CHECK(rank >= 0 && rank < size_);
  return channels_[2 * static_cast<size_t>(rank) + (stream == OutputStream::kStderr ? 1 : 0)];
}

void Output::on_broken(Broken callback) {
  stdout_.on_broken([callback](int error) { callback(OutputStream::kStdout, error); });
  stderr_.on_broken([callback](int error) { callback(OutputStream::kStderr, error); });
}

void Output::write(int rank, OutputStream stream, ByteView bytes) {
  Channel& from = channel(rank, stream);
  std::string lines;
  lines.reserve(bytes.size() + 64);
  from.tagger.feed(as_text(bytes), lines);
  const auto consumed = [this, rank, stream, size = bytes.size()] {
    if (consumed_) consumed_(rank, stream, size);
  };
  // What is held of an unfinished line is bounded by the line's bound.
  if (lines.empty()) return consumed();
  copy_to_file(from, lines);
  sink(stream).write(lines, consumed);
}

void Output::end(int rank, OutputStream stream) {
  Channel& from = channel(rank, stream);
  std::string lines;
  from.tagger.finish(lines);
  if (!lines.empty()) {
    copy_to_file(from, lines);
    sink(stream).write(lines);
  }
  from.file.reset();
}

void Output::copy_to_file(Channel& channel, std::string_view lines) {
  while (channel.file && !lines.empty()) {
    const ssize_t written = ::write(channel.file.get(), lines.data(), lines.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) {
      say(system_error(cat("cannot write to ", channel.path), errno).message());
      channel.file.reset();
      return;
    }
    lines.remove_prefix(static_cast<size_t>(written));
  }
}

void Output::say(std::string_view sentence) { stderr_.write(cat("horovodrun: ", sentence, "\n")); }

net::Task<void> Output::drain() {
  co_await stdout_.drain();
  co_await stderr_.drain();
}

void Output::discard_stalled() {
  for (Sink* sink : {&stdout_, &stderr_}) {
    if (sink->is_stalled()) sink->discard();
  }
}

}  // namespace hvd::launcher
