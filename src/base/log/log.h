// The log: lines for people on standard error, with time, level and source ("rank 3", "a/agent").
// Any thread may log. The code logs nothing per tensor.
#pragma once

#include <functional>
#include <string>
#include <string_view>

namespace hvd::log {

// The format and the destination of the log, which a program chooses. log.h writes the lines. Any
// thread.

// kJson: each line is an object (json_record.h) with the identity as its source.
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
