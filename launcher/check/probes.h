// The probes of --check-build, one child process for each row. A probe reports a version and a path
// if it finds them.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "launcher/check/loaded_library.h"
#include "launcher/check/probe.h"
#include "launcher/plan/launch_settings.h"

namespace hvd::launcher {

class CheckProbes {
 public:
  // `python`: the interpreter with which frameworks are tested.
  CheckProbes(const LaunchSettings& settings, std::string python);

  // Imports horovod.<name> and the framework's `module`; reports the version, path and place of `module`.
  Probe framework(const std::string& name, const std::string& module) const;
  // Runs the interpreter, and reports its version and path.
  Probe interpreter() const;
  // Tests the built-in links and collectives: initialises a world of one rank and, if `with_sum`, sums over it.
  Probe built_in(bool with_sum) const;
  // Loads the plugins of this name (a name of hvd_capability). If `variable` is not empty, also sets it to `name`,
  // initialises a world of one rank and, if `with_sum`, sums over it.
  Probe backend(const std::string& name, const std::string& variable, bool with_sum) const;
  // Like backend(), for a GPU backend: the sum is in the first GPU's memory.
  Probe gpu_backend(const std::string& name) const;
  // Tests a built-in transport: "tcp", "shared-memory".
  Probe own(const std::string& name) const;
  Probe pmix() const;
  Probe libssh() const;
  Probe cuda() const;
  Probe rocm() const;

  // has_binding(): this build has a Python binding of this name. has_plugin(): it has a plugin of this name, of any
  // kind.
  bool has_binding(const std::string& name) const;
  bool has_plugin(const std::string& name) const;

 private:
  std::string lacks(const std::string& capability) const;
  // Runs in the child of backend() and gpu_backend(). `test` returns why the test failed; empty on success.
  std::string try_backend(const std::string& name, const std::function<std::string()>& test) const;

  std::string library_, looked_for_, python_, python_path_, plugin_path_;
};

// Call in the child: prints the line that parse_found() reads. Returns an empty string, which means success.
std::string report_found(const std::string& version, const std::string& path);

// Finds the line of report_found() in the child's output; nullopt if the child ended before it printed one.
std::optional<ProbeFacts> parse_found(const std::string& output);
// Returns the path at which a framework's probe found the module before importing it; empty if it found none.
std::string parse_place(const std::string& output);

}  // namespace hvd::launcher
