// The launcher's side of the commands `horovodrun ps`, `stack`, `metrics`, `exec`, `resize` and `remove`. The commands
// connect to the abstract Unix socket @horovodrun/UID/PID/RANDOM, which disappears with the launcher. Only the
// launcher's user and root get an answer. JobInspector owns this object. Lives on the launch's loop.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/unique_fd.h"
#include "launcher/hosts/host_table.h"
#include "launcher/protocol/protocol.h"
#include "net/asio.h"

namespace hvd::launcher {

inline constexpr std::chrono::milliseconds kInspectionTime{5000};

// Queries the agents about their ranks, and waits for their answers up to a time limit.
class Inspection {
 public:
  // Creates the question with this number.
  using Question = std::function<Message(uint32_t number)>;
  // Sends a question to a host; returns false if the host has no agent to answer.
  using Send = std::function<bool(size_t host, const Message& question)>;
  // Receives a sample with metrics that arrives after the end of its question.
  using Late = std::function<void(size_t host, HostAnswer answer)>;
  // `hosts` must outlive this object.
  Inspection(net::asio::any_io_executor executor, const HostTable& hosts, Send send, Late late)
      : executor_(std::move(executor)),
        hosts_(hosts),
        send_(std::move(send)),
        late_(std::move(late)) {}

  // Returns the answers, indexed by host of the table.
  net::Task<std::vector<HostAnswer>> ask_all(Question question,
                                             std::chrono::milliseconds limit = kInspectionTime);
  net::Task<HostAnswer> ask(size_t host, Question question);
  void on_answer(size_t host, uint32_t number, HostAnswer answer);
  // Stops waiting for answers of this host.
  void give_up(size_t host);

 private:
  struct Open {
    uint32_t number;
    std::vector<HostAnswer> answers;
    std::vector<bool> is_open;  // indexed by host
    size_t left;
    net::asio::steady_timer answered;
  };

  net::Task<std::vector<HostAnswer>> ask(std::vector<size_t> hosts, Question question,
                                         std::chrono::milliseconds limit);
  static void close(Open& open, size_t host);

  net::asio::any_io_executor executor_;
  const HostTable& hosts_;
  const Send send_;
  const Late late_;
  // Shared with the waiting calls, because a loop that outlives this object may resume them later.
  const std::shared_ptr<std::vector<Open*>> open_ = std::make_shared<std::vector<Open*>>();
  uint32_t last_ = 0;
};

class InspectionServer {
 public:
  // Answers "ps", "ps --json", "stack", "stack --native", "metrics LEVEL", "exec ORDER", "resize N" or "remove
  // HOST|RANK", and then closes the socket.
  using Answer = std::function<net::Task<void>(std::string request, net::StreamSocket& caller)>;
  static Result<std::unique_ptr<InspectionServer>> open(net::asio::any_io_executor executor,
                                                        Answer answer);
  ~InspectionServer();

 private:
  class Impl;
  explicit InspectionServer(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}
  std::shared_ptr<Impl> impl_;
};

// Sends a record with a message while a command runs. Returns false if the caller has disconnected.
net::Task<bool> send_record(net::StreamSocket& caller, const Message& message);

// Returns "horovodrun/0/", the beginning of the names of this user's launchers. The pid follows, and then random
// digits, so that other users cannot bind a name first.
std::string inspection_prefix();

}  // namespace hvd::launcher
