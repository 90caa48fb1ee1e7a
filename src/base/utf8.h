// Text in UTF-8 that may contain invalid bytes.
#pragma once

#include <cstddef>
#include <string_view>

namespace hvd {

// Returns at most `limit` bytes from the front, without an incomplete character at the end.
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

}  // namespace hvd
