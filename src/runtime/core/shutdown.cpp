#include "runtime/core/shutdown.h"

#include <string>

#include "base/text.h"

namespace hvd::runtime {

Status Shutdown::refusal() const {
  if (!over_.load(std::memory_order_acquire)) return {};
  const MutexLock lock(refusal_mutex_);
  return refusal_;
}

Status Shutdown::refuse(int32_t op, std::string_view name) {
  if (!over_.load(std::memory_order_acquire)) return {};
  cut_off_.store(true);
  const MutexLock lock(refusal_mutex_);
  if (end_ != End::kShutdown || is_registration(op)) return refusal_;
  return aborted(
      cat(operation_text(op, name), " cannot run: ", refusal_.message(),
          " before every rank had submitted it; all ranks must submit the same operations before "
          "one of them ends (hvd.join() is for ranks with fewer steps)"));
}

std::optional<int32_t> Shutdown::cut_off_by() const {
  const int32_t peer = left_by_.load();
  if (peer < 0 || !cut_off_.load()) return {};
  return peer;
}

void Shutdown::refuse_from_now(Status reason, End end) {
  {
    const MutexLock lock(refusal_mutex_);
    if (!refusal_.ok()) return;
    refusal_ = std::move(reason);
    end_ = end;
  }
  over_.store(true, std::memory_order_release);
}

Shutdown::Step Shutdown::leave() {
  if (over() || protocol_.complete()) {
    if (!protocol_.stopping()) departed_.store(true);
    return Step::kNone;
  }
  return act(protocol_.leave(links_->rank()));
}

Shutdown::Step Shutdown::receive(MessageKind kind, const Notice& notice) {
  switch (kind) {
    case MessageKind::kLeave:
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
  if (actions.leave_up) {
    links_->send_notice(MessageKind::kLeave, {protocol_.leaver_asked_for(), HVD_OK, {}}, parent);
  }
  if (actions.stop_down) {
    links_->notify_children(MessageKind::kStop, {protocol_.leaver(), HVD_OK, {}});
    note_leaver(protocol_.leaver());
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
  // The program of another rank may also have returned or raised an exception.
  const bool is_own = leaver == links_->rank();
  const std::string who = is_own
                              ? std::string("this rank called shutdown")
                              : cat("rank ", leaver, " has ended its program or called shutdown");
  refuse_from_now(aborted(cat("Horovod has been shut down: ", who)), End::kShutdown);
  if (!is_own) left_by_.store(leaver);
}

Status Shutdown::fail(const Status& cause, int32_t heard_from, bool has_work) {
  refuse_from_now(cause, End::kFailure);
  Status first = protocol_.stopping() ? cause : refusal();
  departed_.store(true);
  if (first.lost_rank() >= 0 && left_by_.load() < 0) {
    left_by_.store(first.lost_rank());
    if (has_work) cut_off_.store(true);
  }

  const Notice notice{links_->rank(), static_cast<int32_t>(first.code()), first.message(),
                      first.lost_rank()};
  const TreePlace& place = links_->tree();
  if (place.parent >= 0 && place.parent != heard_from) {
    links_->send_notice(MessageKind::kAbort, notice, place.parent);
  }
  for (const int32_t child : place.children) {
    if (child != heard_from) links_->send_notice(MessageKind::kAbort, notice, child);
  }
  links_->drain();
  return first;
}

}  // namespace hvd::runtime
