// Finds the size of a terminal, and whether it shows UTF-8.
#pragma once

#include <cstddef>

namespace hvd::launcher {

struct TerminalSize {
  size_t columns = 80, rows = 24;
  bool operator==(const TerminalSize&) const = default;
};
// The size of the terminal that the descriptor is; 80 times 24 of anything else.
TerminalSize terminal_size(int fd);
// Columns of the terminal that the descriptor is; 80 of anything else.
size_t terminal_width(int fd);
// COLUMNS, where the user has set it, else the terminal's.
size_t text_width(int fd);
// By LC_ALL, LC_CTYPE or LANG.
bool is_utf8_locale();

}  // namespace hvd::launcher
