// The launcher's messages: final messages, refusals and answers, and the steps of --verbose.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "base/status.h"
#include "launcher/plan/exit_codes.h"

namespace hvd::launcher {

struct OutputChunk;

// Returns "horovodrun: " + sentence and a newline, or an object with --log-format json.
std::string line_of(std::string_view sentence);
enum class Tone : uint8_t { kNotice, kError };
// Returns line_of() for standard error: "horovodrun:" is bold, and red in an error, if color_messages() enables it.
std::string shown_line(std::string_view sentence, Tone tone = Tone::kNotice);
// `when`: the value of --color; "auto" before this call. Call it while the process has one thread.
void color_messages(std::string_view when);
// Prints one sentence on standard error.
void print_message(std::string_view sentence, Tone tone = Tone::kNotice);
// Calls `copy` with each later sentence of print_message(); empty: stops. Call both functions in one thread.
void copy_messages(std::function<void(std::string_view sentence)> copy);
// Writes an answer to standard output. Returns 0; if the write fails, prints a message and returns the exit code.
int print_answer(const std::string& text);
// Prints the error on standard error; returns kExitBadInput.
int refuse(const Status& why);

// Writes the bytes to their stream at once. Returns 0; if that fails, prints a message and returns the exit code.
int show(const OutputChunk& chunk);

// Logs "1.24 s: " + text as an info line. The time counts from the first call.
void explain(std::string_view text);

}  // namespace hvd::launcher
