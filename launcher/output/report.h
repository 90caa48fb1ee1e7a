// The launcher's messages: its last sentences, refusals and answers, and the steps of --verbose.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "base/status.h"
#include "launcher/plan/exit_codes.h"

namespace hvd::launcher {

struct OutputChunk;

// "horovodrun: " + sentence and a newline, or an object with --log-format json.
std::string line_of(std::string_view sentence);
enum class Tone : uint8_t { kNotice, kError };
// That line as standard error shows it: "horovodrun:" is bold, and red in an error, where color_messages() has it so.
std::string shown_line(std::string_view sentence, Tone tone = Tone::kNotice);
// `when`: the value of --color; "auto" until this is called, while the process has one thread.
void color_messages(std::string_view when);
// One sentence on standard error.
void print_message(std::string_view sentence, Tone tone = Tone::kNotice);
// Calls `copy` with each sentence that print_message prints from now on; empty: no longer. One thread uses both.
void copy_messages(std::function<void(std::string_view sentence)> copy);
// Writes an answer to standard output. Returns 0, or after a sentence the exit code when it cannot be written.
int print_answer(const std::string& text);
// Says on standard error why nothing was started; returns kExitBadInput.
int refuse(const Status& why);

// Prints the bytes on their stream at once. Returns 0, or after a sentence the exit code when they cannot be written.
int show(const OutputChunk& chunk);

// "1.24 s: " + text, as an info line of the log. The first call is the begin.
void explain(std::string_view text);

}  // namespace hvd::launcher
