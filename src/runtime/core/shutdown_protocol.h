// The state machine of the shutdown protocol. A rank that calls hvd_shutdown sends "leave" to the
// root, which sends "stop" down the combining tree: the process sets with that rank end, and the
// first "stop" ends the set of all ranks. A rank sends "stopped" to its parent when all sets of its
// subtree have ended and have run their plans. When all ranks have stopped, the root sends
// "goodbye" down the tree, and ranks may close their links. Class Shutdown owns the ShutdownProtocol,
// calls it on the progress thread only for ranks that end a set, and sends the returned messages.
#pragma once

#include <cstddef>
#include <cstdint>

namespace hvd::runtime {

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
  // Call it in every pass in which all sets of this rank have ended and have run their plans. Only the first call acts.
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

}  // namespace hvd::runtime
