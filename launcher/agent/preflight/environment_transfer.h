// Receives the files of an environment, and serves them to the next host. Another host sends the files; the launcher
// sends them if there is no other host, or if the transfer from that host fails. The launcher sends the hashes of all
// chunks: no chunk is written or served before its hash was compared. Lives on the agent's loop.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/unique_fd.h"
#include "launcher/agent/preflight/chunk_client.h"
#include "launcher/agent/preflight/chunk_server.h"
#include "launcher/protocol/chunk_table.h"
#include "launcher/protocol/protocol.h"
#include "net/event_loop.h"

namespace hvd::launcher {

class EnvironmentTransfer {
 public:
  struct Events {
    std::function<void(const Message&)> send;  // to the launcher
    // Writes the next part of the files.
    std::function<Status(const StagePart&)> write;
    // Called once: with ok when all files have been written, else with the error.
    std::function<void(const Status&)> on_end;
  };
  // Addresses and ports at which this host may serve the next host.
  struct Network {
    std::vector<HostAddress> addresses;
    net::PortRange ports;
  };

  EnvironmentTransfer(net::EventLoop& loop, Events events);
  EnvironmentTransfer(const EnvironmentTransfer&) = delete;

  // Asks the launcher for the files. `folder`: where write() writes them.
  void begin(const EnvironmentOffer& offer, std::vector<PackageFile> files, std::string folder,
             const Network& network);
  // Takes a message of the launcher. False: it was not expected.
  bool take(const EnvironmentSource& source);
  bool take(const EnvironmentDigests& more);
  bool take(const EnvironmentChunk& chunk);
  // Bytes of chunks that the launcher has sent.
  uint64_t taken() const { return taken_; }
  // Ends the transfer, and no longer serves the next host. No event follows.
  void close();
  // Call on_deadline() when it has passed.
  Deadline deadline() const;
  void on_deadline();

 private:
  enum class State { kIdle, kAsked, kFromHost, kFromLauncher, kOver };

  // Whether this is the next chunk, of its size and hash.
  bool is_expected(uint64_t number, std::string_view bytes) const;
  void write(const std::string& bytes);
  void end(const Status& status);
  bool take_from_host(const Chunk& chunk);
  void ask_launcher(const std::string& why);
  Result<std::string> read(uint64_t number);

  const Events events_;
  ChunkServer server_;
  ChunkClient client_;
  State state_ = State::kIdle;
  std::optional<ChunkTable> chunks_;
  Digest key_{};
  std::string source_;  // the name of the host
  std::string folder_;
  std::vector<Digest> digests_;
  uint64_t written_ = 0;  // chunks
  uint64_t taken_ = 0;
  UniqueFd file_;
  std::optional<size_t> open_;  // index of file_
};

}  // namespace hvd::launcher
