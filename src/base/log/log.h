// The log: lines for people on standard error, with time, level and source ("rank 3", "a/agent"). Any thread may log.
// Callers log no line per tensor or per step, since a job has thousands of them in a second.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <string_view>

namespace hvd::log {

// kJson: each line is an object (json_records) with the identity as its source.
enum class Format { kText, kJson };

void set_format(Format format);
Format format();

// Receives each line with its newline, on the thread that logs it. If the writer returns false,
// or if no writer is set, the line goes to standard error.
using Writer = std::function<bool(std::string_view line)>;
void set_writer(Writer writer);

enum class Level { kTrace, kDebug, kInfo, kWarning, kError, kOff };

// Set the lowest level that is printed, initially kWarning, and the prefix of each line, initially empty.
void set_level(Level level);
void set_identity(std::string identity);
void set_timestamps(bool shown);
bool enabled(Level level);

// Parses "info", "WARNING", ...; returns false if the word is not a level.
bool parse_level(std::string_view word, Level& level);

void write(Level level, std::string_view message);
inline void trace(std::string_view message) { write(Level::kTrace, message); }
inline void debug(std::string_view message) { write(Level::kDebug, message); }
inline void info(std::string_view message) { write(Level::kInfo, message); }
inline void warning(std::string_view message) { write(Level::kWarning, message); }
inline void error(std::string_view message) { write(Level::kError, message); }

}  // namespace hvd::log

// Formats lines as JSON objects for other programs. Pure except for the clock.
namespace hvd {

// Returns "text":"...", or "base64":"..." if the bytes are not valid UTF-8.
std::string json_text_member(std::string_view bytes);
// Returns the beginning of an object: {"time":"2026-01-31T12:00:00.000Z".
std::string json_time(
    std::chrono::system_clock::time_point time = std::chrono::system_clock::now());
// Formats each line of the text as an object with time, source, level (unless empty) and text. The
// result ends with a newline.
std::string json_records(std::string_view source, std::string_view level, std::string_view text);

enum class TimeZone { kLocal, kUtc };

// Formats a time in a format of strftime(3).
std::string time_text(
    const char* format, TimeZone zone,
    std::chrono::system_clock::time_point time = std::chrono::system_clock::now());

// Formats a time in ISO 8601 with milliseconds and without the zone: "2026-11-25T09:04:27.123".
std::string iso_time(TimeZone zone,
                     std::chrono::system_clock::time_point time = std::chrono::system_clock::now());

}  // namespace hvd
