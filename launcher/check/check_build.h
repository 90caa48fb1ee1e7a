// --check-build: tests in parallel which frameworks, controllers and tensor operations work on this
// machine.
#pragma once

#include <string>

#include "base/settings.h"
#include "base/status.h"
#include "launcher/check/row.h"
#include "launcher/cli/options.h"

namespace hvd::launcher {

// Tries every row, the frameworks by the interpreter `python`; takes as long as the slowest.
CheckTable try_everything(const Settings& settings, const std::string& python);

struct CheckAnswer {
  std::string text;
  // 1 when something that --require names does not work, 2 when it is no row; then it was said.
  int exit_code = 0;
};
// Not ok where --require names what is no row.
Status check_names(const Settings& settings);
// As --verbose, --json and --require want it.
CheckAnswer check_build(const Options& options);

}  // namespace hvd::launcher
