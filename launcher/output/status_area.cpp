#include "launcher/output/status_area.h"

#include <algorithm>
#include <utility>

#include "base/text.h"

namespace hvd::launcher {

std::string StatusArea::take_bar(size_t key) {
  const auto found = bars_.find(key);
  if (found == bars_.end()) return "";
  std::string text = std::move(found->second);
  bars_.erase(found);
  return text;
}

std::string StatusArea::take_bars() {
  std::string lines;
  for (const auto& [key, text] : std::exchange(bars_, {})) lines += cat(text, "\n");
  return lines;
}

size_t StatusArea::room(size_t columns) {
  constexpr size_t kSpare = 3;
  return columns > kSpare ? columns - kSpare : 1;
}

std::vector<std::string> StatusArea::rows_for(TerminalSize size) const {
  const size_t room = StatusArea::room(size.columns);
  const size_t most_rows = size.rows > 1 ? size.rows - 1 : 1;
  std::vector<std::string> rows;
  const auto add = [&](std::string_view text) { rows.push_back(cut_colored(text, room)); };
  const size_t own = line_.empty() ? 0 : 1;
  size_t most_bars = std::min(kMostBars, most_rows - std::min(most_rows, own));
  // Reserve a row for the number of omitted bars.
  if (bars_.size() > most_bars && most_bars + own == most_rows && most_bars > 0) --most_bars;
  for (const auto& [key, text] : bars_) {
    if (rows.size() < most_bars) add(text);
  }
  const bool has_some = !rows.empty();
  if (bars_.size() > most_bars && rows.size() + own < most_rows)
    add(cat(has_some ? "and " : "", bars_.size() - most_bars, has_some ? " more" : " bars"));
  if (own > 0) add(line_);
  return rows;
}

std::string StatusArea::show(TerminalSize size) {
  std::string lines;
  std::vector<size_t> widths;
  for (const std::string& row : rows_for(size)) {
    lines += cat(widths.empty() ? "" : "\r\n", row, "\x1b[K");
    widths.push_back(colored_width_of(row));
  }
  if (is_shown() && widths.size() == rows() && lines == shown_ && size == size_) return "";
  std::string bytes = erase(size.columns);
  // Disable wrapping, because a character may be wider than its counted width. Reset a color that a rank has left on.
  if (!widths.empty()) bytes += cat("\x1b[0m\x1b[?7l", lines, "\x1b[?7h");
  shown_ = std::move(lines);
  widths_ = std::move(widths);
  size_ = size;
  return bytes;
}

// Counts wrapped rows, because most terminals wrap rows when they become narrower.
std::string StatusArea::erase(size_t columns, size_t below) {
  if (!is_shown()) return "";
  size_t up = below;
  for (const size_t width : std::exchange(widths_, {}))
    up += std::max<size_t>(1, (width + columns - 1) / columns);
  --up;
  return cat("\r", up > 0 ? cat("\x1b[", up, "A") : "", "\x1b[J");
}

bool is_movable_bar(std::string_view text) {
  for (size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    if (byte == 0x7f || (byte < 0x20 && byte != 0x1b)) return false;
    if (byte != 0x1b) continue;
    if (i + 1 >= text.size() || text[i + 1] != '[') return false;
    i = text.find_first_not_of("0123456789;", i + 2);
    if (i == std::string_view::npos || (text[i] != 'm' && text[i] != 'K')) return false;
  }
  return true;
}

bool is_cleared_bar(std::string_view text) {
  if (!is_movable_bar(text)) return false;
  bool clears = false;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\x1b')
      i = text.find_first_of("mK", i);
    else if (text[i] != ' ')
      return false;
    clears = clears || text[i] != 'm';
  }
  return clears;
}

bool is_of_colors(std::string_view text) {
  return is_movable_bar(text) && colors_in(text).size() == text.size();
}

std::string colors_in(std::string_view text) {
  std::string colors;
  for (size_t at = 0; (at = text.find('\x1b', at)) != std::string_view::npos;) {
    const size_t end = std::min(text.find_first_of("mK", at), text.size() - 1) + 1;
    if (text[end - 1] == 'm') colors += text.substr(at, end - at);
    at = end;
  }
  return colors;
}

}  // namespace hvd::launcher
