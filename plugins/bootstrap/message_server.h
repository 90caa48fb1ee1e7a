// Sends rank 0's message to all ranks over a separate socket, for launchers without a data exchange: MessageServer
// sends the message to each client, and ask_until() finds the server at one of a few addresses.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <thread>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/result.h"
#include "base/unique_fd.h"
#include "net/endpoint.h"
#include "net/socket_address.h"

namespace hvd::bootstrap {

// Sends a message to each client that runs as this process's user or on another host. Runs a thread that
// sleeps in poll() until a client connects.
class MessageServer {
 public:
  // Calls `message` on its thread for each client. An error closes the connection of the client.
  MessageServer(UniqueFd listener, std::function<Result<std::string>()> message);
  ~MessageServer();
  MessageServer(const MessageServer&) = delete;

 private:
  void serve();
  void send_to(int client) const;

  const UniqueFd listener_;
  const std::function<Result<std::string>()> message_;
  const UniqueFd end_;
  std::thread thread_;
};

// Listens on all interfaces, by IPv4 and, if the host has it, IPv6.
Result<UniqueFd> listen_everywhere(uint16_t port);

// Reads the message of the server at the first address that answers. Refuses another user's server on this host, unless
// the server has already closed its TCP connection.
Result<std::string> read_message(std::span<const net::SocketAddress> addresses);

// Calls `ask` with 0 to attempts - 1, in repeated rounds, until a call succeeds or returns kPermissionDenied. After the
// deadline, returns kDeadlineExceeded with the message of the last error. The pauses between the rounds double from 20
// ms to 1 s.
Result<Bytes> ask_until(Deadline deadline, int attempts,
                        const std::function<Result<Bytes>(int attempt)>& ask);

}  // namespace hvd::bootstrap
