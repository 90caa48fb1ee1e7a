#include "launcher/agent/link/store_tunnel.h"

#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "launcher/agent/link/accepting.h"
#include "net/socket_address.h"

namespace hvd::launcher {

namespace {

constexpr uint32_t kWindow = 256 << 10;
constexpr auto kStore = net::Urgency::kStore;

}  // namespace

Status StoreTunnel::listen(uint32_t credit) {
  const net::Endpoint here{net::Endpoint::Family::kUnix, "@" + name_, {}, 0};
  auto socket = net::listen_on(*net::numeric_address(here));
  if (!socket.ok()) return socket.error().with_context("the ranks' store connections");
  HVD_RETURN_IF_ERROR(watch(*std::move(socket), listener_));
  credit_ = credit;
  return {};
}

Status StoreTunnel::listen_on_loopback(const net::PortRange& ports) {
  Result<UniqueFd> socket = hvd::launcher::listen_on_loopback(ports);
  if (!socket.ok()) return socket.error().with_context("Horovod's own workers");
  HVD_ASSIGN_OR_RETURN(const net::SocketAddress bound, net::local_address(socket->get()));
  loopback_port_ = net::to_endpoint(bound).port;
  return watch(*std::move(socket), loopback_);
}

// Answers as the server answers on its own port (rendezvous/PROTOCOL.md, "Unsigned").
void StoreTunnel::refuse(int socket, const net::PeerUser& peer) {
  const std::string why = peer.refusal() + "\n";
  const std::string answer =
      cat("HTTP/1.1 403 Forbidden\r\nConnection: close\r\nContent-Length: ", why.size(), "\r\n\r\n",
          why);
  (void)!::send(socket, answer.data(), answer.size(), MSG_NOSIGNAL);
}

Status StoreTunnel::watch(UniqueFd socket, UniqueFd& listener) {
  if (!loop_.watch(socket.get(), EPOLLIN, [this, &listener](uint32_t) { accept(listener); })) {
    return system_error("cannot watch the store's socket", errno);
  }
  listener = std::move(socket);
  return {};
}

void StoreTunnel::accept(const UniqueFd& listener) {
  const bool is_loopback = &listener == &loopback_;
  accept_all(loop_, listener, [this, is_loopback](UniqueFd socket) {
    if (is_loopback) {
      const net::PeerUser peer = net::peer_user(socket.get());
      if (!peer.is_own_or_elsewhere()) return refuse(socket.get(), peer);
    }
    const uint32_t stream = next_stream_++;
    const int fd = socket.get();
    connections_.emplace(stream, Connection{.socket = std::move(socket),
                                            .credit = net::Credit(credit_),
                                            .window = net::Window(kWindow),
                                            .unwritten = {}});
    outbox_.put(net::FrameType::kOpen, stream, kWindow, {}, kStore);
    loop_.watch(fd, EPOLLIN, [this, stream](uint32_t events) { on_ready(stream, events); });
  });
}

void StoreTunnel::on_ready(uint32_t stream, uint32_t events) {
  const auto found = connections_.find(stream);
  if (found == connections_.end()) return;
  Connection& connection = found->second;
  if ((events & EPOLLOUT) != 0) write(stream, connection);
  if (connections_.count(stream) != 0 && (events & (EPOLLIN | EPOLLHUP | EPOLLERR)) != 0) {
    read(stream, connection, (events & (EPOLLHUP | EPOLLERR)) != 0);
  }
  settle(stream);
}

void StoreTunnel::read(uint32_t stream, Connection& connection, bool is_hung_up) {
  if (connection.has_read_end) {
    if (is_hung_up) reset(stream);
    return;
  }
  std::array<std::byte, net::kMaxChunk> buffer;
  const size_t room = std::min(buffer.size(), connection.credit.left());
  if (room == 0) return;
  const ssize_t size = ::read(connection.socket.get(), buffer.data(), room);
  if (size > 0) {
    connection.credit.use(static_cast<size_t>(size));
    outbox_.put(net::FrameType::kData, stream, 0, ByteView(buffer).first(static_cast<size_t>(size)),
                kStore);
  } else if (size == 0 && !is_hung_up) {
    connection.has_read_end = true;
    outbox_.put(net::FrameType::kEnd, stream, 0, {}, kStore);
  } else if (size == 0 || (errno != EAGAIN && errno != EINTR)) {
    reset(stream);  // the rank has closed the socket or ended, and reads no answer
  }
}

void StoreTunnel::write(uint32_t stream, Connection& connection) {
  if (connection.unwritten.empty()) return;
  const ssize_t size = ::send(connection.socket.get(), connection.unwritten.data(),
                              connection.unwritten.size(), MSG_NOSIGNAL);
  if (size < 0) {
    if (errno != EAGAIN && errno != EINTR) reset(stream);
    return;
  }
  connection.unwritten.erase(connection.unwritten.begin(), connection.unwritten.begin() + size);
  const uint32_t credit = connection.window.consumed(static_cast<size_t>(size));
  if (credit > 0 && !connection.has_launcher_end) {
    outbox_.put(net::FrameType::kCredit, stream, credit, {}, kStore);
  }
}

void StoreTunnel::settle(uint32_t stream) {
  const auto found = connections_.find(stream);
  if (found == connections_.end()) return;
  Connection& connection = found->second;
  if (connection.has_launcher_end && connection.unwritten.empty()) {
    if (connection.has_read_end) return drop(stream);
    ::shutdown(connection.socket.get(), SHUT_WR);
  }
  uint32_t events = 0;
  if (!connection.has_read_end && connection.credit.left() > 0) events |= EPOLLIN;
  if (!connection.unwritten.empty()) events |= EPOLLOUT;
  loop_.change(connection.socket.get(), events);
}

Status StoreTunnel::handle(const net::FrameHeader& header, ByteView payload) {
  const auto found = connections_.find(header.stream);
  if (found == connections_.end()) {
    // The launcher may have sent this frame before it received the end of the connection.
    if (header.stream < next_stream_) return {};
    return internal_error(cat("the launcher named the unknown stream ", header.stream));
  }
  Connection& connection = found->second;
  switch (header.type) {
    case net::FrameType::kData:
      if (!connection.window.arrived(payload.size()) || connection.has_launcher_end) {
        return internal_error("the launcher sent more to a store connection than was granted");
      }
      connection.unwritten.insert(connection.unwritten.end(), payload.begin(), payload.end());
      write(header.stream, connection);
      break;
    case net::FrameType::kCredit:
      if (!connection.credit.grant(header.credit)) {
        return internal_error("the launcher granted a store connection too much credit");
      }
      break;
    case net::FrameType::kEnd:
      connection.has_launcher_end = true;
      break;
    case net::FrameType::kReset:
      // Write the bytes that arrived before the reset, as many as the socket accepts immediately.
      write(header.stream, connection);
      drop(header.stream);
      return {};
    default:
      return internal_error("the launcher sent a frame that does not belong to a store connection");
  }
  settle(header.stream);
  return {};
}

void StoreTunnel::reset(uint32_t stream) {
  outbox_.put(net::FrameType::kReset, stream, 0, {}, kStore);
  drop(stream);
}

void StoreTunnel::drop(uint32_t stream) {
  const auto found = connections_.find(stream);
  if (found == connections_.end()) return;
  loop_.unwatch(found->second.socket.get());
  connections_.erase(found);
  for (const UniqueFd* listener : {&listener_, &loopback_}) {
    if (*listener) loop_.change(listener->get(), EPOLLIN);
  }
}

void StoreTunnel::close() {
  while (!connections_.empty()) drop(connections_.begin()->first);
  for (UniqueFd* listener : {&listener_, &loopback_}) {
    if (*listener) loop_.unwatch(listener->get());
    listener->reset();
  }
}

}  // namespace hvd::launcher
