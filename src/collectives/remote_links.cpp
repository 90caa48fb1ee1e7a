#include "collectives/remote_links.h"

#include <poll.h>
#include <sys/epoll.h>

#include <algorithm>
#include <cstring>

#include "base/lost_peer.h"
#include "base/log.h"
#include "base/text.h"

namespace hvd::collectives {
namespace {
constexpr size_t kGuestLimit = 1024;
constexpr auto kGuestPatience = std::chrono::seconds(10);
// A peer that fails refuses its new links at once; why it failed comes over the others.
constexpr double kSecondsForCause = 1;
// How long a rank waits for a call that it expects.
constexpr double kSecondsForCall = 0.3;
// A failing rank ends the greetings that are under way, so that it can say why.
constexpr double kSecondsForLastWords = 0.5;
}  // namespace

Result<std::unique_ptr<RemoteLinks>> RemoteLinks::open(net::DataLoop& loop,
                                                       const Credentials& credentials,
                                                       int32_t rank) {
  std::unique_ptr<RemoteLinks> links(new RemoteLinks(loop, credentials, rank));
  HVD_ASSIGN_OR_RETURN(links->listener_, net::TcpListener::open());
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

void RemoteLinks::on_events(uint32_t) {
  while (UniqueFd socket = net::accept_tcp(listener_)) {
    if (guests_.size() >= kGuestLimit) guests_.erase(guests_.begin());
    guests_.push_back(Greeting::accept(loop_, credentials_, std::move(socket), rank_,
                                       static_cast<int32_t>(records_.size())));
  }
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

Lane& RemoteLinks::lane(int32_t rank, uint64_t id) {
  // A lane's end says nothing about why; the control stream beside it does.
  control(rank);
  auto& lane = lanes_[{rank, id}];
  if (!lane) {
    lane = std::make_unique<Lane>(loop_, rank, id);
    begin_dial({rank, id});
  }
  return *lane;
}

void RemoteLinks::close_lane(Lane& lane) {
  const Key key{lane.peer(), lane.id()};
  dials_.erase(key);
  lanes_.erase(key);
}

bool RemoteLinks::is_open(Key key) const {
  if (key.second == 0) {
    const auto found = controls_.find(key.first);
    return found != controls_.end() && found->second->lane().is_open();
  }
  const auto found = lanes_.find(key);
  return found != lanes_.end() && found->second->is_open();
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
    dial.attempts.push_back(Greeting::dial(loop_, credentials_, std::move(socket).value(), rank_,
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
  Deadline next = lane_patience_;
  for (const auto& [key, dial] : dials_) {
    if (dial.deadline.time() < next.time()) next = dial.deadline;
  }
  for (const auto& [rank, deadline] : expected_) {
    if (deadline.time() < next.time()) next = deadline;
  }
  loop_.wake_at(next);
}

void RemoteLinks::attach(Key key, UniqueFd socket) {
  Lane* lane = nullptr;
  if (key.second == 0) {
    auto& stream = controls_[key.first];
    if (!stream) stream = std::make_unique<ControlStream>(loop_, key.first);
    lane = &stream->lane();
  } else {
    auto& slot = lanes_[key];
    if (!slot) slot = std::make_unique<Lane>(loop_, key.first, key.second);
    lane = slot.get();
  }
  const Status attached = lane->attach(std::move(socket));
  if (!attached.ok()) fail(attached.with_context(describe(key.first)));
}

// Moves one dial on; `finished` when it has ended, one way or the other.
bool RemoteLinks::advance_dial(Key key, Dial& dial, bool& finished) {
  bool moved = false;
  if (dial.chosen != nullptr && dial.chosen->state() == Greeting::State::kOpen) {
    attach(key, dial.chosen->take());
    finished = true;
    return true;
  }
  for (size_t i = 0; i < dial.attempts.size();) {
    Greeting& attempt = *dial.attempts[i];
    if (attempt.state() == Greeting::State::kFailed) {
      dial.failures.push_back(attempt.reason());
      if (dial.chosen == &attempt) dial.chosen = nullptr;
      dial.attempts.erase(dial.attempts.begin() + static_cast<ptrdiff_t>(i));
      moved = true;
      continue;
    }
    if (dial.chosen == nullptr && attempt.state() == Greeting::State::kProven) {
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
    const bool has_guest = std::any_of(guests_.begin(), guests_.end(), [&](const auto& guest) {
      return guest->state() == Greeting::State::kProven && guest->peer() == key.first &&
             guest->lane() == key.second;
    });
    if (has_guest) continue;
    if (!is_wanted) {
      controls_.erase(key.first);
      continue;
    }
    if (failures.empty()) failures.push_back("it has no address but loopback ones");
    fail(unavailable(cat(describe(rank_), " cannot reach ", describe(key.first), ": ",
                         join(failures, "; "))));
    return true;
  }
  return moved;
}

bool RemoteLinks::receive_guests() {
  bool moved = false;
  for (size_t i = 0; i < guests_.size();) {
    Greeting& guest = *guests_[i];
    bool gone = false;
    if (guest.state() == Greeting::State::kFailed) {
      log::debug(cat("refused a connection: ", guest.reason()));
      gone = true;
    } else if (guest.state() == Greeting::State::kProven) {
      const Key key{guest.peer(), guest.lane()};
      const auto dial = dials_.find(key);
      if (is_open(key)) {
        gone = true;
      } else if (dial == dials_.end() || rank_ > key.first || dial->second.chosen == nullptr) {
        // Of two calls at once the lower rank's stays, once it has got that far. The peer cannot
        // have taken a call that this rank has not chosen.
        if (dial != dials_.end()) dials_.erase(dial);
        guest.confirm();
        if (guest.state() == Greeting::State::kOpen) attach(key, guest.take());
        gone = true;
      }
    } else if (Clock::now() - guest.since() > kGuestPatience) {
      gone = true;
    }
    if (gone) {
      guests_.erase(guests_.begin() + static_cast<ptrdiff_t>(i));
      moved = true;
    } else {
      ++i;
    }
  }
  return moved;
}

Status RemoteLinks::send(int32_t rank, ByteView message) {
  if (!failure_.ok()) return failure_;
  ControlStream& stream = control(rank);
  if (stream.departed) return aborted(cat(describe(rank), " has shut down"));
  stream.put(FrameKind::kMessage, message);
  stream.flush();
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
        kept_.emplace_back(rank, std::move(frame.payload));
      }
    } else if (frame.kind == FrameKind::kAbort) {
      fail(aborted(std::string(as_text(frame.payload))));
      return true;
    } else {
      stream.departed = true;
    }
  }
  if (stream.lane().ended() && !stream.departed) {
    fail(lost(rank, stream.lane().end_reason()));
    return true;
  }
  return moved;
}

Status RemoteLinks::lost(int32_t rank, int reason) const {
  return aborted(lost_peer(
      rank, records_[static_cast<size_t>(rank)].host,
      reason == 0 ? "its connection ended" : cat("its connection broke (", std::strerror(reason), ")")));
}

void RemoteLinks::check_lanes() {
  bool has_end = false;
  for (const auto& [key, lane] : lanes_) {
    if (!lane->ended()) continue;
    // A control stream that is not there yet knows more when it is, or cannot be.
    if (dials_.contains({key.first, 0})) continue;
    const auto control = controls_.find(key.first);
    if (control != controls_.end() && control->second->departed) continue;
    const int reason = lane->end_reason();
    if (reason == 0) {
      // Why comes over the control stream, unless something between the hosts ended this alone.
      has_end = true;
      if (!lane_patience_.passed()) continue;
    }
    return fail(lost(key.first, reason));
  }
  if (has_end != lane_patience_.is_never()) return;
  lane_patience_ = has_end ? Deadline::after_seconds(kSecondsForCause) : Deadline::never();
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
  if (!guests_.empty()) moved |= receive_guests();
  if (!dials_.empty()) moved |= advance_dials();
  for (const auto& [rank, stream] : controls_) {
    if (!failure_.ok()) return true;
    if (stream->lane().is_open()) moved |= poll_control(rank, *stream, receiver);
  }
  if (failure_.ok()) check_lanes();
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
    if (!stream->lane().is_open() || stream->lane().ended()) continue;
    stream->put(kind, as_bytes(text));
    stream->flush();
  }
}

// Whoever this rank is about to have a link with would else learn of its end, and nothing more.
void RemoteLinks::finish_greetings() {
  const auto is_greeting = [this] {
    return !guests_.empty() || std::any_of(dials_.begin(), dials_.end(), [](const auto& entry) {
      return entry.first.second == 0 && !entry.second.attempts.empty();
    });
  };
  const Deadline deadline = Deadline::after_seconds(kSecondsForLastWords);
  while (is_greeting() && !deadline.passed()) {
    pollfd entry{loop_.fd(), POLLIN, 0};
    ::poll(&entry, 1, deadline.poll_timeout());
    loop_.dispatch();
    receive_guests();
    advance_dials();
  }
}

void RemoteLinks::abort(const std::string& cause) {
  fail(aborted(cause));
  finish_greetings();
  say_last(FrameKind::kAbort, cause);
  dials_.clear();
  guests_.clear();
  // A group may still hold on to a lane: closed, it moves nothing.
  for (const auto& [key, lane] : lanes_) lane->close();
  for (const auto& [rank, stream] : controls_) stream->lane().close();
  close_listener();
}

void RemoteLinks::depart() {
  say_last(FrameKind::kGoodbye, "");
  dials_.clear();
  guests_.clear();
}

}  // namespace hvd::collectives
