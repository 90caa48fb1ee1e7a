// How links between hosts come about: calls of this rank, and those that come in.
#include <poll.h>
#include <sys/epoll.h>

#include <algorithm>

#include "base/log/log.h"
#include "base/text.h"
#include "collectives/mesh/remote_links.h"

namespace hvd::collectives {
namespace {
constexpr size_t kPendingPeerLimit = 1024;
constexpr auto kPendingPeerTimeout = std::chrono::seconds(10);
// How long a rank waits for a call that it expects.
constexpr double kSecondsForCall = 0.3;
// A failing rank ends the handshakes in progress, so that it can say why.
constexpr double kSecondsForLastWords = 0.5;
}  // namespace

void RemoteLinks::on_events(uint32_t) {
  while (GuardedFd socket = net::accept_tcp(listener_)) {
    if (pending_peers_.size() >= kPendingPeerLimit) pending_peers_.erase(pending_peers_.begin());
    pending_peers_.push_back(Handshake::accept(loop_, credentials_, std::move(socket), rank_,
                                               static_cast<int32_t>(records_.size())));
  }
}

void RemoteLinks::expect(int32_t rank) {
  expected_.emplace(rank, Deadline::after_seconds(kSecondsForCall));
  set_timer();
}

void RemoteLinks::dial_expected() {
  const size_t before = expected_.size();
  for (auto it = expected_.begin(); it != expected_.end();) {
    const int32_t rank = it->first;
    const bool has_link = controls_.contains(rank);
    if (!has_link && !it->second.passed()) {
      ++it;
      continue;
    }
    it = expected_.erase(it);
    if (has_link) continue;
    control(rank);
    dials_[{rank, 0}].is_wanted = false;
  }
  if (expected_.size() != before) set_timer();
}

bool RemoteLinks::is_open(Key key) const {
  if (key.second == 0) {
    const auto found = controls_.find(key.first);
    return found != controls_.end() && found->second->peer_stream().is_open();
  }
  const auto found = peer_streams_.find(key);
  return found != peer_streams_.end() && found->second->is_open();
}

void RemoteLinks::begin_dial(Key key) {
  if (!failure_.ok()) return;
  const PeerRecord& peer = records_[static_cast<size_t>(key.first)];
  Dial& dial = dials_[key];
  dial.deadline = Deadline::after_seconds(dial_seconds_);
  for (const Candidate& candidate : peer.candidates) {
    const std::string where = net::endpoint_text(candidate.bytes, peer.port);
    auto socket = net::start_connect(candidate.bytes, peer.port);
    if (!socket.ok()) {
      dial.failures.push_back(socket.status().message());
      continue;
    }
    dial.attempts.push_back(Handshake::dial(loop_, credentials_, std::move(socket).value(), rank_,
                                            key.first, key.second, where));
  }
  // Who cannot be called may call.
  if (dial.attempts.empty()) hurry(dial);
  set_timer();
}

void RemoteLinks::hurry(Dial& dial) {
  const Deadline cause = Deadline::after_seconds(kSecondsForCause);
  if (cause.time() < dial.deadline.time()) dial.deadline = cause;
}

void RemoteLinks::set_timer() {
  Deadline next = cause_deadline_;
  for (const auto& [key, dial] : dials_) {
    if (dial.deadline.time() < next.time()) next = dial.deadline;
  }
  for (const auto& [rank, deadline] : expected_) {
    if (deadline.time() < next.time()) next = deadline;
  }
  loop_.wake_at(next);
}

void RemoteLinks::attach(Key key, GuardedFd socket) {
  PeerStream* peer_stream = nullptr;
  if (key.second == 0) {
    auto& stream = controls_[key.first];
    if (!stream) stream = std::make_unique<ControlStream>(loop_, key.first);
    peer_stream = &stream->peer_stream();
  } else {
    auto& slot = peer_streams_[key];
    if (!slot) slot = std::make_unique<PeerStream>(loop_, key.first, key.second);
    peer_stream = slot.get();
  }
  const auto record = [this](int32_t rank) -> const PeerRecord& {
    return records_[static_cast<size_t>(rank)];
  };
  if (shares_kernel(record(rank_), record(key.first))) net::send_unpaced(socket.get());
  const Status attached = peer_stream->attach(std::move(socket));
  if (!attached.ok()) fail(attached.with_context(describe(key.first)));
}

// Moves one dial on; `finished` when it has ended, one way or the other.
bool RemoteLinks::advance_dial(Key key, Dial& dial, bool& finished) {
  bool moved = false;
  if (dial.chosen != nullptr && dial.chosen->state() == Handshake::State::kOpen) {
    attach(key, dial.chosen->take());
    finished = true;
    return true;
  }
  for (size_t i = 0; i < dial.attempts.size();) {
    Handshake& attempt = *dial.attempts[i];
    if (attempt.state() == Handshake::State::kFailed) {
      dial.failures.push_back(attempt.reason());
      if (dial.chosen == &attempt) dial.chosen = nullptr;
      dial.attempts.erase(dial.attempts.begin() + static_cast<ptrdiff_t>(i));
      moved = true;
      continue;
    }
    if (dial.chosen == nullptr && attempt.state() == Handshake::State::kProven) {
      dial.chosen = &attempt;
      attempt.choose();
      moved = true;
    }
    ++i;
  }
  if (moved && dial.attempts.empty()) {
    hurry(dial);
    set_timer();
  }
  finished = dial.deadline.passed();
  return moved || finished;
}

bool RemoteLinks::advance_dials() {
  bool moved = false;
  for (auto it = dials_.begin(); it != dials_.end();) {
    const Key key = it->first;
    bool finished = false;
    moved |= advance_dial(key, it->second, finished);
    if (!finished) {
      ++it;
      continue;
    }
    const bool is_wanted = it->second.is_wanted;
    std::vector<std::string> failures = std::move(it->second.failures);
    for (const auto& attempt : it->second.attempts) {
      if (!is_open(key)) failures.push_back(cat(attempt->where(), ": no answer"));
    }
    it = dials_.erase(it);
    set_timer();
    if (is_open(key)) continue;
    // The peer may have got through to us instead.
    const bool has_pending_peer =
        std::any_of(pending_peers_.begin(), pending_peers_.end(), [&](const auto& pending) {
          return pending->state() == Handshake::State::kProven && pending->peer() == key.first &&
                 pending->stream() == key.second;
        });
    if (has_pending_peer) continue;
    if (!is_wanted) {
      controls_.erase(key.first);
      continue;
    }
    if (failures.empty()) failures.push_back("it has no address but loopback ones");
    fail(unavailable(
        cat(describe(rank_), " cannot reach ", describe(key.first), ": ", join(failures, "; "))));
    return true;
  }
  return moved;
}

bool RemoteLinks::advance_pending_peers() {
  bool moved = false;
  for (size_t i = 0; i < pending_peers_.size();) {
    Handshake& pending = *pending_peers_[i];
    bool gone = false;
    if (pending.state() == Handshake::State::kFailed) {
      log::debug(cat("refused a connection: ", pending.reason()));
      gone = true;
    } else if (pending.state() == Handshake::State::kProven) {
      const Key key{pending.peer(), pending.stream()};
      const auto dial = dials_.find(key);
      if (is_open(key)) {
        gone = true;
      } else if (dial == dials_.end() || rank_ > key.first || dial->second.chosen == nullptr) {
        // Of two calls at once the lower rank's stays, once it has got that far. The peer cannot
        // have taken a call that this rank has not chosen.
        if (dial != dials_.end()) dials_.erase(dial);
        pending.confirm();
        if (pending.state() == Handshake::State::kOpen) attach(key, pending.take());
        gone = true;
      }
    } else if (Clock::now() - pending.since() > kPendingPeerTimeout) {
      gone = true;
    }
    if (gone) {
      pending_peers_.erase(pending_peers_.begin() + static_cast<ptrdiff_t>(i));
      moved = true;
    } else {
      ++i;
    }
  }
  return moved;
}

// Whoever this rank is about to have a link with would else learn of its end, and nothing more.
void RemoteLinks::finish_handshakes() {
  const auto is_in_handshake = [this] {
    return !pending_peers_.empty() ||
           std::any_of(dials_.begin(), dials_.end(), [](const auto& entry) {
             return entry.first.second == 0 && !entry.second.attempts.empty();
           });
  };
  const Deadline deadline = Deadline::after_seconds(kSecondsForLastWords);
  while (is_in_handshake() && !deadline.passed()) {
    pollfd entry{loop_.fd(), POLLIN, 0};
    ::poll(&entry, 1, deadline.poll_timeout());
    loop_.dispatch();
    advance_pending_peers();
    advance_dials();
  }
}

}  // namespace hvd::collectives
