// A script whose end makes a scheduler or a container end all processes that the script has started, including a
// detached launcher. A value; main finds it before the launcher leaves the script's session.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace hvd::launcher {

struct EndingScript {
  std::string name;  // for example "the script of Slurm"
  int64_t pid = 0;
  int64_t start = 0;  // in clock ticks since the boot

  bool has_ended() const;
};

// Empty if no ancestor of this process is such a script.
std::optional<EndingScript> find_ending_script();

}  // namespace hvd::launcher
