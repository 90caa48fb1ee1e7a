#include "collectives/mesh/peer_acceptor.h"

#include <sys/epoll.h>
#include <sys/resource.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/log/log.h"
#include "base/text.h"

namespace hvd::collectives {
namespace {

// The limit of a queue: `least` connections plus `per_peer` for each peer, but at most one
// `share`-th of this process's descriptors if that is more than `least`.
struct Limit {
  size_t least, per_peer, share;
};
constexpr Limit kKnown{64, 8, 4};
constexpr Limit kUnknown{16, 4, 8};
// A full queue drops its oldest connection only after this time; a peer's handshake takes less.
constexpr double kLeastSeconds = 1;
// The pause while the queue of known addresses is full.
constexpr double kSecondsForRoom = 0.05;
// The pause after an accept that failed for lack of descriptors or memory.
constexpr double kSecondsOfLack = 0.5;
constexpr int kAcceptsPerEvent = 64;

size_t most_pending(const Limit& limit, size_t peers) {
  rlimit descriptors{};
  size_t share = limit.least;
  if (::getrlimit(RLIMIT_NOFILE, &descriptors) == 0) {
    share = std::max<size_t>(share, descriptors.rlim_cur / limit.share);
  }
  return std::min(limit.least + limit.per_peer * peers, share);
}

}  // namespace

Result<std::unique_ptr<PeerAcceptor>> PeerAcceptor::open(net::EventLoop& loop,
                                                         const Credentials& credentials,
                                                         int32_t rank,
                                                         const std::vector<Bytes>& addresses,
                                                         net::PortRange ports) {
  std::unique_ptr<PeerAcceptor> acceptor(new PeerAcceptor(loop, credentials, rank));
  HVD_ASSIGN_OR_RETURN(acceptor->listeners_, net::TcpListener::open_at(addresses, ports));
  return acceptor;
}

Status PeerAcceptor::start(const std::vector<PeerRecord>& records,
                           const std::vector<int32_t>& leaders, double proof_seconds) {
  proof_time_ = std::chrono::duration<double>(proof_seconds);
  size_ = static_cast<int32_t>(records.size());
  size_t peers = 0;
  for (size_t rank = 0; rank < records.size(); ++rank) {
    if (leaders[rank] == leaders[static_cast<size_t>(rank_)]) continue;
    ++peers;
    for (const Candidate& candidate : records[rank].candidates) {
      addresses_.emplace(as_text(candidate.bytes));
    }
  }
  known_.limit = most_pending(kKnown, peers);
  unknown_.limit = most_pending(kUnknown, peers);
  for (const net::TcpListener& listener : listeners_) {
    const auto accept = [this, &listener](uint32_t) { accept_peers(listener); };
    if (!loop_.watch(listener.socket.get(), EPOLLIN, accept)) {
      return system_error("cannot watch the socket on which other hosts connect", errno);
    }
  }
  return {};
}

void PeerAcceptor::close() {
  for (const net::TcpListener& listener : listeners_) loop_.unwatch(listener.socket.get());
  listeners_.clear();
}

void PeerAcceptor::pause(double seconds) {
  for (const net::TcpListener& listener : listeners_) loop_.change(listener.socket.get(), 0);
  pause_end_ = Deadline::after_seconds(seconds);
  changed_ = true;
}

void PeerAcceptor::accept_peers(const net::TcpListener& listener) {
  // Limit the loop, so that a flood of connections from strangers does not block the caller. The event repeats
  // while connections wait.
  for (int i = 0; i < kAcceptsPerEvent && accept_one(listener); ++i) {
  }
}

// Accepts one connection. Returns false if no other connection can be accepted now.
bool PeerAcceptor::accept_one(const net::TcpListener& listener) {
  // Peers wait in the kernel's queue until known_ has space.
  if (!make_room(known_)) {
    pause(kSecondsForRoom);
    return false;
  }
  net::Accepted accepted = net::accept_from(listener);
  if (accepted.error != 0) {
    pause(kSecondsOfLack);
    if (std::exchange(has_warned_, true)) return false;
    log::warning(cat("rank ", rank_,
                     " cannot accept a connection of another rank: ", std::strerror(accepted.error),
                     "; it tries again until it can: close files, or raise the limit of open files "
                     "(ulimit -n)"));
    return false;
  }
  if (!accepted.socket) return false;
  changed_ = true;
  Queue& queue = addresses_.contains(as_text(accepted.address)) ? known_ : unknown_;
  // A full queue of unknown addresses drops the new connection, so that peers do not wait for it.
  if (!make_room(queue)) return true;
  queue.pending.push_back(
      {Handshake::accept(loop_, credentials_, std::move(accepted.socket), rank_, size_),
       std::move(accepted.address)});
  return true;
}

// If the queue is full, drops its oldest unproven connection. Returns false if that connection is too recent, or
// all are proven.
bool PeerAcceptor::make_room(Queue& queue) {
  auto& all = queue.pending;
  if (all.size() < queue.limit) return true;
  const auto oldest = std::find_if(all.begin(), all.end(), [](const Pending& pending) {
    return pending.handshake->state() != Handshake::State::kProven;
  });
  if (oldest == all.end() ||
      Clock::now() - oldest->handshake->since() < std::chrono::duration<double>(kLeastSeconds)) {
    return false;
  }
  all.erase(oldest);
  return true;
}

bool PeerAcceptor::advance(const std::function<bool(Handshake&)>& take) {
  bool moved = advance(known_, take);
  moved |= advance(unknown_, take);
  changed_ |= moved;
  if (!pause_end_.passed()) return moved;
  pause_end_ = Deadline::never();
  for (const net::TcpListener& listener : listeners_) loop_.change(listener.socket.get(), EPOLLIN);
  changed_ = true;
  return true;
}

bool PeerAcceptor::advance(Queue& queue, const std::function<bool(Handshake&)>& take) {
  // `take` does not change the queue.
  return std::erase_if(queue.pending, [&](const Pending& pending) {
           Handshake& handshake = *pending.handshake;
           if (handshake.state() == Handshake::State::kFailed) {
             log::debug(cat("refused a connection: ", handshake.reason()));
             return true;
           }
           if (handshake.state() != Handshake::State::kProven) {
             return Clock::now() >= end_of(handshake);
           }
           addresses_.emplace(as_text(pending.address));  // a NAT may serve other ranks too
           return take(handshake);
         }) != 0;
}

void PeerAcceptor::drop_all() {
  known_.pending.clear();
  unknown_.pending.clear();
}

bool PeerAcceptor::has_proven(int32_t rank, uint64_t stream) const {
  const auto is_it = [&](const Pending& pending) {
    return pending.handshake->state() == Handshake::State::kProven &&
           pending.handshake->peer() == rank && pending.handshake->stream() == stream;
  };
  return std::ranges::any_of(known_.pending, is_it) || std::ranges::any_of(unknown_.pending, is_it);
}

Clock::time_point PeerAcceptor::end_of(const Handshake& handshake) const {
  return handshake.since() + std::chrono::duration_cast<Clock::duration>(proof_time_);
}

Deadline PeerAcceptor::deadline() const {
  Clock::time_point next = pause_end_.time();
  for (const Queue* queue : {&known_, &unknown_}) {
    for (const Pending& pending : queue->pending) {
      if (pending.handshake->state() == Handshake::State::kProven) continue;
      next = std::min(next, end_of(*pending.handshake));
      break;
    }
  }
  return Deadline::at(next);
}

}  // namespace hvd::collectives
