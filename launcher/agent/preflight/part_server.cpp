#include "launcher/agent/preflight/part_server.h"

#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/secrets/secret.h"
#include "base/text.h"
#include "net/socket_address.h"

namespace hvd::launcher {
namespace {

constexpr size_t kMostPeers = 64;
constexpr int kAcceptsAtOnce = 64;
constexpr double kRequestSeconds = 10;
// A waiting client gets a record without a part at this interval, which distinguishes a slow host from a lost host.
constexpr double kSecondsOfSilence = 1;
// The pause after an accept that failed because of a lack of descriptors or memory.
constexpr double kPauseSeconds = 0.5;

// The time limit for a complete record. A server without a part sends a record every second.
constexpr double kSilenceSeconds = 10;
constexpr size_t kReadSize = 64 << 10;

}  // namespace

struct PartServer::Client {
  GuardedFd socket;
  Nonce nonce{};
  std::array<std::byte, kRequestSize> request{};
  size_t received = 0;
  std::optional<PartSealer> sealer{};  // set after the request
  std::optional<StagedParts> parts{};
  Bytes record{};  // the record that is being sent
  size_t written = 0;
  // The time limit for the request; later, the time of the next record without a part.
  Deadline deadline = Deadline::after_seconds(kRequestSeconds);
};

PartServer::PartServer(net::EventLoop& loop) : loop_(loop) {}

PartServer::~PartServer() { close(); }

MasterCandidates PartServer::open(const Digest& key, const std::vector<StagedEntry>& files,
                                  const std::vector<HostAddress>& addresses,
                                  const net::PortRange& ports) {
  key_ = key;
  files_ = &files;
  std::vector<Bytes> bytes;
  for (const HostAddress& address : addresses) bytes.push_back(address.bytes);
  auto listeners = net::TcpListener::open_at(bytes, ports);
  if (!listeners.ok() || listeners->empty()) return {};
  listeners_ = *std::move(listeners);
  for (const net::TcpListener& listener : listeners_) {
    const auto take = [this, &listener](uint32_t) { accept(listener); };
    if (!loop_.watch(listener.socket.get(), EPOLLIN, take)) {
      stop_listening();
      return {};
    }
  }
  fill_random(name_);
  MasterCandidates found{.port = listeners_.front().port, .nonce = name_, .addresses = {}};
  for (const HostAddress& address : addresses) {
    found.addresses.emplace_back(address.text, address.interface);
  }
  return found;
}

void PartServer::accept(const net::TcpListener& listener) {
  for (int i = 0; i < kAcceptsAtOnce; ++i) {
    net::Accepted accepted = net::accept_from(listener);
    if (accepted.error != 0) {
      for (const net::TcpListener& each : listeners_) loop_.change(each.socket.get(), 0);
      pause_end_ = Deadline::after_seconds(kPauseSeconds);
    }
    if (!accepted.socket) return;
    if (clients_.size() >= kMostPeers) {
      const auto stranger = std::ranges::find_if(
          clients_, [](const auto& client) { return !client->sealer.has_value(); });
      if (stranger == clients_.end()) return;
      drop(**stranger);
    }
    auto client = std::make_unique<Client>(Client{.socket = std::move(accepted.socket)});
    const int fd = client->socket.get();
    fill_random(client->nonce);
    Bytes challenge(name_.begin(), name_.end());
    challenge.insert(challenge.end(), client->nonce.begin(), client->nonce.end());
    // A new connection's send buffer is empty, so it accepts the challenge immediately.
    static_cast<void>(::send(fd, challenge.data(), challenge.size(), MSG_NOSIGNAL));
    if (!loop_.watch(fd, EPOLLIN, [this, client = client.get()](uint32_t events) {
          on_event(*client, events);
        })) {
      continue;
    }
    clients_.push_back(std::move(client));
  }
}

void PartServer::on_event(Client& client, uint32_t events) {
  if (!client.sealer) return read_request(client);
  if ((events & ~static_cast<uint32_t>(EPOLLOUT)) == 0) return send(client);
  // A client sends nothing after its request, so this event is its end: it has received everything, or is lost.
  const bool has_all = client.parts->has_ended() && client.record.empty();
  drop(client);
  const auto is_served = [](const auto& each) { return each->sealer.has_value(); };
  if (has_all && std::ranges::none_of(clients_, is_served)) close();
}

void PartServer::read_request(Client& client) {
  const ssize_t size = ::read(client.socket.get(), client.request.data() + client.received,
                              client.request.size() - client.received);
  if (size < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (size <= 0) return drop(client);
  client.received += static_cast<size_t>(size);
  if (client.received < client.request.size()) return;
  const auto of_client = check_part_request(key_, client.nonce, client.request);
  if (!of_client) return drop(client);
  net::tune_connection(client.socket.get());
  client.sealer.emplace(key_, PartNonces{client.nonce, *of_client});
  client.parts.emplace(*files_, "--stage-env");
  client.deadline = Deadline::never();
  send(client);
}

// Sends at most one record, so that other events of the loop do not wait long.
void PartServer::send(Client& client) {
  bool is_starved = false;
  if (client.record.empty() && !client.parts->has_ended()) {
    const auto part = client.parts->next(available_);
    if (!part.ok()) return drop(client);
    is_starved = !part->has_value();
    if (!is_starved) client.record = client.sealer->seal(**part);
  }
  if (!write(client)) return drop(client);
  const bool has_more = !client.record.empty() || !(is_starved || client.parts->has_ended());
  loop_.change(client.socket.get(), has_more ? EPOLLIN | EPOLLOUT : EPOLLIN);
  client.deadline = is_starved ? Deadline::after_seconds(kSecondsOfSilence) : Deadline::never();
}

bool PartServer::write(Client& client) {
  while (!client.record.empty()) {
    const ssize_t size = ::send(client.socket.get(), client.record.data() + client.written,
                                client.record.size() - client.written, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (size < 0 && errno == EINTR) continue;
    if (size < 0) return errno == EAGAIN;
    client.written += static_cast<size_t>(size);
    if (client.written < client.record.size()) continue;
    client.record.clear();
    client.written = 0;
  }
  return true;
}

void PartServer::offer(uint64_t bytes) {
  // A repeated file overwrites the same bytes, so the number never falls.
  available_ = std::max(available_, bytes);
  std::vector<Client*> waiting;
  for (const auto& client : clients_) {
    if (client->sealer && client->record.empty()) waiting.push_back(client.get());
  }
  for (Client* const client : waiting) send(*client);
}

Deadline PartServer::deadline() const {
  Deadline next = pause_end_;
  for (const auto& client : clients_) {
    if (client->deadline.time() < next.time()) next = client->deadline;
  }
  return next;
}

void PartServer::on_deadline() {
  if (pause_end_.passed()) {
    pause_end_ = Deadline::never();
    for (const net::TcpListener& each : listeners_) loop_.change(each.socket.get(), EPOLLIN);
  }
  std::vector<Client*> late;
  for (const auto& client : clients_) {
    if (client->deadline.passed()) late.push_back(client.get());
  }
  for (Client* const client : late) {
    if (!client->sealer) {
      drop(*client);
      continue;
    }
    client->record = client->sealer->seal({});
    send(*client);
  }
}

void PartServer::drop(const Client& client) {
  loop_.unwatch(client.socket.get());
  std::erase_if(clients_, [&](const auto& each) { return each.get() == &client; });
}

void PartServer::stop_listening() {
  for (const net::TcpListener& each : listeners_) loop_.unwatch(each.socket.get());
  listeners_.clear();
  pause_end_ = Deadline::never();
}

void PartServer::close() {
  stop_listening();
  while (!clients_.empty()) drop(*clients_.back());
}

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
