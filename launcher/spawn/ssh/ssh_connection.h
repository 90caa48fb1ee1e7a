// A libssh session and its socket, driven by the loop: from a host's name to an authenticated
// connection.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/text.h"
#include "launcher/spawn/spawner.h"
#include "launcher/spawn/ssh/known_hosts.h"
#include "launcher/spawn/ssh/libssh.h"
#include "launcher/spawn/ssh/ssh_login.h"
#include "launcher/spawn/ssh/ssh_session.h"
#include "net/asio.h"
#include "net/notification.h"

namespace hvd::launcher {

class SshStream;

// The libssh session and its socket. A read by libssh for one waiting coroutine may bring data for
// another coroutine. Counters therefore detect all progress of libssh, and any progress wakes all
// waiters.
class SshConnection : public std::enable_shared_from_this<SshConnection> {
 public:
  explicit SshConnection(net::asio::any_io_executor executor)
      : changed_(executor), watch_(executor), session_(ssh_new()), event_(ssh_event_new()) {}
  ~SshConnection() {
    net::error_code ignored;
    watch_.close(ignored);
    settle();
  }

  Status configure(const SshLogin& login, SshFailure& failure);
  net::Task<Status> connect(const SshLogin& login, std::function<void(SpawnStage)> on_stage,
                            SshFailure& failure);
  Status check_host_key(const SshLogin& login);
  net::Task<Status> authenticate(const SshLogin& login, SshFailure& failure);
  net::Task<Result<std::unique_ptr<Duplex>>> run(std::string command);

  // Repeats a call of libssh while it returns `again`, and waits for the socket in between.
  // `was_notified` false means that the coroutine was cancelled.
  template <typename Call>
  net::Task<Result<int>> finish(Call call, int again) {
    for (;;) {
      const uint64_t before = epoch_;
      const int outcome = call();
      settle();
      if (outcome != again) co_return outcome;
      if (epoch_ != before) continue;
      // libssh also asks for repetition if the connection broke during authentication.
      if (is_broken()) co_return unavailable(cat("the ssh connection broke: ", error()));
      const bool was_notified = co_await changed_.wait();
      if (!was_notified) co_return aborted("the connection was cancelled");
    }
  }

  // Call it after every call of libssh: sends queued data, reads received data, and wakes all waiters.
  void settle();
  uint64_t epoch() const { return epoch_; }
  net::Notification& changed() { return changed_; }
  bool has_output() const { return ssh_get_poll_flags(session_.get()) & SSH_WRITE_PENDING; }
  bool is_broken() const {
    return (ssh_get_status(session_.get()) & (SSH_CLOSED | SSH_CLOSED_ERROR)) != 0;
  }
  std::string error() const { return printable(ssh_get_error(session_.get())); }
  void add(SshStream* stream) { streams_.push_back(stream); }
  void remove(SshStream* stream) { std::erase(streams_, stream); }

 private:
  void arm();
  bool set(ssh_options_e option, const std::string& value);
  // Returns false if libssh does not accept one of the options.
  bool set_options(const SshLogin& login);
  std::string host_key_algorithms(const SshSettings& settings) const;
  net::Task<Result<int>> try_key_file(std::string path, std::vector<std::string>& tried,
                                      std::string& beyond_libssh);
  Status refused(const SshLogin& login, int outcome, const std::vector<std::string>& tried) const;

  net::Notification changed_;
  net::asio::posix::stream_descriptor watch_;  // a duplicate: libssh may close the original
  SessionPtr session_;
  EventPtr event_;  // must be destroyed before the session
  ssh_counter_struct counters_{};
  std::vector<SshStream*> streams_;
  uint64_t epoch_ = 0;
  uint64_t seen_bytes_ = 0;
  bool seen_broken_ = false;
  bool seen_output_ = false;
  bool waits_to_read_ = false;
  bool waits_to_write_ = false;
  KnownHost known_;
};

}  // namespace hvd::launcher
