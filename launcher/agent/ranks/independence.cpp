#include "launcher/agent/ranks/independence.h"

#include <cstdio>
#include <cstring>
#include <fstream>
#include <utility>

#include "base/text.h"
#include "launcher/agent/host/python_sources.h"

namespace hvd::launcher {

void Independence::begin(std::vector<std::string> command, std::string folder,
                         uint16_t master_port) {
  command_ = std::move(command);
  folder_ = std::move(folder);
  master_port_ = master_port;
  is_refuted_ = false;
}

void Independence::look_at_sources() {
  if (is_refuted_ || std::exchange(has_read_sources_, true)) return;
  is_refuted_ = !has_no_word_of_ranks(command_, folder_);
}

void Independence::look_at_master_port() {
  // The kernel takes milliseconds to list its sockets.
  if (master_port_ != 0) look_at_sources();
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

bool Independence::holds() {
  look_at_sources();
  return !is_refuted_;
}

}  // namespace hvd::launcher
