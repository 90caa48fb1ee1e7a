// The channel of one command in an ssh connection, as a stream between the launcher and that
// command. SshSession opens it. Keeps its SshConnection alive. Lives on the launcher's loop.
#pragma once

#include <memory>
#include <string>

#include "launcher/spawn/last_words.h"
#include "launcher/spawn/spawner.h"
#include "launcher/spawn/ssh/ssh_connection.h"

namespace hvd::launcher {

class SshStream : public Duplex {
 public:
  SshStream(std::shared_ptr<SshConnection> connection, ssh_channel channel)
      : connection_(std::move(connection)), channel_(channel) {
    callbacks_.userdata = this;
    callbacks_.channel_exit_status_function = [](ssh_session, ssh_channel, int code, void* self) {
      static_cast<SshStream*>(self)->words_.set_exit_code(code);
    };
    callbacks_.channel_exit_signal_function = [](ssh_session, ssh_channel, const char* name, int,
                                                 const char*, const char*, void* self) {
      static_cast<SshStream*>(self)->words_.set_signal(cat("SIG", name));
    };
    ssh_callbacks_init(&callbacks_);
    ssh_set_channel_callbacks(channel_, &callbacks_);
    connection_->add(this);
  }
  ~SshStream() override {
    close();
    connection_->remove(this);
    ssh_remove_channel_callbacks(channel_, &callbacks_);
    ssh_channel_free(channel_);
    connection_->settle();
  }

  net::Task<Status> start(std::string command);
  net::Task<Result<size_t>> read_some(std::span<std::byte> buffer) override;
  net::Task<Status> write(ByteView bytes) override;
  void close() override;
  std::string last_words() const override { return words_.text(); }

  // Reads standard error, which has no other reader and must not fill the channel's window.
  void drain_errors();

 private:
  net::Task<void> wait_for_exit();

  std::shared_ptr<SshConnection> connection_;
  ssh_channel channel_;
  ssh_channel_callbacks_struct callbacks_{};
  LastWords words_;
  bool is_closed_ = false;
};

}  // namespace hvd::launcher
