#include "base/json_text.h"

#include <algorithm>

namespace hvd {
namespace {

// Bytes of the character that the text begins with; 0 when it is none.
size_t utf8_size(std::string_view text) {
  const auto at = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char first = at(0);
  if (first < 0x80) return 1;
  const size_t size = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
  if (first < 0xc2 || first > 0xf4 || text.size() < size) return 0;
  for (size_t i = 1; i < size; ++i) {
    if ((at(i) & 0xc0) != 0x80) return 0;
  }
  // Too long for what it says, a surrogate, or beyond the last one.
  if ((first == 0xe0 && at(1) < 0xa0) || (first == 0xed && at(1) > 0x9f) ||
      (first == 0xf0 && at(1) < 0x90) || (first == 0xf4 && at(1) > 0x8f)) {
    return 0;
  }
  return size;
}

}  // namespace

bool is_utf8(std::string_view bytes) {
  while (!bytes.empty()) {
    const size_t size = utf8_size(bytes);
    if (size == 0) return false;
    bytes.remove_prefix(size);
  }
  return true;
}

std::string json_escaped(std::string_view bytes) {
  constexpr char kHex[] = "0123456789abcdef";
  std::string text;
  text.reserve(bytes.size());
  while (!bytes.empty()) {
    const size_t size = utf8_size(bytes);
    const char first = bytes[0];
    if (size == 0) {
      text += "\\ufffd";
    } else if (first == '"' || first == '\\') {
      text += {'\\', first};
    } else if (first == '\n') {
      text += "\\n";
    } else if (static_cast<unsigned char>(first) < 0x20) {
      text += {'\\', 'u', '0', '0', kHex[first >> 4], kHex[first & 15]};
    } else {
      text += bytes.substr(0, size);
    }
    bytes.remove_prefix(std::max<size_t>(size, 1));
  }
  return text;
}

}  // namespace hvd
