// Runs --host-discovery-script repeatedly for the hosts of an elastic job. Keeps the newest answer: a later failure or
// hang of the script only causes a warning. Owns the running script. Lives on the launch's loop; its callbacks run
// there, and may call any function except stop().
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "launcher/elastic/discovery/script_run.h"
#include "launcher/plan/hosts.h"
#include "net/asio.h"

namespace hvd::launcher {

struct DiscoveryScript {
  std::string command;  // sh -c runs it
  int slots_alone = 1;  // of a host whose line has no number
  ScriptLimits limits = {};
  std::chrono::milliseconds pause{1'000};        // from the end of a run to the next one
  std::chrono::milliseconds quiet_time{60'000};  // until the same warning is repeated
};

struct DiscoveryCallbacks {
  // A sentence of the launcher's. Failures of the script are one kind of warning, whatever their text.
  std::function<void(std::string_view sentence)> warn;
  // A line of the script's standard error behind the tag "[discovery]<stderr>:", without its end. A line that
  // the script repeats is shown once per `quiet_time`.
  std::function<void(std::string_view line)> show;
};

class ScriptDiscovery {
 public:
  using Changed = std::function<void(const std::vector<Host>& hosts)>;

  ScriptDiscovery(net::asio::any_io_executor executor, DiscoveryScript script,
                  DiscoveryCallbacks callbacks);
  // Without stop() the script gets SIGKILL, and no callback runs any longer.
  ~ScriptDiscovery();
  ScriptDiscovery(const ScriptDiscovery&) = delete;
  ScriptDiscovery& operator=(const ScriptDiscovery&) = delete;

  // Runs the script once. An error names the script and says why it gave no answer. An answer may have no
  // hosts. Call before watch().
  net::Task<Result<std::vector<Host>>> first();

  // Runs the script again and again from now on, and calls back for each answer that differs from the one
  // before. Call once.
  void watch(Changed on_changed);

  // Ends the script at the call; the task returns when nothing of this object runs. first() returns an error
  // then. The tasks of this class outlive it.
  net::Task<void> stop();

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace hvd::launcher
