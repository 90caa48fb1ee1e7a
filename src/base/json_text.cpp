#include "base/json_text.h"

#include <openssl/evp.h>

#include <algorithm>

namespace hvd {
namespace {

// Returns the size of the character at the front of the text; 0 if it is invalid.
size_t utf8_size(std::string_view text) {
  const auto at = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char first = at(0);
  if (first < 0x80) return 1;
  const size_t size = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
  if (first < 0xc2 || first > 0xf4 || text.size() < size) return 0;
  for (size_t i = 1; i < size; ++i) {
    if ((at(i) & 0xc0) != 0x80) return 0;
  }
  // Refuse an overlong encoding, a surrogate, and a code point above U+10FFFF.
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

std::string to_base64(std::string_view bytes) {
  std::string text((bytes.size() + 2) / 3 * 4, '\0');
  EVP_EncodeBlock(reinterpret_cast<unsigned char*>(text.data()),
                  reinterpret_cast<const unsigned char*>(bytes.data()),
                  static_cast<int>(bytes.size()));
  return text;
}

Result<std::string> from_base64(const std::string& text) {
  std::string bytes(text.size() / 4 * 3, '\0');
  const int size = EVP_DecodeBlock(reinterpret_cast<unsigned char*>(bytes.data()),
                                   reinterpret_cast<const unsigned char*>(text.data()),
                                   static_cast<int>(text.size()));
  // OpenSSL decodes padding as zeros, and accepts spaces around the text and bits after its end.
  const size_t padding = text.ends_with("==") ? 2 : text.ends_with('=') ? 1 : 0;
  if (size >= static_cast<int>(padding)) bytes.resize(static_cast<size_t>(size) - padding);
  if (size < 0 || to_base64(bytes) != text) return invalid_argument("the text is not base64");
  return bytes;
}

}  // namespace hvd
