#include "launcher/spawn/connect_any.h"

#include <chrono>
#include <list>
#include <memory>

#include "base/text.h"
#include "net/notification.h"

namespace hvd::launcher {

namespace asio = net::asio;
using asio::ip::tcp;

namespace {

// net::BlockingStream::connect() races addresses too, with poll() on a thread of its caller. This race is a
// coroutine on the launcher's event loop, which must serve other hosts meanwhile, and passes tcp::sockets on to ssh.
// The delay between attempts, as in RFC 8305.
constexpr std::chrono::milliseconds kStagger{250};

// State that the handlers write and the coroutine reads. The handlers' copies keep the state alive
// when the coroutine has ended; the sockets are closed then.
struct RaceState {
  explicit RaceState(const asio::any_io_executor& executor) : changed(executor) {}

  void finish(std::list<tcp::socket>::iterator socket, const tcp::endpoint& to,
              const net::error_code& error) {
    --running;
    if (!error && !winner) {
      winner.emplace(std::move(*socket));
    } else if (error && error != asio::error::operation_aborted) {
      failure = describe(to, error);
    }
    changed.notify();
  }

  static Status describe(const tcp::endpoint& to, const net::error_code& error) {
    if (error == asio::error::connection_refused) {
      return unavailable(cat("nothing listens on port ", to.port(), " of ", to.address(),
                             " (connection refused)"));
    }
    return unavailable(
        cat("cannot connect to port ", to.port(), " of ", to.address(), ": ", error.message()));
  }

  net::Notification changed;
  std::list<tcp::socket> sockets;
  size_t running = 0;
  std::optional<tcp::socket> winner;
  Status failure;
};

void start_attempt(const std::shared_ptr<RaceState>& race, const asio::any_io_executor& executor,
                   const tcp::endpoint& to) {
  const auto socket = race->sockets.emplace(race->sockets.end(), executor);
  ++race->running;
  socket->async_connect(
      to, [race, socket, to](const net::error_code& error) { race->finish(socket, to, error); });
}

// Closes the sockets of the other attempts, so that their handlers end.
class SocketCloser {
 public:
  explicit SocketCloser(std::shared_ptr<RaceState> race) : race_(std::move(race)) {}
  SocketCloser(const SocketCloser&) = delete;
  ~SocketCloser() {
    net::error_code ignored;
    for (tcp::socket& socket : race_->sockets) socket.close(ignored);
  }

 private:
  std::shared_ptr<RaceState> race_;
};

}  // namespace

net::Task<Result<tcp::socket>> connect_any(std::vector<asio::ip::address> addresses,
                                           uint16_t port) {
  const auto executor = co_await asio::this_coro::executor;
  const auto race = std::make_shared<RaceState>(executor);
  const SocketCloser closer(race);
  size_t next = 0;
  for (;;) {
    if (race->winner) co_return std::move(*race->winner);
    if (next == addresses.size() && race->running == 0) co_return race->failure;
    // The next attempt starts after a delay, or at once when an attempt has failed.
    bool was_notified = true;
    if (next < addresses.size()) {
      start_attempt(race, executor, {addresses[next++], port});
      was_notified = co_await race->changed.wait_until(std::chrono::steady_clock::now() + kStagger);
    } else {
      was_notified = co_await race->changed.wait_until(net::Notification::Time::max());
    }
    if (!was_notified) co_return aborted("connecting was cancelled");
  }
}

}  // namespace hvd::launcher
