// Small functions on text, independent of the locale.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

namespace hvd {

// Joins its arguments: cat("rank ", 3, " of ", 8) is "rank 3 of 8".
template <typename... Parts>
std::string cat(const Parts&... parts) {
  std::ostringstream out;
  out.imbue(std::locale::classic());
  (out << ... << parts);
  return std::move(out).str();
}

std::string_view trim(std::string_view text);
// Splits at the separator: with ',', "a,,b" gives {"a", "", "b"}, and "" gives {""}.
std::vector<std::string> split(std::string_view text, char separator);
std::string join(std::span<const std::string> parts, std::string_view separator);
// Parses the whole text as a number; empty if it is not a number.
std::optional<int64_t> parse_int(std::string_view text);
std::optional<double> parse_double(std::string_view text);
// Converts ASCII letters to lower case.
std::string to_lower(std::string_view text);
// Returns the candidate that was probably meant, or empty if no candidate is similar.
std::string nearest(std::string_view word, std::span<const std::string> candidates);
// Returns the number of letters to add, remove or replace to make one word of the other.
size_t edit_distance(std::string_view a, std::string_view b);
// Joins the non-blank lines of a text by "; ". If the text has more than `most_lines`, omits lines in its middle.
std::string one_line(std::string_view text, size_t most_lines = 6);
// Quotes for /bin/sh: 'it'\''s'.
std::string shell_quote(std::string_view text);
// Escapes control characters, and characters that change lines or the writing direction, for
// messages. Cuts the text to about `limit` bytes.
std::string printable(std::string_view text, size_t limit = 200);

// Returns at most `limit` bytes from the front of a text in UTF-8, without an incomplete character at
// the end. The text may contain invalid bytes.
inline std::string_view front_of(std::string_view text, size_t limit) {
  constexpr size_t kMost = 3;  // bytes of a character after its first byte
  const auto is_inside = [text](size_t i) {
    return (static_cast<unsigned char>(text[i]) & 0xc0) == 0x80;
  };
  if (text.size() <= limit) return text;
  size_t size = limit;
  while (size > 0 && limit - size < kMost && is_inside(size)) --size;
  return text.substr(0, size);
}

// Returns the words between white space.
std::vector<std::string_view> words_of(std::string_view text);
// Removes the first line from the text, and returns it without its newline.
std::string_view take_line(std::string_view& text);

// Returns the major and minor number of a version: "0.90" for "0.90.2".
constexpr std::string_view release_of(std::string_view version) {
  const size_t minor = version.find('.');
  return version.substr(0, minor == std::string_view::npos ? minor : version.find('.', minor + 1));
}
// Versions with equal major and minor numbers are compatible.
constexpr bool is_same_release(std::string_view one, std::string_view other) {
  return release_of(one) == release_of(other);
}

}  // namespace hvd
