// Escapes text for JSON strings. Pure.
#pragma once

#include <string>
#include <string_view>

namespace hvd {

bool is_utf8(std::string_view bytes);

// For a JSON string, without its quotes: escaped, and valid whatever the bytes are. Each byte that is
// no part of UTF-8 becomes U+FFFD.
std::string json_escaped(std::string_view bytes);

}  // namespace hvd
