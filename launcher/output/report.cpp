#include "launcher/output/report.h"

#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <utility>

#include "base/clock.h"
#include "base/log/log.h"
#include "base/text.h"
#include "launcher/output/terminal_text.h"
#include "launcher/protocol/protocol.h"

namespace hvd::launcher {
namespace {

std::function<void(std::string_view)>& message_copy() {
  static std::function<void(std::string_view)> copy;
  return copy;
}

ColorRule& message_colors() {
  static ColorRule colors = color_rule();
  return colors;
}

constexpr std::string_view kName = "horovodrun:";

// Returns the exit code after a failed write. If the reader of a pipe has ended, prints no message.
int on_unwritten(std::string_view stream, int error_number) {
  if (error_number == EPIPE) return kExitSignal + SIGPIPE;
  print_message(system_error(cat("cannot write to ", stream), error_number).message(),
                Tone::kError);
  return kExitLauncher;
}

}  // namespace

std::string line_of(std::string_view sentence) {
  if (log::format() == log::Format::kJson) return json_records("horovodrun", "", sentence);
  return cat(kName, " ", sentence, "\n");
}

std::string shown_line(std::string_view sentence, Tone tone) {
  std::string line = line_of(sentence);
  if (!line.starts_with(kName) || !message_colors().holds_for(STDERR_FILENO)) return line;
  line.replace(0, kName.size(), colored(kName, tone == Tone::kError ? kBoldRed : kBold));
  return line;
}

void color_messages(std::string_view when) { message_colors() = color_rule(when); }

void print_message(std::string_view sentence, Tone tone) {
  std::fputs(shown_line(sentence, tone).c_str(), stderr);
  if (message_copy()) message_copy()(sentence);
}

void copy_messages(std::function<void(std::string_view sentence)> copy) {
  message_copy() = std::move(copy);
}

int print_answer(const std::string& text) {
  const bool is_written = std::fputs(text.c_str(), stdout) >= 0 && std::fflush(stdout) == 0;
  return is_written ? 0 : on_unwritten("standard output", errno);
}

int refuse(const Status& why) {
  print_message(why.message(), Tone::kError);
  return kExitBadInput;
}

int show(const OutputChunk& chunk) {
  FILE* const stream = chunk.is_error != 0 ? stderr : stdout;
  const bool is_written =
      std::fwrite(chunk.bytes.data(), 1, chunk.bytes.size(), stream) == chunk.bytes.size();
  if (is_written && std::fflush(stream) == 0) return 0;
  return on_unwritten(chunk.is_error != 0 ? "standard error" : "standard output", errno);
}

void explain(std::string_view text) {
  static const Clock::time_point began = Clock::now();
  const std::chrono::duration<double> seconds = Clock::now() - began;
  char time[32];
  std::snprintf(time, sizeof time, "%.2f s: ", seconds.count());
  log::info(cat(time, text));
}

}  // namespace hvd::launcher
