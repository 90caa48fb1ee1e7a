#include "launcher/report.h"

#include <cstdio>
#include <cstring>

#include "base/text.h"

namespace hvd::launcher {

void say(std::string_view sentence) {
  std::fprintf(stderr, "horovodrun: %.*s\n", static_cast<int>(sentence.size()), sentence.data());
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
