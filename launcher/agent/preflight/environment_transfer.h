// Receives the files of an environment, and serves them to the next host. Another host sends the files. The launcher
// sends them if no other host can. After a failed transfer from the other host, the launcher continues with the current
// file. Compares each complete file with its hash in the launcher's list. Passes parts to the next host as they arrive;
// the next host also compares hashes. Lives on the agent's loop.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/result.h"
#include "launcher/agent/preflight/part_server.h"
#include "launcher/protocol/package_list.h"
#include "launcher/protocol/protocol.h"
#include "launcher/protocol/staged_parts.h"
#include "net/event_loop.h"

namespace hvd::launcher {

class EnvironmentTransfer {
 public:
  struct Events {
    std::function<void(const Message&)> send;  // sends a message to the launcher
    // Writes the next part of the files. The current file may begin again from its first part.
    std::function<Status(const StagePart&)> write;
    // Called once: with ok when all files have been written, else with the error. Not called after close(), nor for
    // errors that take() returns.
    std::function<void(const Status&)> on_end;
  };
  // Addresses and ports at which this host may serve the next host.
  struct Network {
    std::vector<HostAddress> addresses;
    net::PortRange ports;
  };

  EnvironmentTransfer(net::EventLoop& loop, Events events);
  EnvironmentTransfer(const EnvironmentTransfer&) = delete;

  // Requests the files from the launcher. `folder`: the folder to which write() writes. `network`: for the next host.
  void begin(const EnvironmentOffer& offer, std::vector<PackageFile> listed,
             const std::string& folder, const Network& network);
  // Handles a message of the launcher. Returns false if the message was not expected.
  bool take(const EnvironmentSource& source);
  // Returns whether the launcher sends the files: take() then handles each part.
  bool wants_part() const { return state_ == State::kFromLauncher || state_ == State::kFailed; }
  // Handles the next part from the launcher. After an error, returns the same error for the parts that the launcher had
  // already sent.
  Status take(const StagePart& part);
  // Total bytes, including paths, of the parts that the launcher has sent.
  uint64_t taken() const { return taken_; }
  // Ends the transfer, and stops serving the next host. No event follows.
  void close();
  Deadline deadline() const;
  void on_deadline();

 private:
  enum class State { kIdle, kAsked, kFromHost, kFromLauncher, kFailed, kOver };

  // Returns whether the part is the next part, and, for the last part of a file, whether the file has the listed hash.
  bool is_expected(const StagePart& part);
  Status write(const StagePart& part);
  void take_from_host(const StagePart& part);
  void ask_launcher(const std::string& why);
  void end(const Status& status);

  const Events events_;
  std::vector<PackageFile> listed_;
  std::vector<StagedEntry> files_;  // the listed files, in the folder
  PartServer server_;
  PartClient client_;
  State state_ = State::kIdle;
  Status failure_;  // the error of a part from the launcher
  Digest key_{};
  std::string source_;   // the name of the host that sends the files
  size_t file_ = 0;      // the index of the current file
  uint64_t offset_ = 0;  // bytes written to the current file
  uint64_t before_ = 0;  // bytes of the files before the current file
  Sha256 hash_;          // hash of the current file
  uint64_t taken_ = 0;
};

}  // namespace hvd::launcher
