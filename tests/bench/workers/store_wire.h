// Code shared by both ends of the rendezvous bench: loopback sockets, and minimal requests signed
// as in PROTOCOL.md.
#pragma once

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>

#include <fstream>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>

#include "base/secrets/secret.h"
#include "base/text.h"
#include "net/http.h"
#include "rendezvous/wire/signature.h"

namespace bench {

[[noreturn]] inline void fail(const std::string& what) {
  throw std::runtime_error(what + ": " + std::strerror(errno));
}

inline void tune(int fd) {
  const int on = 1;
  ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

inline sockaddr_in loopback(uint16_t port, uint32_t last_byte = 1) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(0x7f000000u + last_byte);
  address.sin_port = htons(port);
  return address;
}

// Returns a listener on a free port of loopback, and that port.
inline std::pair<int, uint16_t> listen_on_loopback() {
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address = loopback(0);
  socklen_t size = sizeof address;
  if (::bind(fd, reinterpret_cast<sockaddr*>(&address), size) != 0 || ::listen(fd, 4096) != 0 ||
      ::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size) != 0) {
    fail("cannot listen on loopback");
  }
  return {fd, ntohs(address.sin_port)};
}

inline int connect_to_port(uint16_t port, uint32_t last_byte = 1, int flags = 0) {
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | flags, 0);
  if (fd < 0) fail("cannot make a socket");
  tune(fd);
  const sockaddr_in address = loopback(port, last_byte);
  if (::connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 &&
      errno != EINPROGRESS) {
    fail(hvd::cat("cannot connect to port ", port));
  }
  return fd;
}

inline hvd::Secret secret_of(const std::string& token_file) {
  auto secret = hvd::read_token(token_file, std::nullopt);
  if (!secret.ok()) throw std::runtime_error(secret.status().message());
  return *secret;
}

// Returns the size of the first message in `bytes`, or 0 if it is incomplete. Both ends of this
// bench write at most one Content-Length.
inline size_t end_of_message(std::string_view bytes) {
  const size_t head = bytes.find("\r\n\r\n");
  if (head == std::string_view::npos) return 0;
  constexpr std::string_view kLength = "\r\nContent-Length: ";
  const size_t field = bytes.substr(0, head).find(kLength);
  size_t body = 0;
  if (field != std::string_view::npos) {
    for (size_t i = field + kLength.size(); bytes[i] != '\r'; ++i) {
      body = 10 * body + static_cast<size_t>(bytes[i] - '0');
    }
  }
  const size_t end = head + 4 + body;
  return bytes.size() >= end ? end : 0;
}

// Returns the value of a header, or an empty string.
inline std::string_view header(std::string_view head, std::string_view name) {
  const std::string line = hvd::cat("\r\n", name, ": ");
  const size_t begin = head.find(line);
  if (begin == std::string_view::npos) return {};
  const size_t value = begin + line.size();
  return head.substr(value, head.find("\r\n", value) - value);
}

// Signs one client's requests on a connection.
class Signer {
 public:
  explicit Signer(const hvd::Secret& secret) : secret_(secret) {}

  std::string hello() {
    return hvd::net::request_head("GET", "/v1/hello",
                                  {{"Host", "rendezvous"}, {"Hvd-Nonce", nonce_}}, 0);
  }
  void take_hello(std::string_view response) {
    const std::string_view answer = header(response, "Hvd-Nonce");
    if (!hvd::rendezvous::is_nonce(answer)) throw std::runtime_error("no answer to hello");
    key_.emplace(secret_, nonce_, answer);
  }
  std::string request(std::string_view method, std::string_view target, std::string_view body) {
    const hvd::Digest digest = hvd::sha256(hvd::as_bytes(body));
    const hvd::rendezvous::Proof proof{++count_, digest,
                                       key_->sign_request(count_, method, target, digest)};
    const std::string authorization = hvd::rendezvous::to_string(proof);
    return hvd::net::request_head(method, target,
                                  {{"Host", "rendezvous"}, {"Authorization", authorization}},
                                  body.size()) +
           std::string(body);
  }

 private:
  const hvd::Secret& secret_;
  std::string nonce_ = hvd::rendezvous::make_nonce();
  std::optional<hvd::rendezvous::SessionKey> key_;
  uint64_t count_ = 0;
};

}  // namespace bench
