#include "launcher/terminal/terminal_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>

#include "base/text.h"

namespace hvd::launcher {
namespace {

bool is_continuation(char byte) { return (static_cast<unsigned char>(byte) & 0xc0) == 0x80; }

}  // namespace

size_t width_of(std::string_view text) {
  return static_cast<size_t>(
      std::ranges::count_if(text, [](char byte) { return !is_continuation(byte); }));
}

std::string_view cut(std::string_view text, size_t columns) {
  size_t at = 0;
  for (size_t width = 0; at < text.size(); ++at) {
    if (!is_continuation(text[at]) && width++ == columns) break;
  }
  return text.substr(0, at);
}

std::string cut_colored(std::string_view text, size_t columns) {
  std::string shown;
  bool has_color = false;
  for (size_t at = 0, width = 0; at < text.size();) {
    if (text[at] == '\x1b') {
      const size_t end = std::min(text.find_first_of("mK", at), text.size() - 1) + 1;
      if (text[end - 1] == 'm') {
        shown += text.substr(at, end - at);
        has_color = true;
      }
      at = end;
      continue;
    }
    if (!is_continuation(text[at]) && width++ == columns) break;
    shown += text[at++];
  }
  return has_color ? shown + "\x1b[0m" : shown;
}

std::string percent(double share) {
  return share < 0 ? "-" : cat(static_cast<int64_t>(std::lround(share * 100)), "%");
}

std::string time_span(double seconds) {
  if (seconds < 0) return "-";
  const auto whole = static_cast<int64_t>(seconds);
  const std::string clock =
      fmt::format("{:02}:{:02}:{:02}", whole / 3600 % 24, whole / 60 % 60, whole % 60);
  return whole < 86400 ? clock : cat(whole / 86400, " d ", clock);
}

std::string size_text(double bytes) {
  constexpr std::array kUnits = {"B", "K", "M", "G", "T", "P"};
  if (bytes < 0) return "-";
  size_t unit = 0;
  for (; bytes >= 1000 && unit + 1 < kUnits.size(); ++unit) bytes /= 1024;
  return bytes < 10 && unit > 0 ? fmt::format("{:.1f}{}", bytes, kUnits[unit])
                                : fmt::format("{:.0f}{}", bytes, kUnits[unit]);
}

}  // namespace hvd::launcher
