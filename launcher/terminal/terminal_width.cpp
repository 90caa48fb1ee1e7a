#include "launcher/terminal/terminal_width.h"

#include <sys/ioctl.h>

#include "base/settings.h"
#include "base/text.h"

namespace hvd::launcher {

TerminalSize terminal_size(int fd) {
  winsize size{};
  TerminalSize known;
  if (::ioctl(fd, TIOCGWINSZ, &size) != 0) return known;
  if (size.ws_col > 0) known.columns = size.ws_col;
  if (size.ws_row > 0) known.rows = size.ws_row;
  return known;
}

size_t terminal_width(int fd) { return terminal_size(fd).columns; }

size_t text_width(int fd) {
  const auto columns = parse_int(environment_variable("COLUMNS").value_or(""));
  return columns && *columns > 0 ? static_cast<size_t>(*columns) : terminal_width(fd);
}

bool is_utf8_locale() {
  for (const char* const name : {"LC_ALL", "LC_CTYPE", "LANG"}) {
    const std::string value = to_lower(environment_variable(name).value_or(""));
    if (value.empty()) continue;
    return value.find("utf-8") != std::string::npos || value.find("utf8") != std::string::npos;
  }
  return false;
}

}  // namespace hvd::launcher
