#include "bootstrap/message_server.h"

#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/process/signals.h"
#include "net/blocking_stream.h"
#include "net/peer_user.h"

namespace hvd::bootstrap {
namespace {

constexpr double kConnectSeconds = 2;
constexpr double kReadSeconds = 10;
constexpr size_t kLongestMessage = 256 * 1024;

}  // namespace

MessageServer::MessageServer(UniqueFd listener, std::function<Result<std::string>()> message)
    : listener_(std::move(listener)),
      message_(std::move(message)),
      end_(::eventfd(0, EFD_CLOEXEC)) {
  const AllSignalsBlocked blocked;  // only the user's threads get signals
  thread_ = std::thread([this] { serve(); });
}

MessageServer::~MessageServer() {
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t size = ::write(end_.get(), &one, sizeof one);
  thread_.join();
}

void MessageServer::serve() {
  ::pthread_setname_np(::pthread_self(), "hvd-bootstrap");
  while (true) {
    pollfd events[] = {{listener_.get(), POLLIN, 0}, {end_.get(), POLLIN, 0}};
    if (::poll(events, 2, -1) < 0) continue;
    if (events[1].revents != 0) return;
    const UniqueFd client(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (client && net::peer_user(client.get()).is_own_or_elsewhere()) send_to(client.get());
  }
}

// Does not wait: the message fits into the send buffer of a new socket.
void MessageServer::send_to(int client) const {
  const auto message = message_();
  if (!message.ok()) return;
  ::send(client, message->data(), message->size(), MSG_NOSIGNAL | MSG_DONTWAIT);
}

Result<UniqueFd> listen_everywhere(uint16_t port) {
  auto address = net::numeric_address({net::Endpoint::Family::kTcp, {}, "::", port});
  auto listener = net::listen_on(*address);
  if (listener.ok()) return listener;
  // The host may lack IPv6: listen by IPv4.
  address = net::numeric_address({net::Endpoint::Family::kTcp, {}, "0.0.0.0", port});
  return net::listen_on(*address);
}

Result<std::string> read_message(std::span<const net::SocketAddress> addresses) {
  HVD_ASSIGN_OR_RETURN(
      net::BlockingStream stream,
      net::BlockingStream::connect(addresses, Deadline::after_seconds(kConnectSeconds)));
  const net::PeerUser server = net::peer_user(stream.fd());  // no uid if the server has closed TCP
  if (server.uid && !server.is_own_or_elsewhere()) return unavailable(server.refusal());
  std::string message;
  const Deadline deadline = Deadline::after_seconds(kReadSeconds);
  std::byte buffer[4096];
  while (message.size() < kLongestMessage) {
    HVD_ASSIGN_OR_RETURN(const size_t size, stream.read_some(buffer, deadline));
    if (size == 0) break;
    message += as_text({buffer, size});
  }
  return message;
}

Result<Bytes> ask_until(Deadline deadline, int attempts,
                        const std::function<Result<Bytes>(int attempt)>& ask) {
  Status why = unavailable("it was not tried");
  std::chrono::milliseconds pause{20};
  while (!deadline.passed()) {
    for (int attempt = 0; attempt < attempts; ++attempt) {
      auto value = ask(attempt);
      if (value.ok()) return value;
      why = value.error();
      if (why.code() == Code::kPermissionDenied) return why;
    }
    const std::chrono::duration<double> left(deadline.seconds_left());
    std::this_thread::sleep_for(std::min<std::chrono::duration<double>>(pause, left));
    pause = std::min(pause * 2, std::chrono::milliseconds(1000));
  }
  return deadline_exceeded(why.message());
}

}  // namespace hvd::bootstrap
