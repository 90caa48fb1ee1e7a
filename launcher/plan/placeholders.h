// Replaces words in braces in a flag's value, for example {host} in --tag. Pure.
#pragma once

#include <span>
#include <string_view>

#include "base/status.h"

namespace hvd::launcher {

// An error names the flag and the `known` words. A shell's ${name} is not a placeholder.
Status check_placeholders(std::string_view flag, std::string_view text,
                          std::span<const std::string_view> known);

}  // namespace hvd::launcher
