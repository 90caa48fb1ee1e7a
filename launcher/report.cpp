#include "launcher/report.h"

#include <cstdio>
#include <cstring>

#include "base/text.h"

namespace hvd::launcher {

int refuse(const Status& why) {
  std::fprintf(stderr, "horovodrun: %s\n", why.message().c_str());
  return kExitBadInput;
}

std::string signal_name(int number) {
  const char* name = ::sigabbrev_np(number);
  return name == nullptr ? cat(number) : cat("SIG", name);
}

}  // namespace hvd::launcher
