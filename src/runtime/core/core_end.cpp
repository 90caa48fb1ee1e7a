// How a runtime core ends: by a rank that leaves, or by a failure.
#include <cstddef>

#include "base/check.h"
#include "base/log/log.h"
#include "base/lost_peer.h"
#include "base/text.h"
#include "runtime/core/runtime_core.h"

namespace hvd::runtime {
namespace {

// Passes over the links that a dying rank makes to get its last words out.
constexpr int kLastWords = 64;

}  // namespace

// `rest` ends the message.
Status RuntimeCore::send(int32_t rank, ByteView message, ByteView rest) {
  void* const context = controller_->context();
  int code = HVD_OK;
  if (rest.empty()) {
    code = link().send(context, rank, message.data(), message.size());
  } else if (link().struct_size >= offsetof(hvd_controller_v1, send_parts) + sizeof(void*) &&
             link().send_parts != nullptr) {
    code =
        link().send_parts(context, rank, message.data(), message.size(), rest.data(), rest.size());
  } else {
    return send(rank, ByteWriter().put_raw(message).put_raw(rest).view());
  }
  ++counts_.messages_sent;
  if (code == HVD_OK) return {};
  return aborted(cat("rank ", options_.rank, " cannot send to rank ", rank));
}

void RuntimeCore::send_notice(MessageKind kind, const Notice& notice, int32_t rank) {
  ByteWriter out;
  encode(kind, notice, out);
  if (Status status = send(rank, out.view()); !status.ok()) {
    // The link's own failure, with its reason, comes from poll.
    log::debug(status.message());
  }
}

void RuntimeCore::notify_children(MessageKind kind, const Notice& notice) {
  for (const int32_t child : tree().children) send_notice(kind, notice, child);
}

void RuntimeCore::leave() {
  if (over() || shutdown_->complete()) {
    if (!shutdown_->stopping()) departed_.store(true);
    return;
  }
  act(shutdown_->leave(options_.rank));
}

void RuntimeCore::act(const ShutdownProtocol::Actions& actions) {
  const int32_t parent = tree().parent;
  if (actions.leave_up) {
    send_notice(MessageKind::kLeave, {shutdown_->leaver_asked_for(), HVD_OK, {}}, parent);
  }
  if (actions.stop_down) {
    notify_children(MessageKind::kStop, {shutdown_->leaver(), HVD_OK, {}});
    end_at(shutdown_->leaver());
  }
  if (actions.stopped_up) {
    send_notice(MessageKind::kStopped, {options_.rank, HVD_OK, {}}, parent);
  }
  if (actions.goodbye_down) {
    notify_children(MessageKind::kGoodbye, {shutdown_->leaver(), HVD_OK, {}});
    departed_.store(true);
    end_services();
  }
}

// Nothing is planned any more: what is not planned yet never will be.
void RuntimeCore::end_at(int32_t leaver) {
  // Another's program may as well have come to its end, or to an exception's.
  const std::string who = leaver == options_.rank
                              ? std::string("this rank called shutdown")
                              : cat("rank ", leaver, " has ended its program or called shutdown");
  refuse_from_now(aborted(cat("Horovod has been shut down: ", who)), End::kShutdown);
  if (leaver != options_.rank) left_by_.store(leaver);
  close_window();
  for (Submission* submission = newest_; submission != nullptr;) {
    Submission* older = submission->older;
    if (!submission->accepted) {
      complete(submission, refuse(submission->request.op, submission->name->text));
    }
    submission = older;
  }
  end_all_sets();
}

// The set of all ranks ends by the shutdown protocol itself; another one with the last plan of its root,
// since plans of it may be on their way.
void RuntimeCore::end_all_sets() {
  end_set(everybody_);
  for (const auto& set : sets_) {
    if (set->ended) fail_rest(set.get());
    if (!set->coordinator || set->ended) continue;
    if (Status status = send_last_plan(set.get()); !status.ok()) return fail_with(status, -1);
  }
}

void RuntimeCore::refuse_from_now(Status reason, End end) {
  {
    std::lock_guard lock(refusal_mutex_);
    if (!refusal_.ok()) return;
    refusal_ = std::move(reason);
    end_ = end;
  }
  over_.store(true, std::memory_order_release);
}

void RuntimeCore::close() {
  HVD_CHECK(departed_.load());
  controller_.reset();
}

void RuntimeCore::fail(const Status& cause) {
  end_with(cause, -1);
  settle();
}

void RuntimeCore::fail_with(const Status& found, int32_t heard_from) {
  if (departed_.load(std::memory_order_relaxed)) return;
  // What a peer says is everybody's already.
  end_with(heard_from < 0 ? host_->first_cause(found) : found, heard_from);
}

void RuntimeCore::end_with(const Status& cause, int32_t heard_from) {
  if (departed_.load(std::memory_order_relaxed)) return;
  refuse_from_now(cause, End::kFailure);
  const Status first = shutdown_->stopping() ? cause : refusal();
  departed_.store(true);
  if (const auto peer = lost_peer_in(first.message()); peer && left_by_.load() < 0) {
    left_by_.store(*peer);
    if (newest_ != nullptr) cut_off_.store(true);
  }

  const Notice notice{options_.rank, static_cast<int32_t>(first.code()), first.message()};
  const TreePlace& place = tree();
  if (place.parent >= 0 && place.parent != heard_from) {
    send_notice(MessageKind::kAbort, notice, place.parent);
  }
  for (const int32_t child : place.children) {
    if (child != heard_from) send_notice(MessageKind::kAbort, notice, child);
  }
  int32_t progressed = 1;
  for (int i = 0; i < kLastWords && progressed != 0; ++i) {
    progressed = 0;
    char ignored[256];
    link().poll(
        controller_->context(), [](void*, int32_t, const void*, size_t) {}, nullptr, &progressed,
        ignored, sizeof ignored);
  }
  executor_.abort(first.message().c_str());
  link().abort(controller_->context(), first.message().c_str());

  close_window();
  while (newest_ != nullptr) complete(newest_, first);
  end_services();
}

}  // namespace hvd::runtime
