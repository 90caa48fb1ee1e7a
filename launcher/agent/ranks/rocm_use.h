// The use of this host's AMD GPUs by processes, parsed from the output of rocm-smi. Pure; the parser accepts any text.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "launcher/agent/ranks/gpu_use.h"

namespace hvd::launcher {

// Returns a shell command that prints the input of parse_rocm_use().
std::string rocm_use_command(const std::string& rocm_smi);
// Parses the output of rocm-smi. Identifies a GPU by the number there instead of a UUID. Returns nullopt if the text
// contains no GPU.
std::optional<GpuUse> parse_rocm_use(std::string_view text);

}  // namespace hvd::launcher
