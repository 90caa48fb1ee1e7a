// One row of --check-build: the tested feature, and the result. check_build.cpp fills the rows, and format.cpp
// prints them.
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
  std::string why{};      // why the part does not work
  std::string version{};  // version of a part that works, if it has one
  std::string path{};     // path of a part that works, if it is a file
  std::string fix{};      // remedy for a part that does not work: a command, or why there is none
  // A row that Horovod's own table lacks: shown only with --verbose or as JSON.
  bool is_extra = false;
  std::string note{};  // a sentence on a version that works
};

using CheckTable = std::vector<CheckRow>;

}  // namespace hvd::launcher
