// Splits text into words and lines.
#pragma once

#include <string_view>
#include <vector>

namespace hvd {

// The words between white space.
std::vector<std::string_view> words_of(std::string_view text);
// Takes the first line off, without its newline.
std::string_view take_line(std::string_view& text);

}  // namespace hvd
