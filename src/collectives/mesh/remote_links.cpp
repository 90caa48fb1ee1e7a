#include "collectives/mesh/remote_links.h"

#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/lost_peer.h"
#include "base/text.h"

namespace hvd::collectives {
namespace {

// The time for which a rank waits for an expected connection before it dials.
constexpr double kSecondsForCall = 0.3;
// A failing rank waits this long for handshakes in progress, so that it can send its cause.
constexpr double kSecondsForLastWords = 0.5;

}  // namespace

Result<std::unique_ptr<RemoteLinks>> RemoteLinks::open(net::EventLoop& loop,
                                                       const Credentials& credentials, int32_t rank,
                                                       const std::vector<Bytes>& addresses,
                                                       net::PortRange ports) {
  std::unique_ptr<RemoteLinks> links(new RemoteLinks(loop, credentials, rank));
  HVD_ASSIGN_OR_RETURN(links->acceptor_,
                       PeerAcceptor::open(loop, credentials, rank, addresses, ports));
  return links;
}

Status RemoteLinks::start(const std::vector<PeerRecord>& records,
                          const std::vector<int32_t>& leaders, const LinkTimes& times) {
  records_ = records;
  times_ = times;
  return acceptor_->start(records, leaders, times.proof);
}

std::string RemoteLinks::describe(int32_t rank) const {
  return rank_on_host(rank, records_[static_cast<size_t>(rank)].host);
}

ControlStream& RemoteLinks::control(int32_t rank) {
  auto& stream = controls_[rank];
  if (!stream) {
    stream = std::make_unique<ControlStream>(loop_, rank);
    begin_dial({rank, 0});
  } else if (const auto dial = dials_.find({rank, 0}); dial != dials_.end()) {
    dial->second.is_wanted = true;
  }
  return *stream;
}

PeerStream& RemoteLinks::peer_stream(int32_t rank, uint64_t id) {
  // Open the control stream too: when a peer stream ends, the control stream carries the cause.
  control(rank);
  auto& peer_stream = peer_streams_[{rank, id}];
  if (!peer_stream) {
    peer_stream = std::make_unique<PeerStream>(loop_, rank, id);
    begin_dial({rank, id});
  }
  return *peer_stream;
}

void RemoteLinks::close_peer_stream(PeerStream& peer_stream) {
  const Key key{peer_stream.peer(), peer_stream.id()};
  dials_.erase(key);
  peer_streams_.erase(key);
}

void RemoteLinks::retire_peer_streams(std::span<const uint64_t> ids) {
  const auto is_retired = [ids](const auto& entry) {
    return std::ranges::find(ids, entry.first.second) != ids.end();
  };
  std::erase_if(dials_, is_retired);
  std::erase_if(peer_streams_, is_retired);
  retired_.insert(retired_.end(), ids.begin(), ids.end());
  while (retired_.size() > kRetired) retired_.pop_front();
}

Status RemoteLinks::send(int32_t rank, ByteView first, ByteView second) {
  if (!failure_.ok()) return failure_;
  ControlStream& stream = control(rank);
  if (stream.departed) return aborted(cat(describe(rank), " has shut down"));
  stream.put(FrameKind::kMessage, first, second);
  return {};
}

bool RemoteLinks::poll_control(int32_t rank, ControlStream& stream, const Receiver* receiver) {
  bool moved = stream.flush();
  ControlFrame frame{FrameKind::kMessage, {}};
  for (;;) {
    const auto got = stream.next(frame);
    if (!got.ok()) {
      fail(aborted(cat(describe(rank), " sent what it should not: ", got.status().message())));
      return true;
    }
    if (!got.value()) break;
    moved = true;
    if (frame.kind == FrameKind::kMessage) {
      if (receiver != nullptr && kept_.empty()) {
        (*receiver)(rank, frame.payload);
      } else {
        kept_.emplace_back(rank, Bytes(frame.payload.begin(), frame.payload.end()));
      }
    } else if (frame.kind == FrameKind::kAbort) {
      ByteReader in(frame.payload);
      const auto lost_rank = in.get<int32_t>();
      const Status cause = aborted(in.get_text()).with_lost_rank(lost_rank);
      const Status whole = in.finish("a peer's abort");
      fail(whole.ok() ? cause : whole);
      return true;
    } else {
      stream.departed = true;
    }
  }
  if (stream.peer_stream().ended() && !stream.departed) {
    fail(lost(rank, stream.peer_stream().end_reason()));
    return true;
  }
  return moved;
}

// The error names both ends, since either rank may send it to all others.
Status RemoteLinks::lost(int32_t rank, int reason) const {
  const std::string& host = records_[static_cast<size_t>(rank)].host;
  // Without an error, the peer's process has ended, and the kernel has closed its connections.
  if (reason == 0)
    return lost_peer(rank, host, cat("its connection to ", describe(rank_), " ended"));
  const LinkEnd own{rank_, records_[static_cast<size_t>(rank_)].host};
  const LinkEnd peer{rank, host};
  if (reason == EBADMSG) {
    return broken_link(own, peer,
                       "carried an encrypted record that was changed, repeated, reordered or left "
                       "out on the way; check the network between these hosts");
  }
  if (reason == ETIMEDOUT) {
    return broken_link(own, peer,
                       cat("brought no answer for ", times_.link,
                           " s; check the network between these hosts, or raise "
                           "HOROVOD_LINK_TIMEOUT (--link-timeout)"));
  }
  const bool is_reset = reason == ECONNRESET || reason == ECONNABORTED || reason == EPIPE;
  return broken_link(own, peer,
                     cat(is_reset ? "was reset" : cat("broke (", std::strerror(reason), ")"),
                         "; if neither of them has ended, look for a firewall, a NAT or an "
                         "interface between these hosts that drops connections"));
}

void RemoteLinks::check_peer_streams() {
  bool has_end = false;
  for (const auto& [key, peer_stream] : peer_streams_) {
    if (!peer_stream->ended()) continue;
    // Wait until the control stream opens or fails: it may deliver the cause.
    if (dials_.contains({key.first, 0})) continue;
    const auto control = controls_.find(key.first);
    if (control != controls_.end() && control->second->departed) continue;
    const int reason = peer_stream->end_reason();
    if (reason == 0) {
      // The control stream delivers the cause, unless the network broke only this stream.
      has_end = true;
      if (!cause_deadline_.passed()) continue;
    }
    return fail(lost(key.first, reason));
  }
  if (has_end != cause_deadline_.is_never()) return;
  cause_deadline_ = has_end ? Deadline::after_seconds(kSecondsForCause) : Deadline::never();
  set_timer();
}

bool RemoteLinks::poll(const Receiver* receiver) {
  if (!failure_.ok()) return false;
  bool moved = false;
  if (receiver != nullptr) {
    while (!kept_.empty()) {
      const auto [rank, message] = std::move(kept_.front());
      kept_.pop_front();
      (*receiver)(rank, message);
      moved = true;
    }
  }
  if (!expected_.empty()) dial_expected();
  if (acceptor_->has_work()) moved |= advance_pending_peers();
  if (!dials_.empty()) moved |= advance_dials();
  for (const auto& [rank, stream] : controls_) {
    if (!failure_.ok()) return true;
    if (stream->peer_stream().is_open()) moved |= poll_control(rank, *stream, receiver);
  }
  if (failure_.ok()) check_peer_streams();
  return moved;
}

bool RemoteLinks::has_output() const {
  return std::any_of(controls_.begin(), controls_.end(),
                     [](const auto& entry) { return entry.second->has_output(); });
}

bool RemoteLinks::departed(int32_t rank) const {
  const auto found = controls_.find(rank);
  return found != controls_.end() && found->second->departed;
}

void RemoteLinks::fail(Status status) {
  if (failure_.ok()) failure_ = std::move(status);
}

void RemoteLinks::send_last(FrameKind kind, ByteView content) {
  for (const auto& [rank, stream] : controls_) {
    const PeerStream& link = stream->peer_stream();
    if (!link.is_open() || (link.ended() && link.end_reason() != EBADMSG)) continue;
    stream->put(kind, content);
    stream->flush();
  }
}

void RemoteLinks::abort(const Status& cause) {
  fail(cause);
  finish_handshakes();
  send_last(FrameKind::kAbort,
            ByteWriter().put(cause.lost_rank()).put_text(cause.message()).view());
  dials_.clear();
  acceptor_->drop_all();
  // Close peer streams without destroying them, since a group may still refer to them.
  for (const auto& [key, peer_stream] : peer_streams_) peer_stream->close();
  for (const auto& [rank, stream] : controls_) stream->peer_stream().close();
  acceptor_->close();
}

void RemoteLinks::depart() {
  send_last(FrameKind::kGoodbye, {});
  dials_.clear();
  acceptor_->drop_all();
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
  dial.deadline = Deadline::after_seconds(times_.dial);
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
  // A peer that this rank cannot reach may still connect to this rank.
  if (dial.attempts.empty()) hurry(dial);
  set_timer();
}

void RemoteLinks::hurry(Dial& dial) {
  const Deadline cause = Deadline::after_seconds(kSecondsForCause);
  if (cause.time() < dial.deadline.time()) dial.deadline = cause;
}

void RemoteLinks::set_timer() {
  Deadline next = cause_deadline_;
  if (const Deadline pending = acceptor_->deadline(); pending.time() < next.time()) next = pending;
  for (const auto& [key, dial] : dials_) {
    if (dial.deadline.time() < next.time()) next = dial.deadline;
  }
  for (const auto& [rank, deadline] : expected_) {
    if (deadline.time() < next.time()) next = deadline;
  }
  loop_.wake_at(next);
}

void RemoteLinks::attach(Key key, Handshake& handshake) {
  GuardedFd socket = handshake.take();
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
  net::set_link_timeout(socket.get(), times_.link);
  if (shares_kernel(record(rank_), record(key.first))) net::send_unpaced(socket.get());
  const Status attached = peer_stream->attach(std::move(socket), handshake.keys());
  if (!attached.ok()) fail(attached.with_context(describe(key.first)));
}

// Advances one dial; sets `finished` when it has succeeded or failed.
bool RemoteLinks::advance_dial(Key key, Dial& dial, bool& finished) {
  bool moved = false;
  if (dial.chosen != nullptr && dial.chosen->state() == Handshake::State::kOpen) {
    attach(key, *dial.chosen);
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
    // The peer may have connected to this rank instead.
    if (acceptor_->has_proven(key.first, key.second)) continue;
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
  const bool moved = acceptor_->advance([this](Handshake& peer) { return settle(peer); });
  if (acceptor_->take_changed()) set_timer();
  return moved;
}

// Attaches the connection of a peer that has proven itself. Returns false while this rank's own
// dial to the peer may still replace it.
bool RemoteLinks::settle(Handshake& peer) {
  const Key key{peer.peer(), peer.stream()};
  if (is_open(key)) return true;
  const auto dial = dials_.find(key);
  if (dial != dials_.end()) {
    // If both ranks dial at once, the lower rank's connection wins if that rank has already chosen it. Dropping a
    // dial without a choice is safe: the peer cannot have accepted its connections.
    if (rank_ < key.first && dial->second.chosen != nullptr) return false;
    dials_.erase(dial);
  }
  peer.confirm();
  if (peer.state() != Handshake::State::kOpen) return true;
  // The peer does not need a retired stream, but a refusal would fail its dial.
  if (std::ranges::find(retired_, key.second) == retired_.end()) attach(key, peer);
  return true;
}

// Completes pending handshakes, so that each peer receives the cause before this rank ends.
void RemoteLinks::finish_handshakes() {
  const auto is_in_handshake = [this] {
    return acceptor_->has_pending() ||
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
