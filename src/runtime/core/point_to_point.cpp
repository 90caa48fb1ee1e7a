#include "runtime/core/point_to_point.h"

#include <algorithm>
#include <cstring>

#include "base/text.h"

namespace hvd::runtime {
namespace {

// The largest message that is sent together with its header, which saves a round trip. On one host, several
// such messages must fit into the receiver's mailbox.
constexpr size_t kSmallInHost = 2048;
constexpr size_t kSmallBetweenHosts = 32 * 1024;
// Bytes of unread small messages that a receiver keeps for one sender. Further messages are only offered.
constexpr uint64_t kMostUnread = 4 << 20;
constexpr uint64_t kReportConsumed = kMostUnread / 4;
// The limits count each message as its bytes plus this number, so that empty messages are limited too.
constexpr uint64_t kMessageCost = 64;
constexpr size_t kPiece = 64 * 1024;
constexpr size_t kMostPieces = 8 * kPiece;  // bytes sent and not yet taken
constexpr int32_t kDestroyed = 1;           // the tag of a group_end for a destroyed group

bool is_send(const Submission& submission) { return submission.request.op == HVD_SEND; }

std::string elements_text(uint64_t count, int32_t dtype) {
  return cat(count, count == 1 ? " element of " : " elements of ", dtype_name(dtype));
}

PeerMessage about(PeerStep step, uint64_t id, uint64_t count = 0) {
  PeerMessage message;
  message.step = step;
  message.id = id;
  message.count = count;
  return message;
}

PeerMessage head_of(PeerStep step, const Submission& send) {
  PeerMessage message = about(step, send.message.id);
  message.dtype = static_cast<uint8_t>(send.request.tensors[0].dtype);
  message.tag = send.message.tag;
  message.set = send.set;
  message.count = static_cast<uint64_t>(send.request.tensors[0].count());
  return message;
}

ByteView data_of(const Submission& send) {
  return {static_cast<const std::byte*>(send.tensors[0].input), send.tensors[0].bytes};
}

}  // namespace

PointToPoint::PointToPoint(const Parts& parts)
    : parts_(parts), rank_(parts.links->rank()), peers_(parts.links->machines().size()) {}

Status PointToPoint::refusal() const {
  if (!refuses_.load(std::memory_order_acquire)) return {};
  const MutexLock lock(mutex_);
  return refusal_;
}

PeerLink& PointToPoint::peer(int32_t rank) {
  auto& link = peers_[static_cast<size_t>(rank)];
  if (!link) link = std::make_unique<PeerLink>(rank, mesh_);
  return *link;
}

// Ignores the failure of a send to a rank that has left.
Status PointToPoint::send(int32_t rank, const PeerMessage& message, ByteView rest) {
  const Status status = parts_.links->send(rank, header_of(message), rest);
  return !status.ok() && has_left(rank) ? Status() : status;
}

void PointToPoint::stay_open() {
  if (mesh_ == nullptr || refuses_.load()) return;
  in_use_.store(true, std::memory_order_release);
  for (Submission* one = parts_.submissions->newest(); one != nullptr; one = one->older) {
    if (one->request.op == HVD_RECV && one->accepted && !one->planned) watch(*one);
  }
}

// Opens the link to the sender of a receive, because the link reports the end of the sender.
void PointToPoint::watch(const Submission& receive) {
  if (receive.message.peer >= 0) peer(receive.message.peer).open_stream();
}

bool PointToPoint::has_left(int32_t rank) const {
  return parts_.shutdown->has_left(rank) || (mesh_ != nullptr && mesh_->departed(rank));
}

Status PointToPoint::start(Submission* submission) {
  if (Status why = refusal(); !why.ok()) {
    complete(submission, why.with_context(cat(operation_text(*submission), " cannot run")));
    return {};
  }
  if (parts_.sets->was_removed(submission->set)) {
    complete(submission, not_found(cat(operation_text(*submission), " cannot run: process set ",
                                       submission->process_set, " was removed meanwhile")));
    return {};
  }
  in_use_.store(true, std::memory_order_release);
  submission->message.order = next_order_++;
  parts_.instruments->trace.wait_for_peer(submission);
  return is_send(*submission) ? start_send(submission) : start_receive(submission);
}

bool PointToPoint::is_small(const Submission& send) {
  const size_t bytes = send.tensors[0].bytes;
  PeerLink& link = peer(send.message.peer);
  if (bytes > (link.is_local() ? kSmallInHost : kSmallBetweenHosts)) return false;
  return link.unread + bytes + kMessageCost <= kMostUnread;
}

Status PointToPoint::start_send(Submission* send) {
  const int32_t to = send->message.peer;
  if (has_left(to)) {
    complete(send, parts_.shutdown->refuse_message(operation_text(*send), to));
    return {};
  }
  const ByteView data = data_of(*send);
  if (to == rank_) {
    const PeerMessage head = head_of(PeerStep::kData, *send);
    if (Submission* receive = matcher_.match(send->set, send->message.tag, rank_)) {
      const Status wrong = mismatch(*receive, rank_, head.dtype, head.count);
      if (wrong.ok()) deliver(receive, rank_, data);
      complete(receive, wrong);
      complete(send, wrong);
      return {};
    }
    auto message = std::make_unique<ArrivedMessage>(ArrivedMessage{
        send->set, send->message.tag, rank_, head.dtype, head.count, 0, nullptr, {}});
    if (data.size() <= kSmallInHost) {
      message->data.assign(data.begin(), data.end());
      complete(send, {});
    } else {
      send->message.id = message->id = next_id_++;
      message->sender = send;
      wait_for_peer(send);
    }
    matcher_.keep(std::move(message));
    return {};
  }
  PeerLink& link = peer(to);
  link.has_sent = true;
  if (!is_small(*send)) {
    send->message.id = next_id_++;
    offered_.emplace(send->message.id, Offer{send, {}});
    wait_for_peer(send);
    const auto place = link.place_of(data);
    send->message.is_lent = place.has_value();
    const PeerPlace shared =
        place ? PeerPlace{place->block, place->size, place->offset} : PeerPlace{};
    return this->send(to, head_of(PeerStep::kOffer, *send),
                      place ? std::as_bytes(std::span(&shared, 1)) : ByteView());
  }
  link.unread += data.size() + kMessageCost;
  begin_transfer(send, to);
  Status status;
  if (link.is_local()) {
    const auto header = header_of(head_of(PeerStep::kData, *send));
    buffer_.resize(header.size() + data.size());
    std::memcpy(buffer_.data(), header.data(), header.size());
    if (!data.empty()) std::memcpy(buffer_.data() + header.size(), data.data(), data.size());
    status = parts_.links->send(to, buffer_);
    if (!status.ok() && has_left(to)) status = {};
  } else {
    status = this->send(to, head_of(PeerStep::kData, *send), data);
  }
  if (status.ok()) complete(send, {});
  return status;
}

Status PointToPoint::start_receive(Submission* receive) {
  if (auto message = matcher_.match(receive)) return take(receive, std::move(message));
  // Fail the receive: any message from a rank would have arrived before the notice that it left.
  if (is_hopeless(*receive)) {
    matcher_.drop(receive);
    complete(receive,
             parts_.shutdown->refuse_message(operation_text(*receive), receive->message.peer));
    return {};
  }
  if (parts_.shutdown->is_ending()) watch(*receive);
  wait_for_peer(receive);
  return {};
}

// Returns whether the other rank has left; for HVD_ANY_RANK, whether all other ranks of the set
// have left.
bool PointToPoint::is_hopeless(const Submission& submission) const {
  if (submission.message.peer != HVD_ANY_RANK) return has_left(submission.message.peer);
  const auto set = parts_.sets->find(submission.process_set);
  if (set == nullptr || set->serial != submission.set) return false;
  return set->size() > 1 && std::ranges::all_of(set->ranks, [this](int32_t rank) {
           return rank == rank_ || has_left(rank);
         });
}

void PointToPoint::wait_for_peer(Submission* submission) {
  auto& message = submission->message;
  submission->accepted = true;
  if (message.timeout <= 0) return;
  if (message.expires == Clock::time_point::max()) {
    message.expires = Deadline::after_seconds(message.timeout).time();
  }
  alarm_ = std::min(alarm_, message.expires);
}

Status PointToPoint::mismatch(const Submission& receive, int32_t from, int32_t dtype,
                              uint64_t count) const {
  const TensorSpec& spec = receive.request.tensors[0];
  const auto wanted = static_cast<uint64_t>(spec.count());
  if (spec.dtype == dtype && wanted == count) return {};
  return invalid_argument(cat(operation_text(receive), " has memory for ",
                              elements_text(wanted, spec.dtype), ", but rank ", from, " sends ",
                              elements_text(count, dtype), " to rank ", rank_));
}

// Consumes a message that arrived before its receive.
Status PointToPoint::take(Submission* receive, std::unique_ptr<ArrivedMessage> message) {
  const int32_t from = message->source;
  const Status wrong = mismatch(*receive, from, message->dtype, message->count);
  if (message->sender != nullptr) {
    if (wrong.ok()) deliver(receive, from, data_of(*message->sender));
    complete(message->sender, wrong);
    complete(receive, wrong);
    return {};
  }
  if (message->id != 0) {
    if (wrong.ok()) return accept(receive, from, message->id, message->data);
    complete(receive, wrong);
    return send(from, about(PeerStep::kRefused, message->id), as_bytes(wrong.message()));
  }
  if (wrong.ok()) deliver(receive, from, message->data);
  complete(receive, wrong);
  return count_consumed(from, message->data.size());
}

Status PointToPoint::arrive(int32_t from, const PeerMessage& message) {
  in_use_.store(true, std::memory_order_release);
  Submission* const receive = matcher_.match(message.set, message.tag, from);
  const bool is_offer = message.step == PeerStep::kOffer;
  if (receive == nullptr && parts_.sets->was_removed(message.set)) {
    // An offer needs no reply: the sender fails the offer when it removes the set.
    return is_offer ? Status() : count_consumed(from, message.rest.size());
  }
  if (receive == nullptr) {
    auto arrived = std::make_unique<ArrivedMessage>(ArrivedMessage{message.set,
                                                                   message.tag,
                                                                   from,
                                                                   message.dtype,
                                                                   message.count,
                                                                   is_offer ? message.id : 0,
                                                                   nullptr,
                                                                   {}});
    arrived->data.assign(message.rest.begin(), message.rest.end());
    matcher_.keep(std::move(arrived));
    return {};
  }
  const Status wrong = mismatch(*receive, from, message.dtype, message.count);
  if (is_offer) {
    if (wrong.ok()) return accept(receive, from, message.id, message.rest);
    complete(receive, wrong);
    return send(from, about(PeerStep::kRefused, message.id), as_bytes(wrong.message()));
  }
  if (wrong.ok()) deliver(receive, from, message.rest);
  complete(receive, wrong);
  return count_consumed(from, message.rest.size());
}

void PointToPoint::deliver(Submission* receive, int32_t from, ByteView data) {
  begin_transfer(receive, from);
  if (!data.empty()) std::memcpy(receive->tensors[0].output, data.data(), data.size());
}

// Reports received bytes to the sender, in large steps.
Status PointToPoint::count_consumed(int32_t from, size_t bytes) {
  if (from == rank_) return {};
  PeerLink& link = peer(from);
  link.consumed += bytes + kMessageCost;
  if (link.consumed < kReportConsumed) return {};
  return send(from, about(PeerStep::kConsumed, 0, std::exchange(link.consumed, 0)));
}

Status PointToPoint::accept(Submission* receive, int32_t from, uint64_t id, ByteView place) {
  begin_transfer(receive, from);
  receive->message.id = id;
  PeerLink& link = peer(from);
  link.has_sent = true;
  if (receive->tensors[0].bytes == 0) {
    complete(receive, {});
  } else if (!place.empty()) {
    PeerPlace shared;
    HVD_RETURN_IF_ERROR(decode(place, &shared));
    link.copies.push_back({receive, {shared.block, shared.size, shared.offset}});
    activate(link);
  } else {
    link.open_stream();
    link.incoming.push_back(receive);
    activate(link);
  }
  return send(from, about(PeerStep::kAccept, id));
}

Status PointToPoint::accepted(int32_t from, uint64_t id) {
  const auto found = offered_.find(id);
  if (found == offered_.end() || found->second.send->message.peer != from) return {};  // withdrawn
  Submission* const send = found->second.send;
  // A withdrawn message ends with the receiver's reply, since the receiver may already have copied it.
  if (!found->second.withdrawn.ok() && send->tensors[0].bytes > 0) return {};
  offered_.erase(found);
  begin_transfer(send, from);
  if (send->tensors[0].bytes == 0) {
    complete(send, {});
    return {};
  }
  PeerLink& link = peer(from);
  if (send->message.is_lent) {
    link.lent.push_back(send);
    activate(link);
    return {};
  }
  if (const auto place = link.prepare()) {
    const PeerPlace ring{place->block, place->size, place->offset};
    HVD_RETURN_IF_ERROR(
        this->send(from, about(PeerStep::kRing, 0), std::as_bytes(std::span(&ring, 1))));
  }
  link.outgoing.push_back(send);
  activate(link);
  bool moved = false;
  return write(link, &moved);
}

Status PointToPoint::refused(const PeerMessage& message) {
  const auto found = offered_.find(message.id);
  if (found == offered_.end()) return {};
  const auto [send, withdrawn] = std::move(found->second);
  offered_.erase(found);
  complete(send, withdrawn.ok() ? invalid_argument(std::string(as_text(message.rest))) : withdrawn);
  return {};
}

Status PointToPoint::withdrawn(int32_t from, const PeerMessage& message) {
  HVD_RETURN_IF_ERROR(take_back(from, message.id));
  // With count 0, the sender does not wait for a reply: it has already completed the send.
  return message.count == 0 ? Status() : send(from, about(PeerStep::kRefused, message.id));
}

Status PointToPoint::take_back(int32_t from, uint64_t id) {
  if (matcher_.take_offer(from, id) != nullptr) return {};
  // The message is not in the matcher: this rank has accepted it meanwhile.
  PeerLink& link = peer(from);
  Submission* receive = link.find_incoming(id);
  const auto copy = std::ranges::find_if(
      link.copies, [id](const auto& one) { return one.receive->message.id == id; });
  if (receive != nullptr) {
    std::erase(link.incoming, receive);
  } else if (copy != link.copies.end()) {
    receive = copy->receive;
    link.copies.erase(copy);
  } else {
    return {};
  }
  // The receive waits for the next message.
  parts_.instruments->trace.end_batch(std::exchange(receive->message.traced, 0));
  receive->planned = false;
  receive->message.peer = receive->request.root;
  return start_receive(receive);
}

Status PointToPoint::open_ring(int32_t from, const PeerMessage& message) {
  PeerPlace place;
  HVD_RETURN_IF_ERROR(decode(message.rest, &place));
  return peer(from).open_ring({place.block, place.size, place.offset});
}

void PointToPoint::activate(PeerLink& link) {
  if (std::ranges::find(active_, &link) == active_.end()) active_.push_back(&link);
}

Status PointToPoint::advance(bool* moved) {
  for (size_t i = 0; i < active_.size(); ++i) {
    PeerLink& link = *active_[i];
    HVD_RETURN_IF_ERROR(write(link, moved));
    HVD_RETURN_IF_ERROR(read(link, moved));
    if (!link.copies.empty()) HVD_RETURN_IF_ERROR(copy(link, moved));
  }
  const auto is_idle = [](const PeerLink* link) { return !link->is_active(); };
  if (!active_.empty()) std::erase_if(active_, is_idle);
  return is_ending_ ? flush(moved) : Status();
}

Status PointToPoint::write(PeerLink& link, bool* moved) {
  if (link.sends_pieces()) return send_pieces(link, moved);
  while (!link.outgoing.empty()) {
    Submission* const done = link.write(moved);
    if (done == nullptr) return {};
    complete(done, {});
  }
  return {};
}

Status PointToPoint::read(PeerLink& link, bool* moved) {
  while (!link.incoming.empty()) {
    const auto done = link.read(moved);
    if (!done.ok()) return done.error().with_context(cat("rank ", link.rank()));
    if (*done == nullptr) return {};
    complete(*done, {});
  }
  return link.owes_flushed ? answer_flush(link) : Status();
}

Status PointToPoint::copy(PeerLink& link, bool* moved) {
  const auto done = link.copy();
  if (!done.ok()) return done.error().with_context(cat("rank ", link.rank()));
  *moved = true;
  if (*done == nullptr) return {};
  HVD_RETURN_IF_ERROR(send(link.rank(), about(PeerStep::kCopied, (*done)->message.id)));
  complete(*done, {});
  return link.owes_flushed ? answer_flush(link) : Status();
}

Status PointToPoint::copied(int32_t from, uint64_t id) {
  PeerLink& link = peer(from);
  const auto found = std::ranges::find_if(
      link.lent, [id](const Submission* send) { return send->message.id == id; });
  if (found != link.lent.end()) {
    Submission* const send = *found;
    link.lent.erase(found);
    complete(send, {});
    return {};
  }
  // Otherwise the send was withdrawn, but too late: the receiver has copied its memory.
  const auto offer = offered_.find(id);
  if (offer == offered_.end() || offer->second.send->message.peer != from ||
      offer->second.withdrawn.ok()) {
    return {};
  }
  Submission* const send = offer->second.send;
  offered_.erase(offer);
  complete(send, {});
  return {};
}

Status PointToPoint::send_pieces(PeerLink& link, bool* moved) {
  for (Submission* const send : link.outgoing) {
    auto& message = send->message;
    const ByteView data = data_of(*send);
    while (message.moved < data.size()) {
      if (message.moved - message.taken >= kMostPieces) return {};
      const ByteView piece =
          data.subspan(message.moved, std::min(kPiece, data.size() - message.moved));
      HVD_RETURN_IF_ERROR(this->send(link.rank(), about(PeerStep::kPiece, message.id), piece));
      message.moved += piece.size();
      *moved = true;
    }
  }
  return {};
}

Status PointToPoint::take_piece(int32_t from, const PeerMessage& message) {
  PeerLink& link = peer(from);
  Submission* const receive = link.find_incoming(message.id);
  if (receive == nullptr || message.rest.empty() ||
      message.rest.size() > receive->tensors[0].bytes - receive->message.moved) {
    return invalid_argument("a piece of a message that this rank has not accepted");
  }
  auto* const data = static_cast<std::byte*>(receive->tensors[0].output);
  std::memcpy(data + receive->message.moved, message.rest.data(), message.rest.size());
  receive->message.moved += message.rest.size();
  HVD_RETURN_IF_ERROR(send(from, about(PeerStep::kTaken, message.id, message.rest.size())));
  if (receive->message.moved < receive->tensors[0].bytes) return {};
  std::erase(link.incoming, receive);
  complete(receive, {});
  return link.owes_flushed ? answer_flush(link) : Status();
}

Status PointToPoint::taken(int32_t from, const PeerMessage& message) {
  PeerLink& link = peer(from);
  const auto found = std::ranges::find_if(
      link.outgoing, [&](const Submission* send) { return send->message.id == message.id; });
  if (found == link.outgoing.end()) return {};
  Submission* const send = *found;
  send->message.taken += message.count;
  if (send->message.taken >= send->tensors[0].bytes) {
    link.outgoing.erase(found);
    complete(send, {});
  }
  bool moved = false;
  return write(link, &moved);
}

bool PointToPoint::may_sleep() {
  return std::ranges::none_of(active_, [](PeerLink* link) { return link->may_move(); });
}

Status PointToPoint::receive(int32_t from, ByteView bytes) {
  PeerMessage message;
  HVD_RETURN_IF_ERROR(decode(bytes, &message));
  if (has_failed_) return {};
  switch (message.step) {
    case PeerStep::kData:
    case PeerStep::kOffer:
      return arrive(from, message);
    case PeerStep::kAccept:
      return accepted(from, message.id);
    case PeerStep::kRefused:
      return refused(message);
    case PeerStep::kWithdrawn:
      return withdrawn(from, message);
    case PeerStep::kRing:
      return open_ring(from, message);
    case PeerStep::kPiece:
      return take_piece(from, message);
    case PeerStep::kTaken:
      return taken(from, message);
    case PeerStep::kConsumed: {
      PeerLink& link = peer(from);
      link.unread -= std::min(link.unread, message.count);
      return {};
    }
    case PeerStep::kCopied:
      return copied(from, message.id);
    case PeerStep::kGroupEnd:
      parts_.groups->member_left({from, message.id, message.count, message.tag == kDestroyed});
      return {};
    case PeerStep::kFlush:
      return answer_flush(peer(from));
    case PeerStep::kFlushed:
      peer(from).awaits_flush = false;
      return {};
  }
  return {};
}

// Fails a send or receive without a match.
Status PointToPoint::withdraw(Submission* submission, const Status& why) {
  Status notified;
  if (!is_send(*submission)) {
    matcher_.drop(submission);
  } else if (submission->message.peer == rank_) {
    matcher_.take_offer(rank_, submission->message.id);
  } else {
    const int32_t to = submission->message.peer;
    const uint64_t id = submission->message.id;
    const auto offer = offered_.find(id);
    if (submission->message.is_lent && offer != offered_.end() && !has_left(to)) {
      // The receiver may be copying the memory: the send ends with the receiver's reply.
      if (!offer->second.withdrawn.ok()) return {};
      offer->second.withdrawn = why;
      submission->message.expires = Clock::time_point::max();
      return send(to, about(PeerStep::kWithdrawn, id, 1));
    }
    offered_.erase(id);
    if (!has_left(to)) notified = send(to, about(PeerStep::kWithdrawn, id));
  }
  complete(submission, why);
  return notified;
}

// Fails each unmatched send and receive for which selects(submission) is true. With an ok `why`,
// the error is that its peer has left.
template <typename Selects>
Status PointToPoint::withdraw_if(Selects&& selects, const Status& why) {
  for (Submission* one = parts_.submissions->newest(); one != nullptr;) {
    Submission* const older = one->older;
    if (is_message(*one) && one->accepted && !one->planned && selects(*one)) {
      const std::string text = operation_text(*one);
      const Status because = why.ok() ? parts_.shutdown->refuse_message(text, one->message.peer)
                                      : why.with_context(cat(text, " cannot run"));
      HVD_RETURN_IF_ERROR(withdraw(one, because));
    }
    one = older;
  }
  return {};
}

Status PointToPoint::run_alarms(Clock::time_point now) {
  if (alarm_ > now) return {};
  alarm_ = Clock::time_point::max();
  for (Submission* one = parts_.submissions->newest(); one != nullptr;) {
    Submission* const older = one->older;
    if (is_message(*one) && one->accepted && !one->planned) {
      const auto& message = one->message;
      if (message.expires > now) {
        alarm_ = std::min(alarm_, message.expires);
      } else {
        const std::string who =
            message.peer == HVD_ANY_RANK ? std::string("no rank") : cat("rank ", message.peer);
        const char* const what = is_send(*one) ? " has not received it" : " has not sent it";
        HVD_RETURN_IF_ERROR(withdraw(
            one, deadline_exceeded(cat(operation_text(*one), " has waited for its time limit of ",
                                       message.timeout, " s: ", who,
                                       message.peer == HVD_ANY_RANK ? " has sent it" : what))));
      }
    }
    one = older;
  }
  return {};
}

Status PointToPoint::check_peers() {
  for (PeerLink* const link : active_) {
    if (link->is_active() && has_left(link->rank())) fail_transfers(*link);
  }
  return withdraw_if([this](const Submission& one) { return is_hopeless(one); }, {});
}

// Fails the open transfers with a rank that has left. Only a failed rank leaves open transfers: without an error, a
// rank leaves after the end of its transfers and the reply to its last message.
void PointToPoint::fail_transfers(PeerLink& link) {
  for (Submission* const one : link.drop_transfers()) {
    complete(one, parts_.shutdown->refuse_message(operation_text(*one), link.rank()));
  }
}

Status PointToPoint::remove_set(uint32_t serial, const Status& why) {
  HVD_RETURN_IF_ERROR(
      withdraw_if([serial](const Submission& one) { return one.set == serial; }, why));
  // Offered messages (id != 0) need no reply: the sender also removes the set, and fails the messages.
  for (const auto& message : matcher_.take_messages(serial)) {
    if (message->id == 0)
      HVD_RETURN_IF_ERROR(count_consumed(message->source, message->data.size()));
  }
  return {};
}

Status PointToPoint::end(std::span<const GroupEnd> ends) {
  if (is_ending_ || refuses_.load()) return {};
  is_ending_ = true;
  const Status why = aborted("Horovod has been shut down: this rank called shutdown");
  {
    const MutexLock lock(mutex_);
    refusal_ = why;
  }
  refuses_.store(true, std::memory_order_release);
  HVD_RETURN_IF_ERROR(withdraw_if([](const Submission&) { return true; }, why));
  HVD_RETURN_IF_ERROR(notify(ends));
  bool moved = false;
  return flush(&moved);
}

Status PointToPoint::notify(std::span<const GroupEnd> ends) {
  for (const GroupEnd& end : ends) {
    if (has_left(end.rank)) continue;
    PeerMessage message = about(PeerStep::kGroupEnd, end.key, end.calls);
    if (end.is_destroyed) message.tag = kDestroyed;
    HVD_RETURN_IF_ERROR(send(end.rank, message));
    peer(end.rank).has_sent = true;
  }
  return {};
}

// Sends a flush to each peer after the last byte to it: the peer replies when all bytes have arrived.
Status PointToPoint::flush(bool* moved) {
  if (ended_.load(std::memory_order_relaxed)) return {};
  bool all = true;
  for (const auto& link : peers_) {
    if (!link) continue;
    if (has_left(link->rank())) {
      link->awaits_flush = link->has_sent = false;
    } else if (link->has_sent && !link->is_active()) {
      link->has_sent = false;
      link->awaits_flush = true;
      HVD_RETURN_IF_ERROR(send(link->rank(), about(PeerStep::kFlush, 0)));
    }
    all = all && !link->has_sent && !link->awaits_flush && !link->is_active();
  }
  if (!all) return {};
  ended_.store(true);
  *moved = true;
  return {};
}

Status PointToPoint::answer_flush(PeerLink& link) {
  link.owes_flushed = !link.incoming.empty() || !link.copies.empty();
  return link.owes_flushed ? Status() : send(link.rank(), about(PeerStep::kFlushed, 0));
}

void PointToPoint::fail(const Status& why) {
  {
    const MutexLock lock(mutex_);
    refusal_ = why;
  }
  refuses_.store(true, std::memory_order_release);
  has_failed_ = true;
  matcher_.clear();
  offered_.clear();
  active_.clear();
  alarm_ = Clock::time_point::max();
  for (const auto& link : peers_) {
    if (!link) continue;
    if (!ended_.load()) link->keep_ring();
    link->drop_transfers();
  }
  in_use_.store(false, std::memory_order_release);
  ended_.store(true);
}

void PointToPoint::close() {
  in_use_.store(false, std::memory_order_release);
  for (const auto& link : peers_) {
    if (link && !ended_.load()) link->keep_ring();
  }
  active_.clear();
  peers_.clear();
  peers_.resize(parts_.links->machines().size());
  mesh_.reset();
}

// Marks a submission as matched with rank `other`, and records the start of the transfer.
void PointToPoint::begin_transfer(Submission* submission, int32_t other) {
  auto& message = submission->message;
  submission->planned = true;
  message.peer = other;
  message.moved = message.taken = 0;
  const bool is_local = other == rank_ || peer(other).is_local();
  message.traced = parts_.instruments->trace.start_transfer(submission, is_local);
}

void PointToPoint::complete(Submission* submission, Status status) {
  parts_.instruments->trace.end_batch(std::exchange(submission->message.traced, 0));
  parts_.sink->complete(submission, std::move(status));
}

}  // namespace hvd::runtime
