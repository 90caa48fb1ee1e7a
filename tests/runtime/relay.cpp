#include "runtime/relay.h"

#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "base/check.h"

namespace hvd::test {
namespace {

constexpr size_t kHeldAtMost = 256 * 1024;

sockaddr_in loopback(uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(port);
  return address;
}

void set_options(int fd) {
  const int on = 1;
  ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

// Connects without a time limit, because the target is on loopback.
UniqueFd connect_to(uint16_t port) {
  UniqueFd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const sockaddr_in address = loopback(port);
  if (::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
    return {};
  }
  return socket;
}

}  // namespace

Relay::Relay() : doorbell_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  thread_ = std::thread([this] { run(); });
}

Relay::~Relay() {
  {
    const MutexLock lock(mutex_);
    stopping_ = true;
  }
  wake();
  thread_.join();
}

void Relay::wake() {
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t n = ::write(doorbell_.get(), &one, sizeof one);
}

uint16_t Relay::route(uint16_t target) {
  UniqueFd listener(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  sockaddr_in address = loopback(0);
  socklen_t size = sizeof address;
  HVD_CHECK(::bind(listener.get(), reinterpret_cast<sockaddr*>(&address), size) == 0);
  HVD_CHECK(::listen(listener.get(), 64) == 0);
  HVD_CHECK(::getsockname(listener.get(), reinterpret_cast<sockaddr*>(&address), &size) == 0);
  {
    const MutexLock lock(mutex_);
    routes_.push_back({std::move(listener), target});
  }
  wake();
  return ntohs(address.sin_port);
}

void Relay::delay(unsigned seed, std::chrono::microseconds most) {
  const MutexLock lock(mutex_);
  random_.seed(seed);
  most_ = most;
}

void Relay::stall() {
  {
    const MutexLock lock(mutex_);
    stalled_ = true;
    withheld_ = false;
  }
  wake();
}

void Relay::resume() {
  {
    const MutexLock lock(mutex_);
    stalled_ = false;
    for (Pair& pair : pairs_) pair.from[0].ready = pair.from[1].ready = false;
  }
  wake();
}

bool Relay::cut_one(unsigned pick) {
  {
    const MutexLock lock(mutex_);
    if (pairs_.empty()) return false;
    auto pair = pairs_.begin();
    std::advance(pair, pick % pairs_.size());
    pair->cut = true;
    pair->reset = pick / 7 % 2 == 0;
  }
  wake();
  return true;
}

bool Relay::wait_for_bytes(uint64_t count) {
  MutexLock lock(mutex_);
  while (moved_ < count && !abandoned_) changed_.wait(lock.native());
  return moved_ >= count;
}

bool Relay::wait_for_withheld() {
  MutexLock lock(mutex_);
  while (!withheld_ && !abandoned_) changed_.wait(lock.native());
  return withheld_;
}

void Relay::abandon() {
  const MutexLock lock(mutex_);
  abandoned_ = true;
  changed_.notify_all();
}

void Relay::run() {
  MutexLock lock(mutex_);
  while (!stopping_) {
    const auto now = Clock::now();
    auto until = Clock::time_point::max();
    std::vector<pollfd> entries = {{doorbell_.get(), POLLIN, 0}};
    for (const Route& route : routes_) entries.push_back({route.listener.get(), POLLIN, 0});
    for (const Pair& pair : pairs_) {
      for (const int side : {0, 1}) {
        const Direction& in = pair.from[side];
        const Direction& out = pair.from[1 - side];
        short wanted = 0;
        if (!in.ended && in.held < kHeldAtMost && !in.ready) wanted |= POLLIN;
        if (!out.pieces.empty() && !stalled_) {
          if (out.pieces.front().due <= now)
            wanted |= POLLOUT;
          else
            until = std::min(until, out.pieces.front().due);
        }
        entries.push_back({wanted == 0 ? -1 : pair.ends[side].get(), wanted, 0});
      }
    }
    lock.unlock();
    timespec timeout{};
    const auto left = std::max(Clock::duration::zero(), until - now);
    timeout.tv_sec = std::chrono::duration_cast<std::chrono::seconds>(left).count();
    timeout.tv_nsec = (left % std::chrono::seconds(1)).count();
    ::ppoll(entries.data(), entries.size(), until == Clock::time_point::max() ? nullptr : &timeout,
            nullptr);
    lock.lock();
    uint64_t rings = 0;
    [[maybe_unused]] const ssize_t n = ::read(doorbell_.get(), &rings, sizeof rings);
    accept_all();
    for (Pair& pair : pairs_) move(pair);
    close_cut();
    changed_.notify_all();
  }
}

void Relay::accept_all() {
  for (const Route& route : routes_) {
    for (;;) {
      UniqueFd near(::accept4(route.listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
      if (!near) break;
      UniqueFd far = connect_to(route.target);
      if (!far) continue;  // if the target refuses, the near end reads end-of-file
      set_options(near.get());
      set_options(far.get());
      Pair& pair = pairs_.emplace_back();
      pair.ends[0] = std::move(near);
      pair.ends[1] = std::move(far);
    }
  }
}

void Relay::move(Pair& pair) {
  for (const int side : {0, 1}) {
    if (stalled_ && !pair.from[side].pieces.empty()) withheld_ = true;
    read(pair, side);
    write(pair, 1 - side);
  }
}

void Relay::read(Pair& pair, int side) {
  Direction& in = pair.from[side];
  if (in.ended || in.held >= kHeldAtMost) return;
  char bytes[16384];
  // Odd pieces reveal readers that expect a whole message.
  const size_t most = most_.count() == 0 ? sizeof bytes : 1 + random_() % 5000;
  const ssize_t count =
      ::recv(pair.ends[side].get(), bytes, most, MSG_DONTWAIT | (stalled_ ? MSG_PEEK : 0));
  if (count < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (stalled_) {
    in.ready = withheld_ = true;
    return;
  }
  if (count < 0) {
    pair.broken = true;
    return;
  }
  if (count == 0) in.ended = true;
  auto due = Clock::now();
  if (most_.count() > 0) {
    due += std::chrono::microseconds(random_() % static_cast<unsigned>(most_.count()));
    if (!in.pieces.empty()) due = std::max(due, in.pieces.back().due);
  }
  in.pieces.push_back({due, std::string(bytes, static_cast<size_t>(count)), 0});
  in.held += static_cast<size_t>(count);
}

// Writes data of the other side to this side; an empty piece is the end.
void Relay::write(Pair& pair, int side) {
  Direction& out = pair.from[1 - side];
  const auto now = Clock::now();
  while (!out.pieces.empty() && !stalled_ && out.pieces.front().due <= now) {
    Piece& piece = out.pieces.front();
    if (piece.bytes.empty()) {
      ::shutdown(pair.ends[side].get(), SHUT_WR);
    } else {
      const ssize_t count = ::send(pair.ends[side].get(), piece.bytes.data() + piece.sent,
                                   piece.bytes.size() - piece.sent, MSG_DONTWAIT | MSG_NOSIGNAL);
      if (count < 0) {
        if (errno != EAGAIN && errno != EINTR) pair.broken = true;
        return;
      }
      piece.sent += static_cast<size_t>(count);
      moved_ += static_cast<uint64_t>(count);
      if (piece.sent < piece.bytes.size()) return;
    }
    out.held -= piece.bytes.size();
    out.pieces.pop_front();
  }
}

void Relay::close_cut() {
  pairs_.remove_if([](Pair& pair) {
    if (pair.cut && pair.reset) {
      const linger now{1, 0};
      for (UniqueFd& end : pair.ends) {
        ::setsockopt(end.get(), SOL_SOCKET, SO_LINGER, &now, sizeof now);
      }
    }
    const bool over = pair.from[0].ended && pair.from[1].ended && pair.from[0].pieces.empty() &&
                      pair.from[1].pieces.empty();
    return pair.cut || pair.broken || over;
  });
}

}  // namespace hvd::test
