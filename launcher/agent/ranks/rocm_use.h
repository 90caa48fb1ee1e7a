// The use of this host's AMD GPUs by processes, as text of rocm-smi and as values. Pure; the parser accepts any text.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "launcher/agent/ranks/gpu_use.h"

namespace hvd::launcher {

// A command for sh that prints what parse_rocm_use() reads.
std::string rocm_use_command(const std::string& rocm_smi);
// GPUs have the numbers of rocm-smi in place of UUIDs. Nothing: the text names no GPU.
std::optional<GpuUse> parse_rocm_use(std::string_view text);

}  // namespace hvd::launcher
