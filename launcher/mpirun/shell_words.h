// Text taken apart as /bin/sh takes words apart: blanks, quotes, backslashes; nothing is expanded.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace hvd::launcher {

// An error says which quote is not closed.
Result<std::vector<std::string>> shell_words(std::string_view text);

}  // namespace hvd::launcher
