#include "launcher/agent/ranks/independence.h"

#include <cstdio>
#include <cstring>
#include <fstream>

#include "base/text.h"
#include "launcher/agent/host/python_sources.h"

namespace hvd::launcher {

void Independence::look_at_master_port() {
  if (is_refuted_ || master_port_ == 0) return;
  char port[8];
  std::snprintf(port, sizeof port, ":%04X ", master_port_);
  for (const char* table : {"/proc/net/tcp", "/proc/net/tcp6"}) {
    std::ifstream file(table);
    for (std::string line; std::getline(file, line);) {
      if (line.find(port) == std::string::npos) continue;
      is_refuted_ = true;
      return;
    }
  }
}

bool Independence::holds(const std::vector<std::string>& command, const std::string& folder) const {
  return !is_refuted_ && has_no_word_of_ranks(command, folder);
}

}  // namespace hvd::launcher
