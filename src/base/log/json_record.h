// Lines as JSON objects, for programs that read what this one says. Pure but for the clock.
#pragma once

#include <chrono>
#include <string>
#include <string_view>

namespace hvd {

// "text":"...", or "base64":"..." where the bytes are no UTF-8.
std::string json_text_member(std::string_view bytes);
// The begin of an object: {"time":"2026-01-31T12:00:00.000Z".
std::string json_time(
    std::chrono::system_clock::time_point time = std::chrono::system_clock::now());
// A whole line for each line of the text, which ends with a newline: an object with time, source, level
// unless it is empty, and text.
std::string json_records(std::string_view source, std::string_view level, std::string_view text);

}  // namespace hvd
