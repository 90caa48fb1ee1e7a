#include "launcher/output/report.h"

#include <cstdio>
#include <utility>

#include "base/log/json_record.h"
#include "base/log/log_format.h"
#include "base/text.h"
#include "launcher/protocol/protocol.h"

namespace hvd::launcher {
namespace {

std::function<void(std::string_view)>& message_copy() {
  static std::function<void(std::string_view)> copy;
  return copy;
}

}  // namespace

std::string line_of(std::string_view sentence) {
  if (log::format() == log::Format::kJson) return json_records("horovodrun", "", sentence);
  return cat("horovodrun: ", sentence, "\n");
}

void print_message(std::string_view sentence) {
  std::fputs(line_of(sentence).c_str(), stderr);
  if (message_copy()) message_copy()(sentence);
}

void copy_messages(std::function<void(std::string_view sentence)> copy) {
  message_copy() = std::move(copy);
}

int print_answer(const std::string& text) {
  const bool is_written = std::fputs(text.c_str(), stdout) >= 0 && std::fflush(stdout) == 0;
  return is_written ? 0 : kExitLauncher;
}

int refuse(const Status& why) {
  print_message(why.message());
  return kExitBadInput;
}

int show(const OutputChunk& chunk) {
  FILE* const stream = chunk.is_error != 0 ? stderr : stdout;
  const bool is_written =
      std::fwrite(chunk.bytes.data(), 1, chunk.bytes.size(), stream) == chunk.bytes.size();
  return is_written && std::fflush(stream) == 0 ? 0 : kExitLauncher;
}

}  // namespace hvd::launcher
