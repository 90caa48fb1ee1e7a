// The probes of --check-build, one child process for each row. A probe reports a version and a path
// if it finds them.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "base/settings.h"
#include "launcher/check/loaded_library.h"
#include "launcher/check/probe.h"

namespace hvd::launcher {

class CheckProbes {
 public:
  // `python`: the interpreter that is asked for frameworks.
  CheckProbes(const Settings& settings, std::string python);

  // Imports horovod.<name>, and `module`, of which the version, the path and the place are.
  Probe framework(const std::string& name, const std::string& module) const;
  // The interpreter runs: its version and path.
  Probe interpreter() const;
  // The path without MPI: an initialisation, and a sum over one rank.
  Probe built_in(bool with_sum) const;
  // Plugins of this name (as hvd_capability knows it) load; then, with `variable` set to `name`, an
  // initialisation and a sum over one rank. No such test when `variable` is empty.
  Probe backend(const std::string& name, const std::string& variable, bool with_sum) const;
  // The same for a backend of GPUs, with a sum in the memory of the first.
  Probe gpu_backend(const std::string& name) const;
  // Tests a transport of the library itself: "tcp", "shared-memory".
  Probe own(const std::string& name) const;
  Probe pmix() const;
  Probe libssh() const;
  Probe cuda() const;
  Probe rocm() const;

  // Whether this build has a binding of that name, or a plugin of one of the kinds.
  bool has_binding(const std::string& name) const;
  bool has_plugin(const std::string& name) const;

 private:
  std::string lacks(const std::string& capability) const;
  // Body of backend and gpu_backend in the child; the test returns why it failed, or an empty
  // string.
  std::string try_backend(const std::string& name, const std::function<std::string()>& test) const;

  std::string library_, looked_for_, python_, python_path_, plugin_path_;
};

// In the child: makes this what the probe reports, and succeeds.
std::string report_found(const std::string& version, const std::string& path);

// Finds the line of report_found in the child's output; none: the child ended before that line.
std::optional<ProbeFacts> parse_found(const std::string& said);
// Where a framework's probe found what it was about to import; empty where there is no such module.
std::string parse_place(const std::string& said);

}  // namespace hvd::launcher
