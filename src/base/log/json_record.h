// Formats lines as JSON objects for other programs. Pure except for the clock.
#pragma once

#include <chrono>
#include <string>
#include <string_view>

namespace hvd {

// Returns "text":"...", or "base64":"..." if the bytes are not valid UTF-8.
std::string json_text_member(std::string_view bytes);
// Returns the beginning of an object: {"time":"2026-01-31T12:00:00.000Z".
std::string json_time(
    std::chrono::system_clock::time_point time = std::chrono::system_clock::now());
// Formats each line of the text as an object with time, source, level (unless empty) and text. The
// result ends with a newline.
std::string json_records(std::string_view source, std::string_view level, std::string_view text);

}  // namespace hvd
