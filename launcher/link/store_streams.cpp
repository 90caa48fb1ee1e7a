#include "launcher/link/store_streams.h"

#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "base/log/log.h"
#include "base/text.h"

namespace hvd::launcher {

namespace asio = net::asio;

Status StoreStreams::open(const net::FrameHeader& header) {
  if (connections_.count(header.stream) != 0) {
    return internal_error(cat("the agent opened stream ", header.stream, " twice"));
  }
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
    // Without a free descriptor, only this connection fails, and the rank tries again.
    if (!std::exchange(has_warned_, true))
      log::warning(
          system_error("the launcher cannot connect a rank to the job's store", errno).message());
    send_(net::FrameType::kReset, header.stream, 0, {});
    return {};
  }
  const asio::generic::stream_protocol protocol(AF_UNIX, 0);
  net::StreamSocket ours(executor_, protocol, ends[0]), servers(executor_, protocol, ends[1]);
  auto connection = std::make_shared<Connection>(std::move(ours), header.credit);
  connections_.emplace(header.stream, connection);
  asio::co_spawn(executor_, read(header.stream, connection), asio::detached);
  asio::co_spawn(executor_, write(header.stream, connection), asio::detached);
  accept_(std::move(servers));
  return {};
}

Status StoreStreams::handle(const net::FrameHeader& header, ByteView payload) {
  if (header.type == net::FrameType::kOpen) return open(header);
  const auto found = connections_.find(header.stream);
  if (found == connections_.end()) return {};  // sent before the agent received kEnd or kReset
  Connection& connection = *found->second;
  switch (header.type) {
    case net::FrameType::kData:
      if (!connection.window.arrived(payload.size()) || connection.has_agent_end) {
        return internal_error("the agent sent more of a store connection than was granted");
      }
      connection.unwritten.insert(connection.unwritten.end(), payload.begin(), payload.end());
      break;
    case net::FrameType::kCredit:
      if (!connection.credit.grant(header.credit)) {
        return internal_error("the agent granted a store connection too much credit");
      }
      break;
    case net::FrameType::kEnd:
      connection.has_agent_end = true;
      break;
    case net::FrameType::kReset:
      connection.is_reset = true;
      break;
    default:
      return internal_error("the agent sent a frame that does not belong to a store connection");
  }
  connection.credited.notify();
  connection.filled.notify();
  return {};
}

// Copies bytes from the server to the rank.
net::Task<void> StoreStreams::read(uint32_t stream, std::shared_ptr<Connection> connection) {
  const auto self = shared_from_this();
  std::array<std::byte, net::kMaxChunk> buffer;
  while (!connection->is_reset && !is_closed_) {
    const size_t room = std::min(buffer.size(), connection->credit.left());
    if (room == 0) {
      co_await connection->credited.wait();
      continue;
    }
    const auto [error, size] = co_await connection->socket.async_read_some(
        asio::buffer(buffer.data(), room), net::use_tuple);
    if (connection->is_reset || is_closed_) break;
    if (error) {
      connection->has_server_end = true;
      send_(net::FrameType::kEnd, stream, 0, {});
      break;
    }
    connection->credit.use(size);
    send_(net::FrameType::kData, stream, 0, ByteView(buffer).first(size));
  }
  settle(stream, *connection);
}

// Copies bytes from the rank to the server.
net::Task<void> StoreStreams::write(uint32_t stream, std::shared_ptr<Connection> connection) {
  const auto self = shared_from_this();
  for (;;) {
    if (is_closed_) break;
    if (connection->unwritten.empty()) {
      if (connection->has_agent_end || connection->is_reset) break;
      co_await connection->filled.wait();
      continue;
    }
    const Bytes bytes = std::exchange(connection->unwritten, {});
    const auto [error, size] =
        co_await asio::async_write(connection->socket, asio::buffer(bytes), net::use_tuple);
    if (error) {
      // The server has closed the connection: reset the rank's connection, even while the rank sends.
      if (!connection->is_reset) send_(net::FrameType::kReset, stream, 0, {});
      connection->is_reset = true;
      break;
    }
    const uint32_t credit = connection->window.consumed(size);
    if (credit > 0 && !connection->has_agent_end && !connection->is_reset) {
      send_(net::FrameType::kCredit, stream, credit, {});
    }
  }
  connection->is_written = true;
  settle(stream, *connection);
}

void StoreStreams::settle(uint32_t stream, Connection& connection) {
  // The server still gets the rank's last bytes. write() calls settle() again after it has written them.
  if (is_closed_ || !connection.is_written) return;
  net::error_code ignored;
  if (connection.is_reset || connection.has_server_end) {
    connection.socket.close(ignored);
    connection.credited.notify();
    connection.filled.notify();
    connections_.erase(stream);
  } else {
    connection.socket.shutdown(asio::socket_base::shutdown_send, ignored);
  }
}

void StoreStreams::close() {
  is_closed_ = true;
  for (const auto& [stream, connection] : std::exchange(connections_, {})) {
    connection->is_reset = true;
    net::error_code ignored;
    connection->socket.close(ignored);
    connection->credited.notify();
    connection->filled.notify();
  }
}

}  // namespace hvd::launcher
