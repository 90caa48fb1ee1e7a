#include "runtime/core/shutdown.h"

#include <algorithm>
#include <string>

#include "base/lost_peer.h"
#include "base/text.h"

namespace hvd::runtime {
namespace {

bool has_one_of(const SetMembers& set, std::span<const int32_t> ranks) {
  return std::ranges::any_of(ranks, [&](int32_t rank) { return set.index_of(rank) >= 0; });
}

}  // namespace

int32_t Shutdown::leaver_of(const SetMembers& set) const {
  const auto found =
      std::ranges::find_if(leavers_, [&](int32_t rank) { return set.index_of(rank) >= 0; });
  return found == leavers_.end() ? -1 : *found;
}

Status Shutdown::left_by(int32_t leaver) const {
  // Another rank may leave without a call of shutdown: its program has ended, or has raised an exception.
  const std::string who = leaver == links_->rank()
                              ? std::string("this rank called shutdown")
                              : cat("rank ", leaver, " has ended its program or called shutdown");
  return aborted(cat("Horovod has been shut down: ", who));
}

Status Shutdown::refusal() const {
  if (!over_.load(std::memory_order_acquire)) return {};
  const MutexLock lock(mutex_);
  return leavers_.empty() ? failure_ : left_by(leavers_.front());
}

bool Shutdown::has_ended(const SetMembers& set) const {
  if (!is_ending()) return false;
  const MutexLock lock(mutex_);
  return !failure_.ok() || leaver_of(set) >= 0;
}

Status Shutdown::refuse(int32_t op, std::string_view name, const SetMembers& set) {
  if (!is_ending()) return {};
  const MutexLock lock(mutex_);
  const int32_t leaver = leaver_of(set);
  if (leaver < 0) {
    if (!failure_.ok()) cut_off_.store(true);
    return failure_;
  }
  int32_t nobody = -1;
  if (leaver != links_->rank()) left_by_.compare_exchange_strong(nobody, leaver);
  cut_off_.store(true);
  const Status reason = left_by(leaver);
  if (is_registration(op)) return reason;
  std::string text = cat(operation_text(op, name), " cannot run: ", reason.message());
  if (leaver != links_->rank()) {
    text +=
        " before it was complete; all ranks must submit the same operations, and wait for them, "
        "before one of them ends (ranks with fewer steps call hvd.join(), and Keras's fit takes "
        "steps_per_epoch)";
  }
  return aborted(std::move(text));
}

bool Shutdown::has_left(int32_t rank) const {
  if (!is_ending()) return false;
  const MutexLock lock(mutex_);
  return std::ranges::find(leavers_, rank) != leavers_.end();
}

Status Shutdown::refuse_message(std::string_view text, int32_t peer) {
  const MutexLock lock(mutex_);
  const int32_t leaver = peer < 0 && !leavers_.empty() ? leavers_.front() : peer;
  int32_t nobody = -1;
  if (leaver != links_->rank()) left_by_.compare_exchange_strong(nobody, leaver);
  cut_off_.store(true);
  return aborted(cat(text, " cannot run: ", left_by(leaver).message()));
}

bool Shutdown::has_set(bool is_own) const {
  for (const int32_t id : sets_->ids()) {
    const auto set = sets_->find(id);
    if (set != nullptr && (!is_own || set->index >= 0) && leaver_of(*set) < 0) return true;
  }
  return false;
}

std::optional<int32_t> Shutdown::cut_off_by() const {
  const int32_t peer = left_by_.load();
  if (peer < 0 || !cut_off_.load()) return {};
  return peer;
}

// Returns whether `rank` is in a set of which no member has left or wants to leave.
bool Shutdown::ends_a_set(int32_t rank) const {
  const MutexLock lock(mutex_);
  for (const int32_t id : sets_->ids()) {
    const auto set = sets_->find(id);
    if (set != nullptr && set->index_of(rank) >= 0 && !has_one_of(*set, leavers_) &&
        !has_one_of(*set, asked_)) {
      return true;
    }
  }
  return false;
}

std::string Shutdown::cut_off_cause() const {
  const MutexLock lock(mutex_);
  return std::string(cause_in(failure_));
}

Shutdown::Step Shutdown::leave() {
  if (!protocol_.stopping() && (over() || protocol_.complete())) departed_.store(true);
  if (over() || protocol_.complete() || !ends_a_set(links_->rank())) return Step::kNone;
  asked_.push_back(links_->rank());
  return act(protocol_.leave(links_->rank()));
}

Shutdown::Step Shutdown::receive(MessageKind kind, const Notice& notice) {
  switch (kind) {
    case MessageKind::kLeave:
      if (!ends_a_set(notice.rank)) return Step::kNone;
      asked_.push_back(notice.rank);
      return act(protocol_.leave(notice.rank));
    case MessageKind::kStop:
      return act(protocol_.stop(notice.rank));
    case MessageKind::kStopped:
      protocol_.child_stopped();
      return Step::kNone;
    default:
      return act(protocol_.goodbye());
  }
}

std::optional<Shutdown::Step> Shutdown::links_closed() {
  if (!protocol_.reported()) return {};
  return act(protocol_.goodbye());
}

Shutdown::Step Shutdown::act(const ShutdownProtocol::Actions& actions) {
  const int32_t parent = links_->tree().parent;
  if (actions.leave_up >= 0) {
    links_->send_notice(MessageKind::kLeave, {actions.leave_up, HVD_OK, {}}, parent);
  }
  if (actions.stop_down >= 0) {
    links_->notify_children(MessageKind::kStop, {actions.stop_down, HVD_OK, {}});
    note_leaver(actions.stop_down);
    return Step::kEndWork;
  }
  if (actions.stopped_up) {
    links_->send_notice(MessageKind::kStopped, {links_->rank(), HVD_OK, {}}, parent);
  }
  if (actions.goodbye_down) {
    links_->notify_children(MessageKind::kGoodbye, {protocol_.leaver(), HVD_OK, {}});
    departed_.store(true);
    return Step::kEndServices;
  }
  return Step::kNone;
}

void Shutdown::note_leaver(int32_t leaver) {
  {
    const MutexLock lock(mutex_);
    leavers_.push_back(leaver);
    if (!has_set(false)) over_.store(true, std::memory_order_release);
    if (!has_set(true)) own_sets_ended_.store(true);
  }
  is_ending_.store(true, std::memory_order_release);
}

Status Shutdown::fail(const Status& cause, int32_t received_from, bool has_work) {
  {
    const MutexLock lock(mutex_);
    failure_ = cause;
  }
  is_ending_.store(true, std::memory_order_release);
  over_.store(true, std::memory_order_release);
  own_sets_ended_.store(true);
  departed_.store(true);
  const int32_t lost = lost_rank_for(links_->rank(), cause);
  if (lost >= 0 && left_by_.load() < 0) {
    left_by_.store(lost);
    if (has_work) cut_off_.store(true);
  }

  const Notice notice{links_->rank(), static_cast<int32_t>(cause.code()), cause.message(),
                      cause.lost_rank()};
  const TreePlace& place = links_->tree();
  if (place.parent >= 0 && place.parent != received_from) {
    links_->send_notice(MessageKind::kAbort, notice, place.parent);
  }
  for (const int32_t child : place.children) {
    if (child != received_from) links_->send_notice(MessageKind::kAbort, notice, child);
  }
  links_->drain();
  return cause;
}

}  // namespace hvd::runtime
