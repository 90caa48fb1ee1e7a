// Texts for a terminal: short numbers, and widths in columns. Pure.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace hvd::launcher {

// "00:02:11", "3 d 04:00:00"; "-" below 0
std::string time_span(double seconds);
// "98%"; "-" below 0
std::string percent(double share);
// "1.2G", "512K"; "-" below 0
std::string size_text(double bytes);
// Columns that a text takes on a terminal, without escape sequences: its characters.
size_t width_of(std::string_view text);
// Its first characters, at most `columns`.
std::string_view cut(std::string_view text, size_t columns);
// The same of a text with sequences for colors, which take no columns. Ends its colors.
std::string cut_colored(std::string_view text, size_t columns);

}  // namespace hvd::launcher
