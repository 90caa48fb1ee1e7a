// Passes the files of an environment on to the agent of one other host, while this host still gets them. Listens from
// open() until that host has all, or close(). Acts on no byte of a client before the client has proven the key
// (chunk_stream.h). Clients that have proven nothing are limited in number and time. Lives on the agent's loop, and
// never blocks it but to read a file.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/fork_guard.h"
#include "base/result.h"
#include "launcher/agent/host/host_addresses.h"
#include "launcher/protocol/chunk_stream.h"
#include "launcher/protocol/host_job.h"
#include "net/event_loop.h"
#include "net/tcp_transport.h"

namespace hvd::launcher {

class ChunkServer {
 public:
  // Returns the bytes of a chunk that this host has.
  using Read = std::function<Result<std::string>(uint64_t number)>;

  ChunkServer(net::EventLoop& loop, Read read);
  ~ChunkServer();
  ChunkServer(const ChunkServer&) = delete;

  // Listens at these addresses for a client with the key. `size`: the number of chunks. Returns where; without a port
  // if it cannot listen.
  MasterCandidates open(const Digest& key, uint64_t size, const std::vector<HostAddress>& addresses,
                        const net::PortRange& ports);
  // This host has the first `count` chunks.
  void offer(uint64_t count);
  void close();
  // Call on_deadline() when it has passed.
  Deadline deadline() const;
  void on_deadline();

 private:
  struct Client;

  void accept(const net::TcpListener& listener);
  void stop_listening();
  void on_event(Client& client, uint32_t events);
  void read_request(Client& client);
  void send(Client& client);
  bool write(Client& client);
  void drop(const Client& client);

  net::EventLoop& loop_;
  const Read read_;
  Digest key_{};
  Nonce name_{};
  uint64_t size_ = 0;
  uint64_t available_ = 0;
  std::vector<net::TcpListener> listeners_;
  std::vector<std::unique_ptr<Client>> clients_;  // the oldest first
  Deadline pause_end_ = Deadline::never();        // accepts nothing before; never: it accepts
};

}  // namespace hvd::launcher
