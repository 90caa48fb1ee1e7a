// Splits text into words as /bin/sh does, with blanks, quotes and backslashes, and expands nothing.
// Pure.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace hvd::launcher {

// An error says which quote is not closed.
Result<std::vector<std::string>> shell_words(std::string_view text);

}  // namespace hvd::launcher
