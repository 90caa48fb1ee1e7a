#include "launcher/agent/doctor/proven_stream.h"

#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>

#include "base/text.h"
#include "launcher/protocol/token_proof.h"
#include "net/socket_address.h"
#include "net/tcp_transport.h"

namespace hvd::launcher {
namespace {

constexpr size_t kMostName = 64;
constexpr size_t kMostText = 1 << 20;
constexpr double kSecondsForAddress = 1;

Digest key_of(const Secret& secret) { return secret.derive("horovod doctor"); }

Nonce random_nonce() {
  Nonce nonce;
  fill_random(nonce);
  return nonce;
}

Secret session_of(const Digest& key, const Nonce& of_server, const Nonce& of_client) {
  Bytes both(of_server.begin(), of_server.end());
  both.insert(both.end(), of_client.begin(), of_client.end());
  return *Secret::from_bytes(Secret::from_bytes(key)->sign(both));
}

Status wait_for(int socket, short events, Deadline deadline) {
  pollfd waiting{socket, events, 0};
  const int ready = ::poll(&waiting, 1, deadline.poll_timeout());
  if (ready > 0 || (ready < 0 && errno == EINTR)) return {};
  return ready < 0 ? system_error("poll", errno) : deadline_exceeded("no answer in time");
}

}  // namespace

Status ProvenStream::write(std::span<const std::byte> bytes, Deadline deadline) {
  while (!bytes.empty()) {
    const ssize_t size = ::send(fd(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (size >= 0) {
      bytes = bytes.subspan(static_cast<size_t>(size));
    } else if (errno == EAGAIN) {
      HVD_RETURN_IF_ERROR(wait_for(fd(), POLLOUT, deadline));
    } else if (errno != EINTR) {
      return system_error("send", errno);
    }
  }
  return {};
}

Status ProvenStream::read(std::span<std::byte> bytes, Deadline deadline) {
  while (!bytes.empty()) {
    const ssize_t size = ::recv(fd(), bytes.data(), bytes.size(), MSG_DONTWAIT);
    if (size == 0) return unavailable("the other host has closed the connection");
    if (size > 0) {
      bytes = bytes.subspan(static_cast<size_t>(size));
    } else if (errno == EAGAIN) {
      HVD_RETURN_IF_ERROR(wait_for(fd(), POLLIN, deadline));
    } else if (errno != EINTR) {
      return system_error("recv", errno);
    }
  }
  return {};
}

// The server's nonce; then the client's nonce, its name in kMostName bytes, and its proof; then the server's proof.
Status ProvenStream::begin_as_client(const Secret& secret, std::string_view name,
                                     Deadline deadline) {
  is_client_ = true;
  const Digest key = key_of(secret);
  Nonce of_server;
  HVD_RETURN_IF_ERROR(read(of_server, deadline));
  const Nonce own = random_nonce();
  std::array<char, kMostName> padded{};
  name.copy(padded.data(), kMostName - 1);
  HVD_RETURN_IF_ERROR(write(own, deadline));
  HVD_RETURN_IF_ERROR(write(std::as_bytes(std::span(padded)), deadline));
  HVD_RETURN_IF_ERROR(write(prove_agent(key, of_server, own, name), deadline));
  Proof proof;
  HVD_RETURN_IF_ERROR(read(proof, deadline));
  if (!is_same(proof, prove_launcher(key, of_server, own))) {
    return permission_denied("another program listens there");
  }
  session_ = session_of(key, of_server, own);
  return {};
}

Status ProvenStream::begin_as_server(const Secret& secret, std::string_view role,
                                     Deadline deadline) {
  const Digest key = key_of(secret);
  const Nonce own = random_nonce();
  HVD_RETURN_IF_ERROR(write(own, deadline));
  Nonce of_client;
  HVD_RETURN_IF_ERROR(read(of_client, deadline));
  std::array<char, kMostName> padded{};
  HVD_RETURN_IF_ERROR(read(std::as_writable_bytes(std::span(padded)), deadline));
  Proof proof;
  HVD_RETURN_IF_ERROR(read(proof, deadline));
  padded.back() = 0;
  name_ = padded.data();
  if (!is_same(proof, prove_agent(key, own, of_client, name_))) {
    return permission_denied("the client does not have the job's secret");
  }
  if (!name_.starts_with(role)) return permission_denied("the client looks for another host");
  HVD_RETURN_IF_ERROR(write(prove_launcher(key, own, of_client), deadline));
  session_ = session_of(key, own, of_client);
  return {};
}

Result<ProvenStream> ProvenStream::connect(const std::vector<std::string>& addresses, uint16_t port,
                                           const Secret& secret, std::string_view name,
                                           Deadline deadline) {
  Status last = unavailable("the host has no address that others can reach");
  for (const std::string& address : addresses) {
    auto attempt = [&]() -> Result<ProvenStream> {
      const Bytes bytes = net::address_bytes(address);
      if (bytes.empty()) return invalid_argument("the address is not numeric");
      const Deadline limit = earlier(deadline, kSecondsForAddress);
      HVD_ASSIGN_OR_RETURN(GuardedFd socket, net::start_connect(bytes, port));
      HVD_RETURN_IF_ERROR(wait_for(socket.get(), POLLOUT, limit));
      if (const int error = net::connect_outcome(socket.get()); error != 0)
        return system_error("connect", error);
      // The kernel connects at once, but the program on a busy host answers later.
      HVD_ASSIGN_OR_RETURN(ProvenStream stream, join(std::move(socket), secret, name, deadline));
      stream.address_ = address;
      return stream;
    }();
    if (attempt.ok()) return attempt;
    last = attempt.status().with_context(net::endpoint_text(net::address_bytes(address), port));
  }
  return last;
}

Result<ProvenStream> ProvenStream::join(GuardedFd socket, const Secret& secret,
                                        std::string_view name, Deadline deadline) {
  ProvenStream stream(std::move(socket));
  net::tune_connection(stream.fd());
  HVD_RETURN_IF_ERROR(stream.begin_as_client(secret, name, deadline));
  return stream;
}

Result<ProvenStream> ProvenStream::accept(GuardedFd socket, const Secret& secret,
                                          std::string_view role, Deadline deadline) {
  ProvenStream stream(std::move(socket));
  net::tune_connection(stream.fd());
  HVD_RETURN_IF_ERROR(stream.begin_as_server(secret, role, deadline));
  return stream;
}

Digest ProvenStream::code_of(std::string_view text, uint64_t number, bool is_from_client) const {
  const std::string covered = cat(is_from_client ? "client " : "server ", number, " ", text);
  return session_.sign(as_bytes(covered));
}

// The size in 4 bytes, little-endian; the text; its code.
Status ProvenStream::send(const nlohmann::json& message, Deadline deadline) {
  const std::string text = message.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  std::array<std::byte, 4> head{};
  for (size_t i = 0; i < head.size(); ++i) head[i] = static_cast<std::byte>(text.size() >> (8 * i));
  const Digest code = code_of(text, sent_++, is_client_);
  HVD_RETURN_IF_ERROR(write(head, deadline));
  HVD_RETURN_IF_ERROR(write(as_bytes(text), deadline));
  return write(code, deadline);
}

Result<nlohmann::json> ProvenStream::receive(Deadline deadline) {
  std::array<std::byte, 4> head{};
  HVD_RETURN_IF_ERROR(read(head, deadline));
  size_t size = 0;
  for (size_t i = 0; i < head.size(); ++i) size |= std::to_integer<size_t>(head[i]) << (8 * i);
  if (size > kMostText) return invalid_argument("a message is too long");
  std::string text(size, '\0');
  HVD_RETURN_IF_ERROR(read(std::as_writable_bytes(std::span(text)), deadline));
  Digest code;
  HVD_RETURN_IF_ERROR(read(code, deadline));
  if (!equal_in_constant_time(code, code_of(text, received_++, !is_client_))) {
    return permission_denied("a message is not from the other host");
  }
  // Code that prints a value calls itself for each level, so deeper values are dropped.
  constexpr int kMostLevels = 16;
  const auto is_shallow = [](int depth, nlohmann::json::parse_event_t, nlohmann::json&) {
    return depth < kMostLevels;
  };
  auto message = nlohmann::json::parse(text, is_shallow, false);
  if (!message.is_object()) return invalid_argument("a message is not a JSON object");
  return message;
}

}  // namespace hvd::launcher
