// Ends this rank's part in the job, by the shutdown protocol or after a failure. Owns the protocol's
// state and the reason why this rank refuses submissions, and sends the notices to neighbours in the
// combining tree. Only the runtime core calls it, and completes pending work as the returned steps say.
// Lives on the progress thread, except for the functions marked "any thread".
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <string_view>

#include "base/mutex.h"
#include "base/status.h"
#include "runtime/core/message_links.h"
#include "runtime/core/shutdown_protocol.h"

namespace hvd::runtime {

class Shutdown {
 public:
  // The links outlive this object.
  explicit Shutdown(MessageLinks* links)
      : links_(links), protocol_(links->is_root(), links->tree().children.size()) {}

  // ---- any thread ----
  // True when this rank refuses submissions because the job ends.
  bool over() const { return over_.load(std::memory_order_relaxed); }
  // The reason why this rank refuses submissions, or ok.
  Status refusal() const;
  // The error of a submission that this rank refuses for that reason. `name` may be empty.
  Status refuse(int32_t op, std::string_view name);
  // The peer whose exit made work of this rank fail, if one did.
  std::optional<int32_t> cut_off_by() const;
  // True when no peer needs this rank: its links may close.
  const std::atomic<bool>& departed() const { return departed_; }

  // ---- with the progress lock held ----
  // The next action of the caller after a call.
  enum class Step {
    kNone,
    kEndWork,      // end all planning: submissions without a plan fail
    kEndServices,  // the goodbye message has passed: departed() is true
  };
  // Starts the shutdown protocol for this rank.
  [[nodiscard]] Step leave();
  // Takes a notice of the shutdown protocol from a neighbour.
  [[nodiscard]] Step receive(MessageKind kind, const Notice& notice);
  // Reports that this rank has run all plans. Called in every such pass.
  [[nodiscard]] Step drained() { return act(protocol_.drained()); }
  // Reports that a peer has closed its links. Returns nullopt when that is a failure. Otherwise this
  // rank's subtree has run all plans, and the goodbye message was late: no peer needs this rank.
  [[nodiscard]] std::optional<Step> links_closed();
  // Whether the shutdown protocol is ending the work.
  bool stopping() const { return protocol_.stopping(); }
  // Ends this rank's part after a failure. Sends the cause to all neighbours but heard_from, the one
  // that reported it (-1: none). Returns the cause for all pending work. has_work: some is pending.
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
  std::atomic<bool> cut_off_{false};  // pending work failed because that peer left
  mutable Mutex refusal_mutex_;
  Status refusal_ HVD_GUARDED_BY(refusal_mutex_);
  End end_ HVD_GUARDED_BY(refusal_mutex_) = End::kFailure;  // how the job ended, as in `refusal_`
};

}  // namespace hvd::runtime
