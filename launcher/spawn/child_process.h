// A child process on this machine as a Duplex: its standard input and output are the stream, and last_words() returns
// its standard error. The child runs in its own session, so that the terminal's Ctrl-C reaches only the launcher.
// SIGUSR1 and SIGUSR2 are blocked in the child. The loop reaps the child, even after the stream is closed.
#pragma once

#include <sys/types.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "launcher/spawn/last_words.h"
#include "launcher/spawn/spawner.h"
#include "net/asio.h"

namespace hvd::launcher {

// Waits for the end of a process on a loop, without reaping it. Without pidfds (Linux before 5.3, and seccomp filters
// of that time), the ExitWatch of a child process checks at each SIGCHLD whether the child has ended. Lives on the
// launcher's loop.
class ExitWatch {
 public:
  explicit ExitWatch(net::asio::any_io_executor executor)
      : pidfd_(executor), child_signals_(std::move(executor)) {}

  // Calls `on_exit` once, from the loop, when the child has ended. `on_exit` must keep this object alive, and is
  // destroyed after its call or after close().
  Status begin(pid_t pid, std::function<void()> on_exit);
  void close();

 private:
  void look(pid_t pid, std::function<void()> on_exit);

  net::asio::posix::stream_descriptor pidfd_;
  net::asio::signal_set child_signals_;
};

// The action of close() after it has ended the streams.
enum class ChildEnd {
  kLeave,      // the program ends when its input ends
  kTerminate,  // the program's group gets SIGHUP, since SIGINT and SIGTERM are blocked
};

struct ChildCommand {
  std::vector<std::string> arguments;  // the first is the program: a path, or a name on PATH
  std::vector<std::pair<std::string, std::string>> environment;  // added to the inherited one
  bool inherits_environment = true;  // false: `environment` is the whole environment
  bool joins_errors = false;         // its standard error is part of the stream
  LastWords::Filter filter;          // filters the lines of the child's standard error; or empty
  ChildEnd end = ChildEnd::kLeave;
};

class ChildProcess : public Duplex {
 public:
  static Result<std::unique_ptr<ChildProcess>> start(net::asio::any_io_executor executor,
                                                     const ChildCommand& command);
  ~ChildProcess() override;

  net::Task<Result<size_t>> read_some(std::span<std::byte> buffer) override;
  net::Task<Status> write(ByteView bytes) override;
  void close() override;
  std::string last_words() const override;

  int pid() const;
  bool has_ended() const;
  std::optional<int> exit_code() const;  // unset while the program runs, and if a signal ended it

 private:
  struct State;
  explicit ChildProcess(std::shared_ptr<State> state) : state_(std::move(state)) {}
  std::shared_ptr<State> state_;
};

}  // namespace hvd::launcher
