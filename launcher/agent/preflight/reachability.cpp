#include "launcher/agent/preflight/reachability.h"

#include <sys/epoll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "launcher/agent/host/host_addresses.h"
#include "net/socket_address.h"
#include "net/tcp_transport.h"

namespace hvd::launcher {

namespace {

// The time limit for the first reachable address. Once an address is reached, kAfterFirst is the limit for the
// addresses before it in the list.
constexpr double kTimeoutSeconds = 3;
constexpr double kAfterFirst = 0.05;
// Maximum number of addresses to test; a host has a few.
constexpr size_t kMostAddresses = 64;

}  // namespace

void ReachabilityTest::begin(const MasterCandidates& candidates,
                             std::function<void(ReachabilityTested)> done) {
  end();
  candidates_ = candidates;
  done_ = std::move(done);
  has_one_ = false;
  deadline_ = Deadline::after_seconds(kTimeoutSeconds);
  attempts_.resize(std::min(candidates_.addresses.size(), kMostAddresses));
  for (size_t i = 0; i < attempts_.size(); ++i) {
    attempts_[i].index = i;
    dial(attempts_[i], candidates_.addresses[i].first, candidates_.port);
  }
  consider();
}

void ReachabilityTest::dial(Attempt& attempt, const std::string& address, uint16_t port) {
  auto socket = net::start_connect(net::address_bytes(address), port);
  attempt.is_over = !socket.ok();
  if (attempt.is_over) return;
  attempt.socket = std::move(*socket);
  attempt.is_over = !loop_.watch(attempt.socket.get(), EPOLLOUT,
                                 [this, &attempt](uint32_t) { on_ready(attempt); });
}

void ReachabilityTest::on_ready(Attempt& attempt) {
  const int fd = attempt.socket.get();
  if (!attempt.is_connected) {
    if (net::connect_outcome(fd) != 0) return finish(attempt, false);
    attempt.is_connected = true;
    loop_.change(fd, EPOLLIN);
  }
  std::array<std::byte, sizeof(Nonce)> received;
  const size_t wanted = received.size() - attempt.received;
  const ssize_t size = ::read(fd, received.data(), wanted);
  if (size < 0 && (errno == EAGAIN || errno == EINTR)) return;
  const auto* expected = candidates_.nonce.data() + attempt.received;
  if (size <= 0 || !std::equal(received.begin(), received.begin() + size, expected)) {
    return finish(attempt, false);
  }
  attempt.received += static_cast<size_t>(size);
  if (attempt.received == received.size()) finish(attempt, true);
}

void ReachabilityTest::finish(Attempt& attempt, bool is_proven) {
  attempt.is_over = true;
  attempt.is_proven = is_proven;
  if (is_proven) attempt.interface = interface_of_socket(attempt.socket.get());
  loop_.unwatch(attempt.socket.get());
  attempt.socket.reset();
  if (is_proven && !std::exchange(has_one_, true)) {
    deadline_ = Deadline::after_seconds(kAfterFirst);
  }
  consider();
}

void ReachabilityTest::consider() {
  const auto is_over = [](const Attempt& attempt) { return attempt.is_over; };
  const auto best = std::find_if(attempts_.begin(), attempts_.end(),
                                 [](const Attempt& attempt) { return attempt.is_proven; });
  // Do not wait for addresses after the best one in the list.
  if (std::all_of(attempts_.begin(), best, is_over)) conclude();
}

void ReachabilityTest::conclude() {
  if (!done_) return;
  ReachabilityTested tested;
  for (const Attempt& attempt : attempts_) {
    if (!attempt.is_proven) continue;
    tested.reached.emplace_back(candidates_.addresses[attempt.index].first, attempt.interface);
  }
  const auto done = std::exchange(done_, nullptr);
  end();
  done(std::move(tested));
}

void ReachabilityTest::end() {
  for (Attempt& attempt : attempts_) {
    if (attempt.socket) loop_.unwatch(attempt.socket.get());
    attempt.socket.reset();
  }
}

}  // namespace hvd::launcher
