// A child process on this machine as a Duplex: its standard input and output are the stream, and
// last_words() returns its standard error. The child runs in its own session, so that the terminal's
// Ctrl-C reaches only the launcher, with SIGUSR1 and SIGUSR2 blocked. The loop reaps the child, even after
// the stream is closed.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "launcher/spawn/duplex.h"
#include "launcher/spawn/last_words.h"
#include "net/asio.h"

namespace hvd::launcher {

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
  // Starts the program. The error states the reason of a failure.
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
