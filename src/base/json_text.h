// Escapes text for JSON strings, and encodes bytes for them. Pure; the parser accepts any text.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"

namespace hvd {

bool is_utf8(std::string_view bytes);

// For a JSON string, without its quotes: escaped, and valid whatever the bytes are. Each byte of
// invalid UTF-8 becomes U+FFFD.
std::string json_escaped(std::string_view bytes);

// Bytes as base64 (RFC 4648, section 4), with padding. The decoder refuses text that to_base64() does not produce.
std::string to_base64(std::string_view bytes);
Result<std::string> from_base64(const std::string& text);

}  // namespace hvd
