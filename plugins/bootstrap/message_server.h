// Rank 0's message to all ranks by a socket of its own, for launchers that offer their processes no exchange
// of data: MessageServer sends it to each client, and ask_until() finds the server at one of a few addresses.
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

// Sends its message to each client of this process's user or of another host. Its thread sleeps in poll()
// until a client connects.
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

// Listens on all interfaces, by IPv6 and IPv4 where the host has both.
Result<UniqueFd> listen_everywhere(uint16_t port);

// Reads the message of the server at the first of these addresses that answers. Refuses a server of another
// user of this host, unless it has already closed a TCP connection.
Result<std::string> read_message(std::span<const net::SocketAddress> addresses);

// Calls `ask` with 0 to attempts - 1, again and again, until it succeeds, denies permission, or the deadline
// has passed; returns the last error then. A rank 0 that has not started yet cannot notify the others: the
// pauses double from 20 ms to 1 s.
Result<Bytes> ask_until(Deadline deadline, int attempts,
                        const std::function<Result<Bytes>(int attempt)>& ask);

}  // namespace hvd::bootstrap
