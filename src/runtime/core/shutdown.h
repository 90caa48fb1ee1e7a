// Ends this rank's participation in the job, by the shutdown protocol or after a failure. Owns the protocol's state,
// the ranks that have left, and the failure. Sends the notices to neighbours in the combining tree. A process set
// ends when its first member leaves. Only the runtime core calls Shutdown, and completes pending work according to
// the returned steps. Lives on the progress thread, except for the functions marked "any thread".
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "base/mutex.h"
#include "base/status.h"
#include "runtime/core/message_links.h"

namespace hvd::runtime {

// The state machine of the shutdown protocol. A rank that calls hvd_shutdown sends "leave" to the root, which sends
// "stop" down the combining tree: the process sets with that rank end, and the first "stop" ends the set of all ranks.
// A rank sends "stopped" to its parent when all sets of its subtree have ended and have run their plans. When all
// ranks have stopped, the root sends "goodbye" down the tree, and ranks may close their links. Class Shutdown owns the
// ShutdownProtocol, and sends the returned messages.
class ShutdownProtocol {
 public:
  ShutdownProtocol(bool is_root, size_t children) : is_root_(is_root), children_(children) {}

  // The messages that the caller must send now, up to the parent or down to all children.
  struct Actions {
    int32_t leave_up = -1;   // the leaving rank, or -1
    int32_t stop_down = -1;  // the leaving rank, or -1
    bool stopped_up = false;
    bool goodbye_down = false;
  };

  // Call it when this rank or a rank in its subtree wants to leave.
  Actions leave(int32_t rank) {
    if (is_root_) return stop(rank);
    return {.leave_up = rank};
  }
  // Call it when the root decides to stop; on another rank, when the "stop" message has arrived.
  Actions stop(int32_t rank) {
    if (leaver_ < 0) leaver_ = rank;
    return {.stop_down = rank};
  }
  // Call it when a child's complete subtree has run all plans.
  void child_stopped() { ++children_stopped_; }
  // Call it in every pass in which all sets of this rank have ended and have run their plans. Acts once, when all
  // children have stopped too.
  Actions drained() {
    if (!stopping() || reported_ || children_stopped_ < children_) return {};
    reported_ = true;
    if (is_root_) return goodbye();
    return {.stopped_up = true};
  }
  Actions goodbye() {
    complete_ = true;
    return {.goodbye_down = true};
  }

  bool stopping() const { return leaver_ >= 0; }
  int32_t leaver() const { return leaver_; }  // the first rank to leave
  // Returns whether this rank's complete subtree has run all plans.
  bool reported() const { return reported_; }
  bool complete() const { return complete_; }

 private:
  const bool is_root_;
  const size_t children_;
  size_t children_stopped_ = 0;
  int32_t leaver_ = -1;
  bool reported_ = false;
  bool complete_ = false;
};

class Shutdown {
 public:
  // `links` and `sets` must outlive this object.
  Shutdown(MessageLinks* links, const SetTable* sets)
      : links_(links), sets_(sets), protocol_(links->is_root(), links->tree().children.size()) {}

  // ---- any thread ----
  // True if a rank has left, or the job has failed.
  bool is_ending() const { return is_ending_.load(std::memory_order_acquire); }
  // Returns true if the job has failed, or each of its process sets has ended.
  bool over() const { return over_.load(std::memory_order_relaxed); }
  // Returns the reason for the end if over(), else ok.
  Status refusal() const;
  // Returns true if this set has ended: a member has left, or the job has failed.
  bool has_ended(const SetMembers& set) const;
  // Returns an error if this rank must refuse a submission of the operation `op` to this set, else ok. `name`: the
  // tensor's name, for the error; may be empty.
  Status refuse(int32_t op, std::string_view name, const SetMembers& set);
  // Returns whether the rank has left: a send or receive ends when its other rank leaves, not with a process set.
  bool has_left(int32_t rank) const;
  // Returns the error for a send or receive after `peer` has left (-1: any of several ranks). `text` names the call.
  Status refuse_message(std::string_view text, int32_t peer);
  // True if each set with this rank has ended, or the job has failed.
  const std::atomic<bool>& own_sets_ended() const { return own_sets_ended_; }
  // Returns the peer whose exit or loss made work of this rank fail, if any.
  std::optional<int32_t> cut_off_by() const;
  // Returns the cause if the failure is a broken link or a rank that does not answer (cause_in), or empty.
  std::string cut_off_cause() const;
  // True if no peer needs this rank: its links may be closed.
  const std::atomic<bool>& departed() const { return departed_; }

  // ---- with the progress lock held ----
  // The caller's next action after a call.
  enum class Step {
    kNone,
    kEndWork,      // end planning of ended sets: submissions without a plan fail
    kEndServices,  // the goodbye message has passed: departed() is true
  };
  [[nodiscard]] Step leave();
  [[nodiscard]] Step receive(MessageKind kind, const Notice& notice);
  // Call it in each pass in which this rank has run all plans.
  [[nodiscard]] Step drained() { return act(protocol_.drained()); }
  // Reports that a peer has closed its links. Returns nullopt if the closing is a failure. Otherwise this
  // rank's subtree has run all plans, and only the goodbye message is late: no peer needs this rank.
  [[nodiscard]] std::optional<Step> links_closed();
  // Returns whether the shutdown protocol is ending the work.
  bool stopping() const { return protocol_.stopping(); }
  // Ends this rank's work after a failure. Sends the cause to all neighbours except `received_from`, the neighbour that
  // reported the cause, or -1. Returns the error for all pending work. `has_work`: this rank has pending work.
  Status fail(const Status& cause, int32_t received_from, bool has_work);

 private:
  Step act(const ShutdownProtocol::Actions& actions);
  bool ends_a_set(int32_t rank) const;
  void note_leaver(int32_t leaver);
  // Returns the first member that has left, or -1.
  int32_t leaver_of(const SetMembers& set) const HVD_REQUIRES(mutex_);
  // Returns whether any set has not ended. `is_own`: considers only sets with this rank.
  bool has_set(bool is_own) const HVD_REQUIRES(mutex_);
  Status left_by(int32_t leaver) const;

  MessageLinks* const links_;
  const SetTable* const sets_;
  ShutdownProtocol protocol_;
  std::vector<int32_t> asked_;  // ranks whose "leave" message this rank has forwarded

  // Shared with other threads.
  std::atomic<bool> is_ending_{false};  // a rank has left, or the job has failed
  std::atomic<bool> over_{false};
  std::atomic<bool> own_sets_ended_{false};
  std::atomic<bool> departed_{false};
  std::atomic<int32_t> left_by_{-1};  // the first peer whose exit or loss affected this rank
  std::atomic<bool> cut_off_{false};  // work of this rank has failed, or was refused
  mutable Mutex mutex_;
  std::vector<int32_t> leavers_ HVD_GUARDED_BY(mutex_);  // ranks that have left, in that order
  Status failure_ HVD_GUARDED_BY(mutex_);
};

}  // namespace hvd::runtime
