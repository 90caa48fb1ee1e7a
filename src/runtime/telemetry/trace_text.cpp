#include "runtime/telemetry/trace_text.h"

#include <algorithm>
#include <array>
#include <charconv>

#include "base/text.h"

namespace hvd::runtime {
namespace {

// Length of the UTF-8 sequence at the start of the text; 0 when there is none that is valid.
size_t sequence_length(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char first = byte(0);
  const size_t length = first < 0x80                    ? 1
                        : first >= 0xc2 && first < 0xe0 ? 2
                        : first >= 0xe0 && first < 0xf0 ? 3
                        : first >= 0xf0 && first < 0xf5 ? 4
                                                        : 0;
  if (length == 0 || length > text.size()) return 0;
  for (size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return 0;
  }
  // Overlong ones, surrogates, and what is above the last code point.
  if ((first == 0xe0 && byte(1) < 0xa0) || (first == 0xed && byte(1) >= 0xa0) ||
      (first == 0xf0 && byte(1) < 0x90) || (first == 0xf4 && byte(1) >= 0x90)) {
    return 0;
  }
  return length;
}

}  // namespace

void put_number(std::string& text, int64_t number) {
  std::array<char, 24> digits;
  const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), number).ptr;
  text.append(digits.data(), end);
}

void put_time(std::string& text, double micros) {
  std::array<char, 40> digits;
  const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), micros,
                                 std::chars_format::fixed, 3)
                       .ptr;
  text.append(digits.data(), end);
}

std::string upper_case(std::string_view text) {
  std::string upper(text);
  for (char& c : upper) c = c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c;
  return upper;
}

std::string shape_text(const std::vector<int64_t>& shape) {
  std::string text = "[";
  for (const int64_t extent : shape) {
    if (text.size() > 400) return text + " ...]";
    if (text.size() > 1) text += ", ";
    put_number(text, extent);
  }
  return text + "]";
}

std::string json_escape(std::string_view text) {
  constexpr char kHex[] = "0123456789abcdef";
  std::string escaped;
  while (!text.empty()) {
    const size_t length = sequence_length(text);
    const char first = text[0];
    if (length == 0) {
      escaped += "\\ufffd";
    } else if (first == '"' || first == '\\') {
      escaped += {'\\', first};
    } else if (static_cast<unsigned char>(first) < 0x20) {
      escaped += cat("\\u00", kHex[first >> 4], kHex[first & 15]);
    } else {
      escaped += text.substr(0, length);
    }
    text.remove_prefix(std::max<size_t>(length, 1));
  }
  return escaped;
}

}  // namespace hvd::runtime
