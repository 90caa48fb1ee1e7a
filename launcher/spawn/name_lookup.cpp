#include "launcher/spawn/name_lookup.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <fstream>
#include <list>
#include <memory>
#include <system_error>
#include <thread>

#include "base/mutex.h"
#include "base/status.h"
#include "base/text.h"
#include "base/unique_fd.h"
#include "net/notification.h"
#include "net/resolve.h"

namespace hvd::launcher {

namespace asio = net::asio;
using asio::ip::address;
using Addresses = std::vector<address>;

namespace {

address to_address(const sockaddr& from) {
  if (from.sa_family == AF_INET) {
    const auto& v4 = reinterpret_cast<const sockaddr_in&>(from);
    return asio::ip::address_v4(ntohl(v4.sin_addr.s_addr));
  }
  const auto& v6 = reinterpret_cast<const sockaddr_in6&>(from);
  asio::ip::address_v6::bytes_type bytes;
  std::memcpy(bytes.data(), &v6.sin6_addr, bytes.size());
  return asio::ip::address_v6(bytes, v6.sin6_scope_id);
}

bool is_internet(const sockaddr* from) {
  return from != nullptr && (from->sa_family == AF_INET || from->sa_family == AF_INET6);
}

// Returns the address of a name in /etc/hosts; may be empty.
std::optional<address> address_in_hosts_file(const std::string& name) {
  std::ifstream file("/etc/hosts");
  for (std::string line; std::getline(file, line);) {
    const std::string_view content = std::string_view(line).substr(0, line.find('#'));
    const auto words = words_of(content);
    if (words.empty() || std::find(words.begin() + 1, words.end(), name) == words.end()) continue;
    net::error_code error;
    const address found = asio::ip::make_address(std::string(words.front()), error);
    if (!error) return found;
  }
  return {};
}

Result<Addresses> resolve_blocking(const std::string& name) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  std::string asked = name;
  if (!address_of_number(name).empty()) {
    // getaddrinfo parses a number like 28 as the address 0.0.0.28, but not with the final dot of a full name.
    if (const auto listed = address_in_hosts_file(name)) return Addresses{*listed};
    asked += '.';
  }
  const int error = ::getaddrinfo(asked.c_str(), nullptr, &hints, &found);
  if (error != 0) {
    const char* why = error == EAI_SYSTEM ? std::strerror(errno) : ::gai_strerror(error);
    return not_found(cat("the name '", printable(name), "' does not resolve (", why, ")",
                         net::advice_on_long_name(name)));
  }
  Addresses addresses;
  for (const addrinfo* entry = found; entry != nullptr; entry = entry->ai_next) {
    if (!is_internet(entry->ai_addr)) continue;
    const address one = to_address(*entry->ai_addr);
    if (std::find(addresses.begin(), addresses.end(), one) == addresses.end()) {
      addresses.push_back(one);
    }
  }
  ::freeaddrinfo(found);
  if (addresses.empty()) {
    return not_found(cat("the name '", printable(name), "' has no IPv4 or IPv6 address"));
  }
  return addresses;
}

// State that the thread and the waiting coroutine share. The thread does not use the loop, which may
// end before the resolver replies. The thread makes `answered` readable.
struct Lookup {
  UniqueFd answered;
  Mutex mutex;
  std::optional<Result<Addresses>> answer HVD_GUARDED_BY(mutex);
};

void put_answer(Lookup& lookup, Result<Addresses> addresses) {
  {
    const MutexLock lock(lookup.mutex);
    lookup.answer = std::move(addresses);
  }
  ::eventfd_write(lookup.answered.get(), 1);
}

std::string own_name() {
  char name[256] = {};
  if (::gethostname(name, sizeof name - 1) != 0) return {};
  return name;
}

Addresses own_addresses() {
  Addresses addresses;
  ifaddrs* found = nullptr;
  if (::getifaddrs(&found) != 0) return addresses;
  for (const ifaddrs* entry = found; entry != nullptr; entry = entry->ifa_next) {
    if (is_internet(entry->ifa_addr)) addresses.push_back(to_address(*entry->ifa_addr));
  }
  ::freeifaddrs(found);
  return addresses;
}

}  // namespace

std::string address_of_number(const std::string& name) {
  in_addr parsed{};
  net::error_code not_an_address;
  asio::ip::make_address(name, not_an_address);
  if (!not_an_address || ::inet_aton(name.c_str(), &parsed) == 0) return {};
  return asio::ip::address_v4(ntohl(parsed.s_addr)).to_string();
}

net::Task<Result<Addresses>> look_up(std::string name) {
  net::error_code not_an_address;
  const address literal = asio::ip::make_address(name, not_an_address);
  if (!not_an_address) co_return Addresses{literal};

  const auto lookup = std::make_shared<Lookup>();
  lookup->answered.reset(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  // The loop owns and closes the descriptor that it watches, so the loop gets a duplicate.
  UniqueFd watched(::fcntl(lookup->answered.get(), F_DUPFD_CLOEXEC, 0));
  if (!watched) {
    co_return system_error(cat("cannot resolve '", printable(name), "'"), errno);
  }
  asio::posix::stream_descriptor answered(co_await asio::this_coro::executor, watched.release());
  try {
    std::thread([lookup, name] { put_answer(*lookup, resolve_blocking(name)); }).detach();
  } catch (const std::system_error& error) {
    co_return status_of(error).with_context(cat("cannot resolve '", printable(name), "'"));
  }
  co_await answered.async_wait(asio::posix::stream_descriptor::wait_read, net::use_tuple);
  const MutexLock lock(lookup->mutex);
  if (!lookup->answer) co_return aborted(cat("resolving '", printable(name), "' was cancelled"));
  co_return std::move(*lookup->answer);
}

net::Task<bool> is_local_host(std::string name) {
  const std::string lower = to_lower(name);
  if (lower == "localhost" || lower == to_lower(own_name())) co_return true;
  const Result<Addresses> addresses = co_await look_up(name);
  if (!addresses.ok()) co_return false;
  const Addresses own = own_addresses();
  for (const address& one : *addresses) {
    if (one.is_loopback() || std::find(own.begin(), own.end(), one) != own.end()) co_return true;
  }
  co_return false;
}

namespace asio = net::asio;
using asio::ip::tcp;

namespace {

// net::BlockingStream::connect() also races addresses, with poll() on its caller's thread. This
// race is a coroutine on the launcher's event loop, which must serve other hosts meanwhile, and
// passes tcp::sockets on to ssh. The delay between attempts is as in RFC 8305.
constexpr std::chrono::milliseconds kStagger{250};

// State that the handlers write and the coroutine reads. The handlers' copies keep the state alive
// after the coroutine has ended; the sockets are then closed.
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
    // The next attempt starts after a delay, or at once after a failed attempt.
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
