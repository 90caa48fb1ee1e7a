// Finds the program py-spy on this host: in the PATH of the ranks, next to their Python, at the path of the launcher's
// py-spy, or as a copy of the launcher's py-spy. The agent requests the copy from the launcher when a stack is first
// requested, and keeps the copy for later jobs, like the copy of the package (preflight/package_copy.h). Lives on the
// agent's loop.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "launcher/agent/preflight/package_copy.h"
#include "launcher/agent/ranks/helper_command.h"
#include "launcher/agent/ranks/rank_process.h"
#include "launcher/protocol/protocol.h"
#include "net/event_loop.h"

namespace hvd::launcher {

class PySpy {
 public:
  // `want`: requests the parts of the launcher's py-spy, which go to take(). `changed`: called when the copy is
  // complete, or cannot be created.
  PySpy(net::EventLoop& loop, std::function<void()> want, std::function<void()> changed)
      : loop_(loop), want_(std::move(want)), changed_(std::move(changed)) {}

  // Call when the launcher has described its py-spy.
  void offer(const StackToolOffer& offer);
  // Returns the path of a py-spy for ranks with this command; empty if the host has none.
  std::string find(const RankCommand& like);
  // Requests a copy of the py-spy that the launcher has offered, at most once for each offer. `folders`:
  // agent_folders(). Returns true while a copy is expected.
  bool fetch(const std::vector<std::string>& folders);
  bool is_expected() const { return is_expected_; }
  // Returns why this host has no py-spy: a sentence without the host's name.
  const std::string& why() const { return why_; }

  bool wants_part() const { return copy_ && copy_->is_incomplete(); }
  Status take(const StagePart& part);
  uint64_t taken() const { return copy_ ? copy_->taken() : 0; }
  void on_reaped(pid_t pid, int status) {
    if (unpacking_) unpacking_->on_reaped(pid, status);
  }

 private:
  bool is_the_launchers(const std::string& path) const;
  void install();
  void end(const std::string& why);

  net::EventLoop& loop_;
  const std::function<void()> want_, changed_;
  std::optional<StackToolOffer> offer_;
  std::optional<PackageCopy> copy_;
  std::unique_ptr<HelperCommand> unpacking_;
  std::string path_;  // path of the launcher's py-spy, or of its copy
  std::string why_;
  bool is_expected_ = false;
  Deadline expected_until_ = Deadline::never();
  bool is_tried_ = false;
};

}  // namespace hvd::launcher
