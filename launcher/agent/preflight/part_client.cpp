#include "launcher/agent/preflight/part_client.h"

#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/secrets/secret.h"
#include "base/text.h"
#include "net/socket_address.h"
#include "net/tcp_transport.h"

namespace hvd::launcher {
namespace {

// The time limit for a complete record. A server without a part sends a record every second.
constexpr double kSilenceSeconds = 10;
constexpr size_t kReadSize = 64 << 10;

}  // namespace

void PartClient::begin(const EnvironmentSource& source, const Digest& key) {
  source_ = source;
  key_ = key;
  is_running_ = true;
  reachability_.begin(source_.server,
                      [this](const ReachabilityTested& tested) { connect(tested.reached); });
}

void PartClient::connect(const Reached& reached) {
  if (!is_running_) return;
  if (reached.empty()) {
    std::string tried;
    for (const auto& [address, interface] : source_.server.addresses) {
      tried += cat(tried.empty() ? "" : ", ", address, " (", interface, ")");
    }
    return fail(cat("it reaches host ", source_.host, " at none of its addresses, port ",
                    source_.server.port, ": ", tried));
  }
  auto socket = net::start_connect(net::address_bytes(reached.front().first), source_.server.port);
  if (!socket.ok()) return fail(socket.status().message());
  socket_ = *std::move(socket);
  silent_at_ = Deadline::after_seconds(kSilenceSeconds);
  if (!loop_.watch(socket_.get(), EPOLLOUT, [this](uint32_t) { on_ready(); })) {
    fail("a connection cannot be watched");
  }
}

void PartClient::on_ready() {
  if (!is_connected_) {
    if (const int error = net::connect_outcome(socket_.get()); error != 0) {
      return fail(cat("it cannot connect to host ", source_.host, ": ", std::strerror(error)));
    }
    is_connected_ = true;
    net::tune_connection(socket_.get());
    loop_.change(socket_.get(), EPOLLIN);
    return;
  }
  opener_ ? read_records() : read_challenge();
}

void PartClient::read_challenge() {
  const ssize_t size =
      ::read(socket_.get(), challenge_.data() + challenged_, challenge_.size() - challenged_);
  if (size < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (size <= 0) return fail(cat("host ", source_.host, " has closed the connection"));
  challenged_ += static_cast<size_t>(size);
  if (challenged_ < challenge_.size()) return;
  PartNonces nonces;
  const auto middle = challenge_.begin() + sizeof(Nonce);
  if (!std::equal(challenge_.begin(), middle, source_.server.nonce.begin())) {
    return fail(cat("another program than the agent of host ", source_.host, " answers there"));
  }
  std::copy(middle, challenge_.end(), nonces.of_server.begin());
  fill_random(nonces.of_client);
  const Bytes request = make_part_request(key_, nonces);
  // A new connection's send buffer is empty, so it accepts the request immediately.
  if (::send(socket_.get(), request.data(), request.size(), MSG_NOSIGNAL) !=
      static_cast<ssize_t>(request.size())) {
    return fail(cat("host ", source_.host, " has closed the connection"));
  }
  opener_.emplace(key_, nonces);
}

void PartClient::read_records() {
  std::array<std::byte, kReadSize> bytes;
  const ssize_t size = ::read(socket_.get(), bytes.data(), bytes.size());
  if (size < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (size < 0) {
    return fail(cat("the connection to host ", source_.host, " broke: ", std::strerror(errno)));
  }
  if (size == 0) return fail(cat("host ", source_.host, " has closed the connection"));
  opener_->feed(ByteView(bytes).first(static_cast<size_t>(size)));
  while (is_running_) {
    const auto part = opener_->next();
    if (!part.ok()) {
      return fail(cat("host ", source_.host, " has sent something else than parts of files (",
                      part.status().message(), ")"));
    }
    if (!*part) return;
    silent_at_ = Deadline::after_seconds(kSilenceSeconds);
    if ((*part)->kind != StageKind::kEnd) events_.on_part(**part);
  }
}

Deadline PartClient::deadline() const {
  const Deadline reach = reachability_.deadline();
  return reach.time() < silent_at_.time() ? reach : silent_at_;
}

void PartClient::on_deadline() {
  if (reachability_.deadline().passed()) reachability_.on_deadline();
  if (silent_at_.passed()) {
    fail(cat("host ", source_.host, " has sent nothing for ", kSilenceSeconds, " s"));
  }
}

void PartClient::fail(const std::string& why) {
  close();
  events_.on_failure(why);
}

void PartClient::close() {
  is_running_ = false;
  silent_at_ = Deadline::never();
  if (socket_) loop_.unwatch(socket_.get());
  socket_.reset();
}

}  // namespace hvd::launcher
