// Times of the calendar as text. Any thread.
#pragma once

#include <chrono>
#include <string>

namespace hvd {

enum class TimeZone { kLocal, kUtc };

// As strftime(3) writes it.
std::string time_text(
    const char* format, TimeZone zone,
    std::chrono::system_clock::time_point time = std::chrono::system_clock::now());

// As ISO 8601 writes it, with milliseconds and without the zone: "2026-11-25T09:04:27.123".
std::string iso_time(TimeZone zone,
                     std::chrono::system_clock::time_point time = std::chrono::system_clock::now());

}  // namespace hvd
