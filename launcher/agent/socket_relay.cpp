#include "launcher/agent/socket_relay.h"

#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <utility>

namespace hvd::launcher {
namespace {

bool is_broken(ssize_t size) { return size < 0 && errno != EAGAIN && errno != EINTR; }

}  // namespace

SocketRelay::SocketRelay(net::EventLoop& loop, UniqueFd first, UniqueFd second,
                         std::function<void()> on_end)
    : loop_(loop), ends_{{std::move(first)}, {std::move(second)}}, on_end_(std::move(on_end)) {
  for (const End& end : ends_) {
    loop_.watch(end.socket.get(), EPOLLIN, [this](uint32_t) { on_ready(); });
  }
}

SocketRelay::~SocketRelay() {
  for (const End& end : ends_) loop_.unwatch(end.socket.get());
}

void SocketRelay::on_ready() {
  const bool is_whole = move(ends_[0], ends_[1]) && move(ends_[1], ends_[0]);
  if (!is_whole || (ends_[0].is_passed_on && ends_[1].is_passed_on)) {
    const auto on_end = std::move(on_end_);
    return on_end();
  }
  for (int i : {0, 1}) {
    const bool reads = !ends_[i].has_ended && ends_[i].unsent.empty();
    const bool writes = !ends_[1 - i].unsent.empty();
    loop_.change(ends_[i].socket.get(), (reads ? EPOLLIN : 0u) | (writes ? EPOLLOUT : 0u));
  }
}

// Returns false if a socket is broken.
bool SocketRelay::move(End& from, End& to) {
  if (!from.has_ended && from.unsent.empty()) {
    std::array<char, 64 << 10> buffer;
    const ssize_t size = ::read(from.socket.get(), buffer.data(), buffer.size());
    if (is_broken(size)) return false;
    if (size > 0) from.unsent.assign(buffer.data(), static_cast<size_t>(size));
    from.has_ended = size == 0;
  }
  if (!from.unsent.empty()) {
    const ssize_t size =
        ::send(to.socket.get(), from.unsent.data(), from.unsent.size(), MSG_NOSIGNAL);
    if (is_broken(size)) return false;
    if (size > 0) from.unsent.erase(0, static_cast<size_t>(size));
  }
  if (from.has_ended && from.unsent.empty() && !std::exchange(from.is_passed_on, true)) {
    ::shutdown(to.socket.get(), SHUT_WR);
  }
  return true;
}

}  // namespace hvd::launcher
