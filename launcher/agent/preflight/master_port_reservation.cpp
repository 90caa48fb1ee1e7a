#include "launcher/agent/preflight/master_port_reservation.h"

#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>

#include "base/proc_file.h"
#include "base/secrets/secret.h"
#include "base/text.h"
#include "net/packet_socket.h"

namespace hvd::launcher {

namespace {

constexpr uint16_t kLowest = 10000;
constexpr int kTries = 100;
// Maximum number of clients that have the nonce and have not closed their connections. One more resets the oldest.
constexpr size_t kMostClients = 64;
constexpr int kAcceptsPerEvent = 64;
// The pause after an accept that failed because of a lack of descriptors or memory.
constexpr double kSecondsOfLack = 0.5;

// Returns the kernel's port range for sockets that bind to port 0.
net::PortRange ephemeral_ports() {
  const std::string all = read_proc_file("/proc/sys/net/ipv4/ip_local_port_range");
  const std::string_view text = trim(all);
  const size_t gap = text.find_first_of("\t ");
  const auto first = parse_int(text.substr(0, gap));
  const auto last = parse_int(trim(text.substr(std::min(gap, text.size()))));
  if (!first || !last) return {32768, 60999};
  return {static_cast<uint16_t>(*first), static_cast<uint16_t>(*last)};
}

uint16_t random_port(const net::PortRange& ephemeral) {
  const int below = std::max(0, ephemeral.first - kLowest);
  const int above = 65535 - ephemeral.last;
  const auto number = static_cast<uint32_t>(random_number());
  if (below + above == 0) return static_cast<uint16_t>(kLowest + number % (65536 - kLowest));
  const int chosen = static_cast<int>(number % static_cast<uint32_t>(below + above));
  return static_cast<uint16_t>(chosen < below ? kLowest + chosen
                                              : ephemeral.last + 1 + chosen - below);
}

}  // namespace

// Marks the port as reserved, for agents of other jobs, until this agent ends: no socket holds the port between
// release() and rank 0's bind. Returns false if the port is marked already. With `only_own`, marks of other users are
// ignored.
bool MasterPortReservation::claim(uint16_t port, bool only_own) {
  const std::string name = cat("horovod-port-", port);
  auto mark = net::listen_for_packets(name);
  claim_.reset(mark.ok() ? mark->release() : -1);
  if (claim_ || !only_own) return static_cast<bool>(claim_);
  const auto holder = net::connect_to_listener(name, SOCK_SEQPACKET);
  return !holder || holder->uid != ::geteuid();
}

Status MasterPortReservation::listen(const net::PortRange& ports,
                                     const std::vector<Bytes>& addresses, bool only_own) {
  const net::PortRange ephemeral = ephemeral_ports();
  const int tries = ports.is_any() ? kTries : ports.last - ports.first + 1;
  Status last = failed_precondition("other jobs hold it");
  for (int i = 0; i < tries; ++i) {
    const uint16_t port =
        ports.is_any() ? random_port(ephemeral) : static_cast<uint16_t>(ports.first + i);
    if (!claim(port, only_own)) continue;
    // Test all addresses, because rank 0 may bind to any address of this host.
    last = net::TcpListener::open({port, port}).status();
    if (!last.ok()) continue;
    auto listeners = net::TcpListener::open_at(addresses, {port, port});
    last = listeners.status();
    if (!last.ok()) continue;
    listeners_ = *std::move(listeners);
    candidates_.port = port;
    return {};
  }
  return last;
}

Status MasterPortReservation::open(const net::PortRange& ports,
                                   const std::vector<HostAddress>& addresses) {
  std::vector<Bytes> bytes;
  for (const HostAddress& address : addresses) {
    candidates_.addresses.emplace_back(address.text, address.interface);
    bytes.push_back(address.bytes);
  }
  Status status = listen(ports, bytes, false);
  // Any user can mark any port, so ignore other users' marks if no other port is free.
  if (!status.ok()) status = listen(ports, bytes, true);
  if (!status.ok()) {
    return status.with_context(cat("no port is free to be the job's MASTER_PORT",
                                   ports.is_any() ? "" : ", give another --port-range"));
  }
  fill_random(candidates_.nonce);
  for (const net::TcpListener& listener : listeners_) {
    const auto take = [this, &listener](uint32_t) { accept(listener); };
    if (!loop_.watch(listener.socket.get(), EPOLLIN, take)) {
      return system_error("cannot watch the job's MASTER_PORT", errno);
    }
  }
  return {};
}

void MasterPortReservation::accept(const net::TcpListener& listener) {
  // Limit the number of accepts per event, so that many clients do not block the agent. The loop repeats the event.
  for (int i = 0; i < kAcceptsPerEvent; ++i) {
    net::Accepted accepted = net::accept_from(listener);
    if (accepted.error != 0) {
      for (const net::TcpListener& each : listeners_) loop_.change(each.socket.get(), 0);
      pause_end_ = Deadline::after_seconds(kSecondsOfLack);
    }
    if (!accepted.socket) return;
    const int fd = accepted.socket.get();
    // A new connection's send buffer is empty, so it accepts these bytes immediately.
    static_cast<void>(::send(fd, candidates_.nonce.data(), candidates_.nonce.size(), MSG_NOSIGNAL));
    if (clients_.size() >= kMostClients) {
      reset(clients_.front());
      clients_.erase(clients_.begin());
    }
    // Let the client close first: the side that closes first keeps the port in TIME_WAIT.
    loop_.watch(fd, EPOLLIN | EPOLLRDHUP, [this, fd](uint32_t) { drop(fd); });
    clients_.push_back(std::move(accepted.socket));
  }
}

void MasterPortReservation::on_deadline() {
  pause_end_ = Deadline::never();
  for (const net::TcpListener& each : listeners_) loop_.change(each.socket.get(), EPOLLIN);
}

void MasterPortReservation::drop(int fd) {
  loop_.unwatch(fd);
  std::erase_if(clients_, [fd](const GuardedFd& client) { return client.get() == fd; });
}

// Sets the connection to be reset when it is closed next, which leaves no TIME_WAIT.
void MasterPortReservation::reset(const GuardedFd& client) {
  loop_.unwatch(client.get());
  const linger at_once{1, 0};
  ::setsockopt(client.get(), SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
}

void MasterPortReservation::release() {
  for (const net::TcpListener& each : listeners_) loop_.unwatch(each.socket.get());
  listeners_.clear();
  for (const GuardedFd& client : clients_) reset(client);
  clients_.clear();
  pause_end_ = Deadline::never();
}

}  // namespace hvd::launcher
