#include "controllers/mpi/mail.h"

#include <sched.h>

#include <climits>

#include "base/text.h"

namespace hvd::controllers::mpi {

Mail::~Mail() {
  bool on_its_way = !sent_.empty();
  for (auto& letters : arrivals_) on_its_way |= !letters.empty();
  if (on_its_way) {
    // MPI may still read and write there.
    hvd::mpi::abandon_mpi();
    for (auto& letter : sent_) static_cast<void>(letter.release());
    for (auto& letters : arrivals_) {
      for (auto& letter : letters) static_cast<void>(letter.release());
    }
    return;
  }
  if (!hvd::mpi::is_over(job_.api)) job_.api.comm_free(&everyone_->comm);
}

Status Mail::check(int code) const {
  if (code == MPI_SUCCESS) return {};
  return aborted(cat("MPI cannot carry messages: ", hvd::mpi::describe(job_.api, code)));
}

Status Mail::send(Kind kind, int32_t to, ByteView message) {
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
  // MPI may know its memory from here on, whatever it returns.
  sent_.emplace_back(new Letter{kind, std::move(bytes), job_.api.handles.no_request});
  Letter& letter = *sent_.back();
  HVD_RETURN_IF_ERROR(check(job_.api.isend(
      letter.bytes.data(), static_cast<int>(letter.bytes.size()), job_.api.handles.types[HVD_UINT8],
      to, static_cast<int>(kind), everyone_->comm, &letter.request)));
  HVD_ASSIGN_OR_RETURN(const bool has_left, is_done(letter));
  if (has_left) sent_.pop_back();
  return {};
}

Result<bool> Mail::is_done(Letter& letter) const {
  int done = 0;
  HVD_RETURN_IF_ERROR(check(job_.api.testall(1, &letter.request, &done, MPI_STATUSES_IGNORE)));
  return done != 0;
}

Result<bool> Mail::forget_sent() {
  bool moved = false;
  for (auto letter = sent_.begin(); letter != sent_.end();) {
    HVD_ASSIGN_OR_RETURN(const bool has_left, is_done(**letter));
    letter = has_left ? sent_.erase(letter) : letter + 1;
    moved |= has_left;
  }
  return moved;
}

// Everything that has begun to come gets its room, so that the next of the same rank can be seen.
Result<bool> Mail::look_for_arrivals() {
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
    std::unique_ptr<Letter> letter(new Letter{static_cast<Kind>(status.MPI_TAG),
                                              Bytes(static_cast<size_t>(size)),
                                              api.handles.no_request});
    HVD_RETURN_IF_ERROR(check(api.irecv(letter->bytes.data(), size, bytes, status.MPI_SOURCE,
                                        status.MPI_TAG, everyone_->comm, &letter->request)));
    arrivals_[static_cast<size_t>(status.MPI_SOURCE)].push_back(std::move(letter));
    ++receiving_;
    moved = true;
  }
}

Result<bool> Mail::hand_over(const Receiver& receiver) {
  bool moved = false;
  for (size_t count = own_.size(); count > 0; --count) {
    const Bytes message = std::move(own_.front());
    own_.pop_front();
    receiver(Kind::kMessage, everyone_->index, message);
    moved = true;
  }
  for (size_t from = 0; from < arrivals_.size() && receiving_ > 0; ++from) {
    auto& letters = arrivals_[from];
    while (!letters.empty()) {
      HVD_ASSIGN_OR_RETURN(const bool is_here, is_done(*letters.front()));
      if (!is_here) break;
      const auto letter = std::move(letters.front());
      letters.pop_front();
      --receiving_;
      receiver(letter->kind, static_cast<int32_t>(from), letter->bytes);
      moved = true;
    }
  }
  return moved;
}

Result<bool> Mail::poll(const Receiver& receiver) {
  HVD_ASSIGN_OR_RETURN(bool moved, look_for_arrivals());
  HVD_ASSIGN_OR_RETURN(const bool handed, hand_over(receiver));
  HVD_ASSIGN_OR_RETURN(const bool left, forget_sent());
  return moved || handed || left;
}

bool Mail::flush(Deadline deadline) {
  const Receiver nobody = [](Kind, int32_t, ByteView) {};
  for (;;) {
    if (!poll(nobody).ok()) return false;
    if (!has_work()) return true;
    if (deadline.passed()) return false;
    ::sched_yield();
  }
}

}  // namespace hvd::controllers::mpi
