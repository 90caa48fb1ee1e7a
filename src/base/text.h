// Small functions on text, independent of the locale.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

namespace hvd {

// cat("rank ", 3, " of ", 8): "rank 3 of 8".
template <typename... Parts>
std::string cat(const Parts&... parts) {
  std::ostringstream out;
  out.imbue(std::locale::classic());
  (out << ... << parts);
  return std::move(out).str();
}

std::string_view trim(std::string_view text);
// "a,,b" by ',' is {"a", "", "b"}; "" is {""}.
std::vector<std::string> split(std::string_view text, char separator);
std::string join(std::span<const std::string> parts, std::string_view separator);
// The whole text as a number, or nothing.
std::optional<int64_t> parse_int(std::string_view text);
std::optional<double> parse_double(std::string_view text);
// Lower case, ASCII.
std::string to_lower(std::string_view text);
// The candidate that was probably meant, or empty when none is near.
std::string nearest(std::string_view word, std::span<const std::string> candidates);
// How many letters have to be added, removed or replaced to make one word of the other.
size_t edit_distance(std::string_view a, std::string_view b);
// The lines of a text on one, joined by "; ", without blank ones; of many the first and the last ones.
std::string one_line(std::string_view text, size_t most_lines = 6);
// For /bin/sh: 'it'\''s'.
std::string shell_quote(std::string_view text);
// For messages: control characters and invalid bytes escaped, cut to `limit` bytes.
std::string printable(std::string_view text, size_t limit = 200);

}  // namespace hvd
