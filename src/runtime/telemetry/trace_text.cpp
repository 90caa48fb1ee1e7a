#include "runtime/telemetry/trace_text.h"

#include <array>
#include <charconv>

namespace hvd::runtime {
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

}  // namespace hvd::runtime
