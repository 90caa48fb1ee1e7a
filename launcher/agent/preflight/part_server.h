// Serves the files of an environment to the agent of one other host, while this host still receives them. Listens from
// open() until the other host has all files, or until close(). Uses no byte of a client until the client has proved
// that it has the key (staged_parts.h). Limits the number of unproved clients, and their time. Lives on the agent's
// loop, and blocks it only to read a file.
#pragma once

#include <array>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/fork_guard.h"
#include "launcher/agent/host/host_addresses.h"
#include "launcher/agent/preflight/reachability.h"
#include "launcher/protocol/host_job.h"
#include "launcher/protocol/protocol.h"
#include "launcher/protocol/staged_parts.h"
#include "net/event_loop.h"
#include "net/tcp_transport.h"

namespace hvd::launcher {

class PartServer {
 public:
  explicit PartServer(net::EventLoop& loop);
  ~PartServer();
  PartServer(const PartServer&) = delete;

  // Listens on these addresses for a client with the key. `files` outlives this object. Returns the endpoint, with
  // port 0 if the server cannot listen.
  MasterCandidates open(const Digest& key, const std::vector<StagedEntry>& files,
                        const std::vector<HostAddress>& addresses, const net::PortRange& ports);
  // Declares that this host has received this number of bytes of the files.
  void offer(uint64_t bytes);
  void close();
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
  Digest key_{};
  Nonce name_{};
  const std::vector<StagedEntry>* files_ = nullptr;
  uint64_t available_ = 0;  // bytes received by this host
  std::vector<net::TcpListener> listeners_;
  std::vector<std::unique_ptr<Client>> clients_;  // oldest first
  // The end of a pause during which nothing is accepted; never: no pause.
  Deadline pause_end_ = Deadline::never();
};

// Gets the files of an environment from the agent of another host (PartServer). Stops if that host is unreachable, is
// silent for some seconds, or sends data that the key does not authenticate. The caller compares each file with the
// file's hash. Lives on the agent's loop.
class PartClient {
 public:
  struct Events {
    std::function<void(const StagePart&)> on_part;
    // Called when the host sends no more parts, for this reason. This is the last event.
    std::function<void(const std::string& why)> on_failure;
  };

  PartClient(net::EventLoop& loop, Events events)
      : loop_(loop), events_(std::move(events)), reachability_(loop) {}
  ~PartClient() { close(); }
  PartClient(const PartClient&) = delete;

  void begin(const EnvironmentSource& source, const Digest& key);
  void close();
  Deadline deadline() const;
  void on_deadline();

 private:
  void connect(const Reached& reached);
  void on_ready();
  void read_challenge();
  void read_records();
  void fail(const std::string& why);

  net::EventLoop& loop_;
  const Events events_;
  ReachabilityTest reachability_;
  EnvironmentSource source_;
  Digest key_{};
  bool is_running_ = false;
  GuardedFd socket_;
  bool is_connected_ = false;
  std::array<std::byte, kChallengeSize> challenge_{};
  size_t challenged_ = 0;
  std::optional<PartOpener> opener_;
  Deadline silent_at_ = Deadline::never();
};

}  // namespace hvd::launcher
