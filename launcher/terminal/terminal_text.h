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
// Columns that a text takes on a terminal, without escape sequences: characters may take none, one or two.
size_t width_of(std::string_view text);
// Its first characters, at most `columns`.
std::string_view cut(std::string_view text, size_t columns);
// Both of a text with sequences for colors, which take no columns. Ends its colors.
size_t colored_width_of(std::string_view text);
std::string cut_colored(std::string_view text, size_t columns);

}  // namespace hvd::launcher
