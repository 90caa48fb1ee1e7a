#include "launcher/output/terminal_text.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <span>

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

bool ColorRule::holds_for(int descriptor) const {
  return elsewhere || (on_terminals && ::isatty(descriptor) == 1);
}

ColorRule color_rule(std::string_view when) {
  const std::string value = to_lower(when);
  if (value == "always") return {.on_terminals = true, .elsewhere = true};
  const bool is_dumb = environment_variable("TERM").value_or("dumb") == "dumb";
  const bool is_off = !environment_variable("NO_COLOR").value_or("").empty();
  return {.on_terminals = value != "never" && !is_off && !is_dumb};
}

std::string colored(std::string_view text, std::string_view color) {
  return color.empty() ? std::string(text) : cat(color, text, kColorEnd);
}

namespace {

struct CharacterRange {
  char32_t first, last;
};

// Combining characters, joiners and variation selectors, which take no column.
constexpr CharacterRange kZeroWidth[] = {
    {0x300, 0x36f},   {0x483, 0x489},   {0x591, 0x5bd},   {0x610, 0x61a},
    {0x64b, 0x65f},   {0x1ab0, 0x1aff}, {0x1dc0, 0x1dff}, {0x200b, 0x200f},
    {0x20d0, 0x20ff}, {0x2060, 0x2064}, {0x302a, 0x302d}, {0x3099, 0x309a},
    {0xfe00, 0xfe0f}, {0xfe20, 0xfe2f}, {0xfeff, 0xfeff}, {0xe0100, 0xe01ef}};
// East Asian characters and emoji, which take two columns. Includes characters whose width differs between terminals,
// because a row that is too short does no harm.
constexpr CharacterRange kTwoColumns[] = {
    {0x1100, 0x115f},   {0x231a, 0x231b},   {0x2329, 0x232a},   {0x23e9, 0x23f3},
    {0x25fd, 0x25fe},   {0x2614, 0x2615},   {0x2648, 0x2653},   {0x267f, 0x267f},
    {0x2693, 0x2693},   {0x26a1, 0x26a1},   {0x26aa, 0x26ab},   {0x26bd, 0x26be},
    {0x26c4, 0x26c5},   {0x26ce, 0x26ce},   {0x26d4, 0x26d4},   {0x26ea, 0x26ea},
    {0x26f2, 0x26f5},   {0x26fa, 0x26fd},   {0x2705, 0x2705},   {0x270a, 0x270b},
    {0x2728, 0x2728},   {0x274c, 0x274e},   {0x2753, 0x2757},   {0x2795, 0x2797},
    {0x27b0, 0x27bf},   {0x2b1b, 0x2b1c},   {0x2b50, 0x2b55},   {0x2e80, 0x303e},
    {0x3041, 0xa4cf},   {0xa960, 0xa97f},   {0xac00, 0xd7a3},   {0xf900, 0xfaff},
    {0xfe10, 0xfe19},   {0xfe30, 0xfe6f},   {0xff00, 0xff60},   {0xffe0, 0xffe6},
    {0x16fe0, 0x18cff}, {0x1aff0, 0x1b2ff}, {0x1f004, 0x1f004}, {0x1f0cf, 0x1f0cf},
    {0x1f18e, 0x1f19a}, {0x1f200, 0x1f64f}, {0x1f680, 0x1f6ff}, {0x1f7e0, 0x1f7f0},
    {0x1f900, 0x1faff}, {0x20000, 0x3fffd}};

bool is_among(std::span<const CharacterRange> ranges, char32_t character) {
  const auto found = std::ranges::lower_bound(ranges, character, {}, &CharacterRange::last);
  return found != ranges.end() && found->first <= character;
}

bool is_continuation(char byte) { return (static_cast<unsigned char>(byte) & 0xc0) == 0x80; }

struct Character {
  size_t bytes = 1;
  size_t columns = 1;
};

// Returns the first character of a non-empty text. An invalid byte is one character.
Character first_character(std::string_view text) {
  const auto lead = static_cast<unsigned char>(text[0]);
  if (lead < 0x80) return {};
  const size_t bytes = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
  char32_t character = lead & (0xffu >> (bytes + 1));
  if (lead < 0xc2 || text.size() < bytes) return {};
  for (size_t i = 1; i < bytes; ++i) {
    if (!is_continuation(text[i])) return {};
    character = character << 6 | (static_cast<unsigned char>(text[i]) & 0x3fu);
  }
  if (is_among(kZeroWidth, character)) return {bytes, 0};
  return {bytes, is_among(kTwoColumns, character) ? size_t{2} : size_t{1}};
}

// Returns the end of a color sequence, or of another sequence ending in 'm' or 'K', at the front of the text.
size_t end_of_sequence(std::string_view text) {
  return std::min(text.find_first_of("mK"), text.size() - 1) + 1;
}

}  // namespace

size_t width_of(std::string_view text) {
  size_t width = 0;
  while (!text.empty()) {
    const Character character = first_character(text);
    width += character.columns;
    text.remove_prefix(character.bytes);
  }
  return width;
}

size_t colored_width_of(std::string_view text) {
  size_t width = 0;
  while (!text.empty()) {
    const size_t begin = std::min(text.find('\x1b'), text.size());
    width += width_of(text.substr(0, begin));
    text.remove_prefix(begin);
    if (!text.empty()) text.remove_prefix(end_of_sequence(text));
  }
  return width;
}

std::string_view cut(std::string_view text, size_t columns) {
  size_t at = 0;
  for (size_t width = 0; at < text.size();) {
    const Character character = first_character(text.substr(at));
    width += character.columns;
    if (width > columns) break;
    at += character.bytes;
  }
  return text.substr(0, at);
}

std::string cut_colored(std::string_view text, size_t columns) {
  std::string shown;
  bool has_color = false;
  for (size_t width = 0; !text.empty();) {
    if (text[0] == '\x1b') {
      const size_t end = end_of_sequence(text);
      if (text[end - 1] == 'm') {
        shown += text.substr(0, end);
        has_color = true;
      }
      text.remove_prefix(end);
      continue;
    }
    const Character character = first_character(text);
    width += character.columns;
    if (width > columns) break;
    shown += text.substr(0, character.bytes);
    text.remove_prefix(character.bytes);
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
