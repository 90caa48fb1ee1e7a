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

// Formats calendar times as text. Any thread.
enum class TimeZone { kLocal, kUtc };

// Formats a time in a format of strftime(3).
std::string time_text(
    const char* format, TimeZone zone,
    std::chrono::system_clock::time_point time = std::chrono::system_clock::now());

// Formats a time in ISO 8601 with milliseconds and without the zone: "2026-11-25T09:04:27.123".
std::string iso_time(TimeZone zone,
                     std::chrono::system_clock::time_point time = std::chrono::system_clock::now());

}  // namespace hvd
