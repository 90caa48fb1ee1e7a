#include "launcher/output/report.h"

#include <cstdio>

#include "base/log/json_record.h"
#include "base/log/log_format.h"
#include "base/text.h"
#include "launcher/protocol/protocol.h"

namespace hvd::launcher {

std::string line_of(std::string_view sentence) {
  if (log::format() == log::Format::kJson) return json_records("horovodrun", "", sentence);
  return cat("horovodrun: ", sentence, "\n");
}

void say(std::string_view sentence) { std::fputs(line_of(sentence).c_str(), stderr); }

int refuse(const Status& why) {
  say(why.message());
  return kExitBadInput;
}

int show(const Said& said) {
  FILE* const stream = said.is_error != 0 ? stderr : stdout;
  const bool is_written =
      std::fwrite(said.bytes.data(), 1, said.bytes.size(), stream) == said.bytes.size();
  return is_written && std::fflush(stream) == 0 ? 0 : kExitLauncher;
}

}  // namespace hvd::launcher
