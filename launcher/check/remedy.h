// Finds the fix that makes a row of --check-build work on this machine: a command, or the reason why no fix exists.
// Reads the state of this machine and changes nothing.
#pragma once

#include <string>
#include <string_view>

namespace hvd::launcher {

struct Machine {
  bool has_apt = false;
  bool has_dnf = false;
  bool has_nvidia = false;  // an NVIDIA device is on the PCI bus
  bool has_amd = false;
  std::string python = "python3";  // the interpreter that was tested
  // The interpreter is the distribution's, so its packages come from the distribution.
  bool has_system_python = false;
  bool is_x86_64 = false;
  bool is_built_tree = false;  // build_folder has a build that can be repeated
  std::string build_folder{};
};
Machine this_machine(const std::string& python);

// `has_part`: this build contains the part (binding or plugin) that needs the library. `place`: the
// file that Python would import as the framework; may be empty.
std::string remedy(std::string_view row, bool has_part, const Machine& machine,
                   const std::string& place = {});

}  // namespace hvd::launcher
