// --check-build: which frameworks, controllers and tensor operations work on this machine, each
// found by trying it. The layout is the original's, which scripts search.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "base/settings.h"

namespace hvd::launcher {

struct CheckRow {
  std::string name;
  bool works = false;
  std::string why;  // not
};
struct CheckSection {
  std::string title;
  std::vector<CheckRow> rows;
};

// Tries everything, side by side; the text to print. Verbose adds why something does not work.
std::string check_build(const Settings& settings);

std::string format_check(std::span<const CheckSection> sections, bool verbose);

}  // namespace hvd::launcher
