// --check-build: tests in parallel which frameworks, controllers and tensor operations work on this
// machine.
#pragma once

#include <string>

#include "base/status.h"
#include "launcher/check/format.h"
#include "launcher/plan/launch_settings.h"

namespace hvd::launcher {

// Tests the rows that the settings request, and the frameworks with the interpreter `python`. Takes as long as the
// slowest test.
CheckTable try_everything(const LaunchSettings& settings, const std::string& python);

struct CheckAnswer {
  std::string text;
  // 0: success. 1: a row in --require does not work, or a host of -H gave no answer. 2: --require names an unknown row.
  // The error has already been printed.
  int exit_code = 0;
};
// Returns an error if --require names an unknown row.
Status check_names(const LaunchSettings& settings);
// Tests the rows and returns the table as text, or as JSON with --json; --verbose adds versions, paths and remedies.
CheckAnswer check_build(const Options& options);

}  // namespace hvd::launcher
