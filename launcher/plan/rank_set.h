// Parses a set of ranks ("0,3-5"), and formats names and counts of ranks. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace hvd::launcher {

// Returns a list whose element r is true if `text` selects rank r. An error names an item outside 0..size-1.
Result<std::vector<bool>> parse_ranks(std::string_view text, int size);
// Returns "1 rank" or "2 ranks", for example.
std::string count_of_ranks(int64_t count);
// Returns "rank 1", "ranks 2-3" or "ranks 0, 2, 4-7 and 200 more", for example.
// `ranks` holds at least one rank, in any order.
std::string name_of_ranks(std::vector<int> ranks);

}  // namespace hvd::launcher
