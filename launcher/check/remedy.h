// The remedy that makes a row of --check-build work on this machine: a command, or why there is
// none. Reads the state of this machine and changes nothing.
#pragma once

#include <string>
#include <string_view>

namespace hvd::launcher {

struct Machine {
  bool has_apt = false;
  bool has_dnf = false;
  bool has_nvidia = false;  // a device on the bus
  bool has_amd = false;
  std::string python = "python3";  // the interpreter that is asked
  // It is the distribution's own, whose packages come from there.
  bool has_system_python = false;
  bool is_x86_64 = false;
  bool is_built_tree = false;  // a build that can be repeated lies in build_folder
  std::string build_folder{};
};
Machine this_machine(const std::string& python);

// `has_part`: this build has the part of it (a binding or plugin) that needs the library. `place`: the
// file that Python takes for a framework, empty where there is none.
std::string remedy(std::string_view row, bool has_part, const Machine& machine,
                   const std::string& place = {});

}  // namespace hvd::launcher
