// Reads from the settings of a launch how the output of the ranks is shown.
#pragma once

#include <cstdint>

#include "base/result.h"
#include "launcher/output/output.h"
#include "launcher/settings/launch_settings.h"

namespace hvd::launcher {

// `size`: of the job. `asking_rank`: as in OutputStyle. An error names the flag.
Result<OutputStyle> output_style(const LaunchSettings& settings, int size, uint32_t generation,
                                 bool is_elastic, int asking_rank);

}  // namespace hvd::launcher
