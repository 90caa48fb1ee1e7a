#include "collectives/mesh/remote_links.h"

#include <sys/epoll.h>

#include <algorithm>
#include <cstring>

#include "base/lost_peer.h"
#include "base/text.h"

namespace hvd::collectives {

Result<std::unique_ptr<RemoteLinks>> RemoteLinks::open(net::DataLoop& loop,
                                                       const Credentials& credentials, int32_t rank,
                                                       net::PortRange ports) {
  std::unique_ptr<RemoteLinks> links(new RemoteLinks(loop, credentials, rank));
  HVD_ASSIGN_OR_RETURN(links->listener_, net::TcpListener::open(ports));
  return links;
}

RemoteLinks::~RemoteLinks() { close_listener(); }

Status RemoteLinks::start(const std::vector<PeerRecord>& records, double dial_seconds) {
  records_ = records;
  dial_seconds_ = dial_seconds;
  return loop_.add(listener_.socket.get(), EPOLLIN, *this);
}

void RemoteLinks::close_listener() {
  if (!listener_.socket) return;
  loop_.remove(listener_.socket.get());
  listener_.socket.reset();
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
  // A peer stream's end does not say why; the control stream beside it does.
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

Status RemoteLinks::send(int32_t rank, ByteView first, ByteView second) {
  if (!failure_.ok()) return failure_;
  ControlStream& stream = control(rank);
  if (stream.departed) return aborted(cat(describe(rank), " has shut down"));
  stream.put(FrameKind::kMessage, first, second);
  return {};
}

bool RemoteLinks::poll_control(int32_t rank, ControlStream& stream, const Receiver* receiver) {
  bool moved = stream.flush();
  Frame frame{FrameKind::kMessage, {}};
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
      fail(aborted(std::string(as_text(frame.payload))));
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

// Names both ends: either may be the one that tells all others.
Status RemoteLinks::lost(int32_t rank, int reason) const {
  const std::string link = cat("its connection to ", describe(rank_));
  return aborted(lost_peer(
      rank, records_[static_cast<size_t>(rank)].host,
      reason == 0 ? cat(link, " ended") : cat(link, " broke (", std::strerror(reason), ")")));
}

void RemoteLinks::check_peer_streams() {
  bool has_end = false;
  for (const auto& [key, peer_stream] : peer_streams_) {
    if (!peer_stream->ended()) continue;
    // A control stream that is not there yet knows more when it is, or cannot be.
    if (dials_.contains({key.first, 0})) continue;
    const auto control = controls_.find(key.first);
    if (control != controls_.end() && control->second->departed) continue;
    const int reason = peer_stream->end_reason();
    if (reason == 0) {
      // Why comes over the control stream, unless something between the hosts ended this alone.
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
  if (!pending_peers_.empty()) moved |= advance_pending_peers();
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

void RemoteLinks::say_last(FrameKind kind, const std::string& text) {
  for (const auto& [rank, stream] : controls_) {
    if (!stream->peer_stream().is_open() || stream->peer_stream().ended()) continue;
    stream->put(kind, as_bytes(text));
    stream->flush();
  }
}

void RemoteLinks::abort(const std::string& cause) {
  fail(aborted(cause));
  finish_handshakes();
  say_last(FrameKind::kAbort, cause);
  dials_.clear();
  pending_peers_.clear();
  // A group may still hold on to a peer stream: closed, it moves nothing.
  for (const auto& [key, peer_stream] : peer_streams_) peer_stream->close();
  for (const auto& [rank, stream] : controls_) stream->peer_stream().close();
  close_listener();
}

void RemoteLinks::depart() {
  say_last(FrameKind::kGoodbye, "");
  dials_.clear();
  pending_peers_.clear();
}

}  // namespace hvd::collectives
