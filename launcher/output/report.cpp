#include "launcher/output/report.h"

#include <cstdio>
#include <cstring>

#include "base/log/json_record.h"
#include "base/log/log_format.h"
#include "base/text.h"

namespace hvd::launcher {

void say(std::string_view sentence) {
  const bool is_json = log::format() == log::Format::kJson;
  const std::string line =
      is_json ? json_records("horovodrun", "", sentence) : cat("horovodrun: ", sentence, "\n");
  std::fputs(line.c_str(), stderr);
}

int refuse(const Status& why) {
  say(why.message());
  return kExitBadInput;
}

std::string signal_name(int number) {
  const char* name = ::sigabbrev_np(number);
  return name == nullptr ? cat(number) : cat("SIG", name);
}

}  // namespace hvd::launcher
