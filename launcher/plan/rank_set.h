// Parses a set of ranks, such as "0,3-5". Pure.
#pragma once

#include <string_view>
#include <vector>

#include "base/result.h"

namespace hvd::launcher {

// By rank, whether it is meant. An error names the part that is no rank of `size`.
Result<std::vector<bool>> parse_ranks(std::string_view text, int size);

}  // namespace hvd::launcher
