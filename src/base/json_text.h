// Escapes text for JSON strings, and encodes bytes as base64. Pure.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"

namespace hvd {

bool is_utf8(std::string_view bytes);

// Escapes bytes for a JSON string, without adding quotes. The result is valid for any bytes:
// each byte of invalid UTF-8 becomes U+FFFD.
std::string json_escaped(std::string_view bytes);

// Convert to and from base64 (RFC 4648, section 4), with padding. from_base64() returns an error for any other
// text.
std::string to_base64(std::string_view bytes);
Result<std::string> from_base64(const std::string& text);

}  // namespace hvd
