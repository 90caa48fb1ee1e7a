// Formats calendar times as text. Any thread.
#pragma once

#include <chrono>
#include <string>

namespace hvd {

enum class TimeZone { kLocal, kUtc };

// Formats a time in a format of strftime(3).
std::string time_text(
    const char* format, TimeZone zone,
    std::chrono::system_clock::time_point time = std::chrono::system_clock::now());

// Formats a time in ISO 8601 with milliseconds and without the zone: "2026-11-25T09:04:27.123".
std::string iso_time(TimeZone zone,
                     std::chrono::system_clock::time_point time = std::chrono::system_clock::now());

}  // namespace hvd
