// The terminal's size and its UTF-8 locale, colors, human-readable numbers, and texts cut to a width in columns. Any
// thread.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace hvd::launcher {

struct TerminalSize {
  size_t columns = 80, rows = 24;
  bool operator==(const TerminalSize&) const = default;
};
// Returns the size of the descriptor's terminal; 80 by 24 if it is not a terminal.
TerminalSize terminal_size(int fd);
// Returns the columns of the descriptor's terminal; 80 if it is not a terminal.
size_t terminal_width(int fd);
// Returns COLUMNS if the user has set it, else the terminal's columns.
size_t text_width(int fd);
// Returns whether LC_ALL, LC_CTYPE or LANG selects UTF-8.
bool is_utf8_locale();

constexpr std::string_view kBold = "\x1b[1m", kBoldRed = "\x1b[1;31m";
constexpr std::string_view kRed = "\x1b[31m", kYellow = "\x1b[33m";
// Ends any color.
constexpr std::string_view kColorEnd = "\x1b[0m";

struct ColorRule {
  bool on_terminals = false;
  bool elsewhere = false;  // colors are also used in pipes and files

  bool holds_for(int descriptor) const;
};

// Returns the rule for `when`, the value of --color. With "auto", NO_COLOR and TERM=dumb turn colors off.
ColorRule color_rule(std::string_view when = "auto");

// Returns the text in this color; an empty color changes nothing.
std::string colored(std::string_view text, std::string_view color);

// Returns "00:02:11" or "3 d 04:00:00"; "-" below 0.
std::string time_span(double seconds);
// Returns "98%"; "-" below 0.
std::string percent(double share);
// Returns "1.2G" or "512K"; "-" below 0.
std::string size_text(double bytes);
// Returns the columns of a text without escape sequences: a character takes no column, one column or two.
size_t width_of(std::string_view text);
// Returns the first characters of the text, at most `columns` wide.
std::string_view cut(std::string_view text, size_t columns);
// Like width_of(), for a text with color sequences, which take no columns.
size_t colored_width_of(std::string_view text);
// Like cut(), for a text with color sequences. Resets the color at the end.
std::string cut_colored(std::string_view text, size_t columns);

}  // namespace hvd::launcher
