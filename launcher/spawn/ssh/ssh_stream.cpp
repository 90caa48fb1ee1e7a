#include "launcher/spawn/ssh/ssh_stream.h"

#include <algorithm>
#include <array>

#include "base/clock.h"

namespace hvd::launcher {

namespace asio = net::asio;

namespace {

// After the end of a channel's data, the time to wait for the command's exit status.
constexpr std::chrono::milliseconds kEndOfCommand{500};
constexpr size_t kWriteAtOnce = 64 << 10;

}  // namespace

net::Task<Result<std::unique_ptr<Duplex>>> SshConnection::run(std::string command) {
  ssh_channel channel = ssh_channel_new(session_.get());
  if (channel == nullptr) co_return unavailable(cat("no channel: ", error()));
  auto stream = std::make_unique<SshStream>(shared_from_this(), channel);
  const Status started = co_await stream->start(std::move(command));
  if (!started.ok()) co_return started;
  co_return std::unique_ptr<Duplex>(std::move(stream));
}

net::Task<Status> SshStream::start(std::string command) {
  const auto opened =
      co_await connection_->finish([&] { return ssh_channel_open_session(channel_); }, SSH_AGAIN);
  if (!opened.ok()) co_return opened.status();
  if (*opened != SSH_OK) {
    co_return unavailable(
        cat("it refused a session (MaxSessions of its sshd?): ", connection_->error()));
  }
  const auto accepted = co_await connection_->finish(
      [&] { return ssh_channel_request_exec(channel_, command.c_str()); }, SSH_AGAIN);
  if (!accepted.ok()) co_return accepted.status();
  if (*accepted == SSH_OK) co_return Status();
  co_return unavailable(
      cat("it refused to run a command (nproc of its user in /etc/security/limits.conf?): ",
          connection_->error()));
}

void SshStream::drain_errors() {
  std::array<char, 1024> buffer;
  for (;;) {
    const int size = ssh_channel_read_nonblocking(channel_, buffer.data(), buffer.size(), 1);
    if (size <= 0) return;
    words_.add({buffer.data(), static_cast<size_t>(size)});
  }
}

net::Task<Result<size_t>> SshStream::read_some(std::span<std::byte> buffer) {
  const std::shared_ptr<SshConnection> connection = connection_;
  for (;;) {
    if (is_closed_) co_return aborted("the stream was closed");
    const uint64_t before = connection->epoch();
    const auto limit = static_cast<uint32_t>(std::min<size_t>(buffer.size(), 1 << 20));
    const int size = ssh_channel_read_nonblocking(channel_, buffer.data(), limit, 0);
    connection->settle();
    if (size > 0) co_return static_cast<size_t>(size);
    if (size == SSH_EOF || ssh_channel_is_eof(channel_) || ssh_channel_is_closed(channel_)) {
      if (connection->is_broken() && !ssh_channel_is_eof(channel_)) {
        co_return unavailable(cat("the ssh connection broke: ", connection->error()));
      }
      co_await wait_for_exit();
      co_return size_t{0};
    }
    if (size < 0 || connection->is_broken()) {
      co_return unavailable(cat("the ssh connection broke: ", connection->error()));
    }
    if (connection->epoch() != before) continue;
    const bool was_notified = co_await connection->changed().wait();
    if (!was_notified) co_return aborted("reading was cancelled");
  }
}

// The end of the data arrives before the exit status.
net::Task<void> SshStream::wait_for_exit() {
  const std::shared_ptr<SshConnection> connection = connection_;
  const auto limit = Clock::now() + kEndOfCommand;
  asio::steady_timer timer(co_await asio::this_coro::executor, limit);
  timer.async_wait([weak = std::weak_ptr(connection)](const net::error_code& error) {
    const auto self = weak.lock();
    if (self && !error) self->changed().notify();
  });
  while (!words_.ended() && !is_closed_ && !ssh_channel_is_closed(channel_) &&
         !connection->is_broken() && Clock::now() < limit) {
    const bool was_notified = co_await connection->changed().wait();
    if (!was_notified) co_return;
  }
}

net::Task<Status> SshStream::write(ByteView bytes) {
  const std::shared_ptr<SshConnection> connection = connection_;
  while (!bytes.empty() || connection->has_output()) {
    if (is_closed_) co_return aborted("the stream was closed");
    const uint64_t before = connection->epoch();
    // libssh buffers the encrypted bytes that the socket does not accept. To limit that memory with hundreds of
    // hosts, each stream writes one piece at a time.
    if (!bytes.empty() && !connection->has_output()) {
      const auto limit = static_cast<uint32_t>(std::min(bytes.size(), kWriteAtOnce));
      const int size = ssh_channel_write(channel_, bytes.data(), limit);
      connection->settle();
      if (size < 0 && size != SSH_AGAIN) {
        co_return unavailable(cat("the host accepts no more data: ", connection->error()));
      }
      if (size > 0) {
        bytes = bytes.subspan(static_cast<size_t>(size));
        continue;
      }
    }
    if (connection->is_broken()) {
      co_return unavailable(cat("the ssh connection broke: ", connection->error()));
    }
    if (connection->epoch() != before) continue;
    const bool was_notified = co_await connection->changed().wait();
    if (!was_notified) co_return aborted("writing was cancelled");
  }
  co_return Status();
}

void SshStream::close() {
  if (std::exchange(is_closed_, true)) return;
  ssh_channel_close(channel_);
  connection_->settle();
  connection_->changed().notify();
}

}  // namespace hvd::launcher
