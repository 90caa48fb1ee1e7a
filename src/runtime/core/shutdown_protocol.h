// The state machine of the shutdown protocol. The first rank that calls hvd_shutdown sends "leave" to
// the root. The root stops planning and sends "stop" down the combining tree. A rank sends "stopped" to
// its parent when its whole subtree has run all plans. When all ranks have, the root sends "goodbye"
// down the tree, and ranks may close their links. Class Shutdown owns the machine, calls it on the
// progress thread and sends the messages that it returns.
#pragma once

#include <cstdint>

#include "base/status.h"

namespace hvd::runtime {

class ShutdownProtocol {
 public:
  ShutdownProtocol(bool is_root, size_t children) : is_root_(is_root), children_(children) {}

  // The messages that the caller sends now, up to the parent or down to all children.
  struct Actions {
    bool leave_up = false;
    bool stop_down = false;
    bool stopped_up = false;
    bool goodbye_down = false;
  };

  // This rank or a rank in its subtree wants to leave.
  Actions leave(int32_t rank) {
    Actions actions;
    if (asked_ || stopping()) return actions;
    asked_ = true;
    if (is_root_) return stop(rank);
    leaver_asked_for_ = rank;
    actions.leave_up = true;
    return actions;
  }
  // The root has decided to stop. On another rank: its "stop" message has arrived.
  Actions stop(int32_t rank) {
    Actions actions;
    if (stopping()) return actions;
    leaver_ = rank;
    actions.stop_down = true;
    return actions;
  }
  // A child's whole subtree has run all plans.
  void child_stopped() { ++children_stopped_; }
  // This rank has run all plans. Called in every such pass; acts once.
  Actions drained() {
    Actions actions;
    if (!stopping() || reported_ || children_stopped_ < children_) return actions;
    reported_ = true;
    if (is_root_) return goodbye();
    actions.stopped_up = true;
    return actions;
  }
  Actions goodbye() {
    Actions actions;
    complete_ = true;
    actions.goodbye_down = true;
    return actions;
  }

  bool stopping() const { return leaver_ >= 0; }
  int32_t leaver() const { return leaver_; }
  int32_t leaver_asked_for() const { return leaver_asked_for_; }
  // This rank's whole subtree has run all plans.
  bool reported() const { return reported_; }
  bool complete() const { return complete_; }

 private:
  const bool is_root_;
  const size_t children_;
  size_t children_stopped_ = 0;
  int32_t leaver_ = -1;
  int32_t leaver_asked_for_ = -1;
  bool asked_ = false;
  bool reported_ = false;
  bool complete_ = false;
};

}  // namespace hvd::runtime
