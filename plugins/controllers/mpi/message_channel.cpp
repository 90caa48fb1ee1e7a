#include "controllers/mpi/message_channel.h"

#include <sched.h>

#include <climits>

#include "base/text.h"

namespace hvd::controllers::mpi {

MessageChannel::~MessageChannel() {
  bool in_flight = !sent_.empty();
  for (auto& messages : arrivals_) in_flight |= !messages.empty();
  if (in_flight) {
    // MPI may still read and write this memory.
    hvd::mpi::abandon_mpi();
    for (auto& pending : sent_) static_cast<void>(pending.release());
    for (auto& messages : arrivals_) {
      for (auto& pending : messages) static_cast<void>(pending.release());
    }
    return;
  }
  if (!hvd::mpi::is_over(job_.api)) job_.api.comm_free(&everyone_->comm);
}

Status MessageChannel::check(int code) const {
  if (code == MPI_SUCCESS) return {};
  return aborted(cat("MPI cannot carry messages: ", hvd::mpi::describe(job_.api, code)));
}

Status MessageChannel::send(Kind kind, int32_t to, ByteView message) {
  if (to < 0 || to >= everyone_->size) {
    return invalid_argument(cat("there is no rank ", to, " among ", everyone_->size));
  }
  if (message.size() > INT_MAX) {
    return invalid_argument(cat("a message of ", message.size(), " bytes is too large for MPI"));
  }
  Bytes bytes(message.begin(), message.end());
  if (to == everyone_->index) {
    own_.push_back(std::move(bytes));
    return {};
  }
  // From here on MPI may use the message's memory, even if the call fails.
  sent_.emplace_back(new PendingMessage{kind, std::move(bytes), job_.api.handles.no_request});
  PendingMessage& pending = *sent_.back();
  HVD_RETURN_IF_ERROR(
      check(job_.api.isend(pending.bytes.data(), static_cast<int>(pending.bytes.size()),
                           job_.api.handles.types[HVD_UINT8], to, static_cast<int>(kind),
                           everyone_->comm, &pending.request)));
  HVD_ASSIGN_OR_RETURN(const bool is_sent, is_done(pending));
  if (is_sent) sent_.pop_back();
  return {};
}

Result<bool> MessageChannel::is_done(PendingMessage& pending) const {
  int done = 0;
  HVD_RETURN_IF_ERROR(check(job_.api.testall(1, &pending.request, &done, MPI_STATUSES_IGNORE)));
  return done != 0;
}

Result<bool> MessageChannel::remove_sent() {
  bool moved = false;
  for (auto pending = sent_.begin(); pending != sent_.end();) {
    HVD_ASSIGN_OR_RETURN(const bool is_sent, is_done(**pending));
    pending = is_sent ? sent_.erase(pending) : pending + 1;
    moved |= is_sent;
  }
  return moved;
}

// Allocates memory for every message that has begun to arrive, so that the rank's next message becomes visible.
Result<bool> MessageChannel::probe_messages() {
  const auto& api = job_.api;
  bool moved = false;
  for (;;) {
    int there = 0;
    MPI_Status status{};
    HVD_RETURN_IF_ERROR(
        check(api.iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, everyone_->comm, &there, &status)));
    if (there == 0) return moved;
    const MPI_Datatype bytes = api.handles.types[HVD_UINT8];
    int size = 0;
    HVD_RETURN_IF_ERROR(check(api.get_count(&status, bytes, &size)));
    std::unique_ptr<PendingMessage> pending(new PendingMessage{static_cast<Kind>(status.MPI_TAG),
                                                               Bytes(static_cast<size_t>(size)),
                                                               api.handles.no_request});
    HVD_RETURN_IF_ERROR(check(api.irecv(pending->bytes.data(), size, bytes, status.MPI_SOURCE,
                                        status.MPI_TAG, everyone_->comm, &pending->request)));
    arrivals_[static_cast<size_t>(status.MPI_SOURCE)].push_back(std::move(pending));
    ++receiving_;
    moved = true;
  }
}

Result<bool> MessageChannel::deliver(const Receiver& receiver) {
  bool moved = false;
  for (size_t count = own_.size(); count > 0; --count) {
    const Bytes message = std::move(own_.front());
    own_.pop_front();
    receiver(Kind::kMessage, everyone_->index, message);
    moved = true;
  }
  for (size_t from = 0; from < arrivals_.size() && receiving_ > 0; ++from) {
    auto& messages = arrivals_[from];
    while (!messages.empty()) {
      HVD_ASSIGN_OR_RETURN(const bool is_here, is_done(*messages.front()));
      if (!is_here) break;
      const auto pending = std::move(messages.front());
      messages.pop_front();
      --receiving_;
      receiver(pending->kind, static_cast<int32_t>(from), pending->bytes);
      moved = true;
    }
  }
  return moved;
}

Result<bool> MessageChannel::poll(const Receiver& receiver) {
  HVD_ASSIGN_OR_RETURN(bool moved, probe_messages());
  HVD_ASSIGN_OR_RETURN(const bool delivered, deliver(receiver));
  HVD_ASSIGN_OR_RETURN(const bool sent, remove_sent());
  return moved || delivered || sent;
}

bool MessageChannel::flush(Deadline deadline) {
  const Receiver nobody = [](Kind, int32_t, ByteView) {};
  for (;;) {
    if (!poll(nobody).ok()) return false;
    if (!has_work()) return true;
    if (deadline.passed()) return false;
    ::sched_yield();
  }
}

}  // namespace hvd::controllers::mpi
