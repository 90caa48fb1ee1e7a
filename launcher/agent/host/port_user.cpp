#include "launcher/agent/host/port_user.h"

#include <unistd.h>

#include <cstdio>
#include <memory>

namespace hvd::launcher {

std::optional<uid_t> other_user_at(uint16_t port) {
  constexpr unsigned kListens = 0x0A;
  for (const char* path : {"/proc/net/tcp", "/proc/net/tcp6"}) {
    const std::unique_ptr<FILE, int (*)(FILE*)> table(std::fopen(path, "re"), &std::fclose);
    char line[512];
    while (table && std::fgets(line, sizeof line, table.get()) != nullptr) {
      unsigned own_port = 0, state = 0, uid = 0;
      // Columns: number, local address:port, remote address:port, state, queues, timer, retransmissions, user.
      const int read =
          std::sscanf(line, "%*d: %*[0-9A-F]:%x %*[0-9A-F]:%*x %x %*x:%*x %*x:%*x %*x %u",
                      &own_port, &state, &uid);
      if (read == 3 && own_port == port && state == kListens && uid != ::geteuid()) return uid;
    }
  }
  return {};
}

}  // namespace hvd::launcher
