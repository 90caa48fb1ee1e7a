// One row of --check-build: the tested feature, and the result.
#pragma once

#include <string>
#include <vector>

namespace hvd::launcher {

// The section of the rows that the original lacks.
constexpr char kOtherRows[] = "Also Looked For";

struct CheckRow {
  std::string section;
  std::string name;
  bool works = false;
  std::string why{};      // not
  std::string version{};  // of what works, where it tells one
  std::string path{};     // of what works, where it is a file
  std::string fix{};      // of what does not: a command for this machine, or why there is none
  // One that the original's table lacks: shown only where more was asked for.
  bool is_extra = false;
};

using CheckTable = std::vector<CheckRow>;

}  // namespace hvd::launcher
