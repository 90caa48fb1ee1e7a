// Runs --host-discovery-script repeatedly to find the hosts of an elastic job. Keeps the newest answer: a later failure
// or hang of the script only causes a warning. Owns the running script. Lives on the launch's loop. The callbacks run
// on that loop, and may call any function except stop().
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "launcher/plan/hosts.h"
#include "launcher/spawn/script_run.h"
#include "net/asio.h"

namespace hvd::launcher {

// The parsed output of --host-discovery-script.
struct DiscoveryOutput {
  std::vector<Host> hosts;  // each name once, in the order of first mention
  // Sentences for the user, each with the number and the text of a line. The number of sentences is limited.
  std::vector<std::string> warnings;
  // The output has words, but no word names a host: the output is an error message and not an answer.
  bool is_error = false;
};

// Parses the output of --host-discovery-script. Skips invalid lines with a warning, so that one bad line does not end
// the training on all hosts. Pure. Each line has a host or a list of hosts, in the forms of a hostfile: "a:2", "a
// slots=2", "a:2,b:2", "n[01-16]:8", "[fd00::1]:2", or "a", which has `slots_alone` slots. Comments and blank lines are
// ignored. For a host with several lines, the last line applies. An empty output is valid, and so is "a:0". Words for a
// missing value (null, None) name no host.
DiscoveryOutput parse_discovery_output(std::string_view text, int slots_alone = 1);

struct DiscoveryScript {
  std::string command;  // sh -c runs it
  int slots_alone = 1;  // number of slots of a host whose line has no number
  ScriptLimits limits = {};
  std::chrono::milliseconds pause{1'000};        // between the end of a run and the next run
  std::chrono::milliseconds quiet_time{60'000};  // time until the same warning is repeated
};

struct DiscoveryCallbacks {
  // Prints a sentence of the launcher. For `quiet_time`, all failures of the script count as the same warning.
  std::function<void(std::string_view sentence)> warn;
  // Prints a line of the script's standard error after the tag "[discovery]<stderr>:", without newline. A line that
  // the script repeats is printed once per `quiet_time`.
  std::function<void(std::string_view line)> show;
};

class ScriptDiscovery {
 public:
  using Changed = std::function<void(const std::vector<Host>& hosts)>;

  ScriptDiscovery(net::asio::any_io_executor executor, DiscoveryScript script,
                  DiscoveryCallbacks callbacks);
  // If stop() was not called, kills the script by SIGKILL. No callback runs after the destructor.
  ~ScriptDiscovery();
  ScriptDiscovery(const ScriptDiscovery&) = delete;
  ScriptDiscovery& operator=(const ScriptDiscovery&) = delete;

  // Runs the script once. An error names the script and the reason why it gave no answer. An answer may contain no
  // hosts. Call before watch().
  net::Task<Result<std::vector<Host>>> first();

  // Runs the script repeatedly, and calls `on_changed` for each answer that differs from the previous answer. Call
  // once.
  void watch(Changed on_changed);

  // Ends the script immediately. The task returns when no coroutine of this object runs; a running first() returns an
  // error. The tasks of this class may outlive the object.
  net::Task<void> stop();

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace hvd::launcher
