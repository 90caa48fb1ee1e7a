#include "base/text.h"

#include <algorithm>
#include <charconv>

namespace hvd {

std::string_view trim(std::string_view text) {
  constexpr std::string_view kSpace = " \t\r\n\v\f";
  const size_t begin = text.find_first_not_of(kSpace);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kSpace) - begin + 1);
}

std::vector<std::string> split(std::string_view text, char separator) {
  std::vector<std::string> parts;
  for (;;) {
    const size_t end = text.find(separator);
    parts.emplace_back(text.substr(0, end));
    if (end == std::string_view::npos) return parts;
    text.remove_prefix(end + 1);
  }
}

std::string join(std::span<const std::string> parts, std::string_view separator) {
  std::string joined;
  for (const std::string& part : parts) {
    if (&part != parts.data()) joined += separator;
    joined += part;
  }
  return joined;
}

std::optional<int64_t> parse_int(std::string_view text) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || text.empty()) return {};
  return value;
}

std::optional<double> parse_double(std::string_view text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || text.empty()) return {};
  return value;
}

std::string to_lower(std::string_view text) {
  std::string lower(text);
  for (char& c : lower) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return lower;
}

size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j < row.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j < row.size(); ++j) {
      const size_t above = row[j];
      const size_t replace = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      row[j] = std::min({above + 1, row[j - 1] + 1, replace});
      diagonal = above;
    }
  }
  return row.back();
}

std::string nearest(std::string_view word, std::span<const std::string> candidates) {
  std::string best;
  size_t best_distance = std::max<size_t>(2, word.size() / 3) + 1;
  for (const std::string& candidate : candidates) {
    const size_t distance = edit_distance(word, candidate);
    if (distance >= best_distance) continue;
    best_distance = distance;
    best = candidate;
  }
  return best;
}

std::string one_line(std::string_view text, size_t most_lines) {
  std::vector<std::string> lines;
  for (const std::string& line : split(text, '\n')) {
    if (!trim(line).empty()) lines.emplace_back(trim(line));
  }
  if (lines.size() > most_lines) {
    const auto begin = lines.begin() + static_cast<std::ptrdiff_t>(most_lines / 2);
    *begin = "...";
    lines.erase(begin + 1,
                lines.end() - static_cast<std::ptrdiff_t>(most_lines - most_lines / 2 - 1));
  }
  return join(lines, "; ");
}

std::string shell_quote(std::string_view text) {
  constexpr std::string_view kPlain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789@%+=:,./-_";
  if (!text.empty() && text.find_first_not_of(kPlain) == std::string_view::npos) {
    return std::string(text);
  }
  std::string quoted = "'";
  for (char c : text) {
    if (c == '\'')
      quoted += "'\\''";
    else
      quoted += c;
  }
  return quoted + "'";
}

namespace {

// Returns the number of bytes at the front of the text that a terminal may interpret: control characters, also
// those in UTF-8 (U+0080 to U+009F), and characters that change lines or the writing direction.
size_t size_of_control(std::string_view text) {
  struct Range {
    std::string_view first, last;
  };
  // Ranges in UTF-8; both ends of a range have the same length.
  constexpr Range kRanges[] = {{std::string_view("\0", 1), "\x1f"},
                               {"\x7f", "\x7f"},
                               {"\xc2\x80", "\xc2\x9f"},
                               {"\xd8\x9c", "\xd8\x9c"},
                               {"\xe2\x80\x8e", "\xe2\x80\x8f"},
                               {"\xe2\x80\xa8", "\xe2\x80\xae"},
                               {"\xe2\x81\xa6", "\xe2\x81\xa9"}};
  for (const Range& range : kRanges) {
    const std::string_view front = text.substr(0, range.first.size());
    if (front.size() == range.first.size() && front >= range.first && front <= range.last)
      return front.size();
  }
  return 0;
}

}  // namespace

std::string printable(std::string_view text, size_t limit) {
  constexpr char kHex[] = "0123456789abcdef";
  std::string shown;
  for (size_t i = 0, hidden = 0; i < text.size(); ++i) {
    if (shown.size() >= limit) {
      if (hidden == 0) shown.resize(shown.size() - (i - front_of(text, i).size()));
      return shown + "...";
    }
    if (hidden == 0) hidden = size_of_control(text.substr(i));
    const auto byte = static_cast<unsigned char>(text[i]);
    if (hidden > 0) {
      shown += {'\\', 'x', kHex[byte >> 4], kHex[byte & 15]};
      --hidden;
    } else {
      shown += text[i];
    }
  }
  return shown;
}

std::vector<std::string_view> words_of(std::string_view text) {
  constexpr std::string_view kSpace = " \t\r\n\v\f";
  std::vector<std::string_view> found;
  for (;;) {
    const size_t begin = text.find_first_not_of(kSpace);
    if (begin == std::string_view::npos) return found;
    text.remove_prefix(begin);
    const size_t end = std::min(text.find_first_of(kSpace), text.size());
    found.push_back(text.substr(0, end));
    text.remove_prefix(end);
  }
}

std::string_view take_line(std::string_view& text) {
  const size_t end = text.find('\n');
  const std::string_view line = text.substr(0, end);
  text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  return line;
}

}  // namespace hvd
