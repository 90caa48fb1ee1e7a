// The program py-spy on this host: in the PATH of the ranks, beside their Python, or that of the launcher, at the same
// path or as a copy, which is kept for later jobs like that of the package (preflight/package_copy.h). The agent asks
// for the copy when it first needs one. Lives on the agent's loop.
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
  // `want`: asks the launcher for the parts of its py-spy, which go to take(). `changed`: called when a copy has come,
  // or cannot come.
  PySpy(net::EventLoop& loop, std::function<void()> want, std::function<void()> changed)
      : loop_(loop), want_(std::move(want)), changed_(std::move(changed)) {}

  // The launcher has this one.
  void offer(const StackToolOffer& offer);
  // The path of one for the ranks that are started like this; or empty.
  std::string find(const RankCommand& like);
  // Asks the launcher for a copy, where it has offered one, unless that was tried before. `folders`: agent_folders().
  // Returns true while a copy is expected.
  bool fetch(const std::vector<std::string>& folders);
  bool is_expected() const { return is_expected_; }
  // Why there is none: a sentence without the host's name.
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
  std::string path_;  // of the launcher's, or of its copy
  std::string why_;
  bool is_expected_ = false;
  Deadline expected_until_ = Deadline::never();
  bool is_tried_ = false;
};

}  // namespace hvd::launcher
