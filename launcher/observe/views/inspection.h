// The launcher's side of `horovodrun ps`, `stack`, `metrics`, `exec`, `resize` and `remove`. These connect to the abstract Unix
// socket @horovodrun/UID/PID/RANDOM, which disappears with the launcher. Only the launcher's user and
// root get an answer. JobInspector owns it. Lives on the launch's loop.
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/unique_fd.h"
#include "launcher/hosts/host_table.h"
#include "launcher/protocol/protocol.h"
#include "net/asio.h"

namespace hvd::launcher {

inline constexpr std::chrono::milliseconds kInspectionTime{5000};

// Asks the agents of all hosts where their ranks are, and waits for their answers, but not long.
class Inspection {
 public:
  // `ask` sends the question of this number to a host; false when there is nobody to answer.
  using Ask = std::function<bool(size_t host, uint32_t number, InspectDetail detail)>;
  // `hosts` outlives this object.
  Inspection(net::asio::any_io_executor executor, const HostTable& hosts, Ask ask)
      : executor_(std::move(executor)), hosts_(hosts), ask_(std::move(ask)) {}

  // By host of the table; empty where nothing came.
  net::Task<std::vector<std::string>> run(InspectDetail detail,
                                          std::chrono::milliseconds limit = kInspectionTime);
  // Sends one host a question by `ask`, which gets its number, and returns the answer; empty on timeout.
  net::Task<std::string> run_on(size_t host, std::function<bool(uint32_t number)> ask);
  void on_answer(size_t host, uint32_t number, const std::string& text);
  // Answers that come when their question has ended go to `callback`.
  void on_late(
      std::function<void(size_t host, InspectDetail detail, const std::string& text)> callback) {
    late_ = std::move(callback);
  }
  // The host does not answer: ends the wait for it.
  void give_up(size_t host);

 private:
  struct Question {
    uint32_t number;
    std::vector<std::string> answers;
    std::vector<bool> is_open;  // by host
    size_t left;
    net::asio::steady_timer answered;
  };

  static void close(Question& question, size_t host);

  net::asio::any_io_executor executor_;
  const HostTable& hosts_;
  Ask ask_;
  // Shared with the waiting calls: a loop that outlives this object may end them after it.
  const std::shared_ptr<std::vector<Question*>> questions_ =
      std::make_shared<std::vector<Question*>>();
  uint32_t last_ = 0;
  // The last questions to all hosts, by number.
  std::map<uint32_t, InspectDetail> details_;
  std::function<void(size_t host, InspectDetail detail, const std::string& text)> late_;
};

class InspectionServer {
 public:
  // Answers "ps", "ps --json", "stack", "stack --native", "metrics LEVEL", "exec ORDER", "resize N" or "remove HOST"; then
  // the socket is closed.
  using Answer = std::function<net::Task<void>(std::string request, net::StreamSocket& caller)>;
  static Result<std::unique_ptr<InspectionServer>> open(net::asio::any_io_executor executor,
                                                        Answer answer);
  ~InspectionServer();

 private:
  class Impl;
  explicit InspectionServer(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}
  std::shared_ptr<Impl> impl_;
};

// Records tell what is said while a command runs. False when the caller is gone.
net::Task<bool> send_record(net::StreamSocket& caller, const Message& message);

// "horovodrun/0/": the beginning of the names of this user's launchers. The pid follows, and random
// digits, so that no other user can bind a name first.
std::string inspection_prefix();

}  // namespace hvd::launcher
