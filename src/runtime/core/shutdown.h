// How this rank's work ends, by the shutdown protocol or by a failure: whether work is still accepted,
// why not, and the notices between neighbours in the tree. Completes no work itself: the runtime core
// does, as the returned steps say. Belongs to the thread that makes progress, but for the functions of
// any thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string_view>

#include "base/status.h"
#include "runtime/core/message_links.h"
#include "runtime/core/shutdown_protocol.h"

namespace hvd::runtime {

class Shutdown {
 public:
  // The links outlive it.
  explicit Shutdown(MessageLinks* links)
      : links_(links), protocol_(links->is_root(), links->tree().children.size()) {}

  // ---- any thread ----
  // Nothing is accepted any longer: the job ends.
  bool over() const { return over_.load(std::memory_order_relaxed); }
  // Why nothing is accepted, or ok.
  Status refusal() const;
  // The same for a submission that is now not run, whose name may be empty.
  Status refuse(int32_t op, std::string_view name);
  // The peer whose leaving made work of this rank fail, if one did.
  std::optional<int32_t> cut_off_by() const;
  // True when no peer needs this rank any longer.
  const std::atomic<bool>& departed() const { return departed_; }

  // ---- with the progress lock held ----
  // What the caller does after a call.
  enum class Step {
    kNone,
    kEndWork,      // nothing is planned after this: what is not planned yet fails
    kEndServices,  // the goodbye has passed: departed() is true
  };
  // This rank begins to leave the job.
  [[nodiscard]] Step leave();
  // A notice of the protocol from a neighbour.
  [[nodiscard]] Step receive(MessageKind kind, const Notice& notice);
  // Nothing planned is left to run here. Called in every pass.
  [[nodiscard]] Step drained() { return act(protocol_.drained()); }
  // A peer has closed its links. Nothing: that is a failure. Otherwise all that was planned is done here
  // and below, and the goodbye is only late: nobody needs this rank.
  [[nodiscard]] std::optional<Step> links_closed();
  // Whether a rank's leaving ends the work.
  bool stopping() const { return protocol_.stopping(); }
  // Ends this rank's part by a failure and sends the cause to all neighbours but heard_from, which
  // reported it (-1: none did). Returns the cause that all pending work gets. has_work: whether any is
  // pending.
  Status fail(const Status& cause, int32_t heard_from, bool has_work);

 private:
  enum class End { kFailure, kShutdown };
  Step act(const ShutdownProtocol::Actions& actions);
  void refuse_from_now(Status reason, End end);
  void note_leaver(int32_t leaver);

  MessageLinks* const links_;
  ShutdownProtocol protocol_;

  // Shared with other threads.
  std::atomic<bool> over_{false};
  std::atomic<bool> departed_{false};
  std::atomic<int32_t> left_by_{-1};  // the first peer that left or was lost
  std::atomic<bool> cut_off_{false};  // work failed by that
  mutable std::mutex refusal_mutex_;
  Status refusal_;           // guarded by refusal_mutex_
  End end_ = End::kFailure;  // guarded by refusal_mutex_; of `refusal_`
};

}  // namespace hvd::runtime
