#include "launcher/agent/host/process_connections.h"

#include <filesystem>
#include <fstream>
#include <string_view>
#include <vector>

#include "base/text.h"
#include "base/words.h"

namespace hvd::launcher {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMaxConnections = 100'000;

// The ends of the links of its sockets, "socket:[4711]".
std::set<std::string> sockets_of(pid_t process) {
  std::set<std::string> sockets;
  std::error_code error;
  for (fs::directory_iterator at(cat("/proc/", process, "/fd"), error), end; !error && at != end;
       at.increment(error)) {
    std::error_code gone;
    std::string target = fs::read_symlink(at->path(), gone).string();
    if (target.starts_with("socket:")) sockets.insert(std::move(target));
  }
  return sockets;
}

}  // namespace

std::set<std::pair<std::string, std::string>> connections_of(pid_t process) {
  std::set<std::pair<std::string, std::string>> connections;
  const std::set<std::string> sockets = sockets_of(process);
  if (sockets.empty()) return connections;
  for (const char* table : {"tcp", "tcp6"}) {
    std::ifstream rows(cat("/proc/", process, "/net/", table));
    size_t count = 0;
    for (std::string row; std::getline(rows, row) && ++count <= kMaxConnections;) {
      // Number, own end, other one, state, and the inode of the socket.
      const std::vector<std::string_view> words = words_of(row);
      if (words.size() < 10 || words[3] != "01") continue;
      if (sockets.contains(cat("socket:[", words[9], "]")))
        connections.emplace(std::string(words[1]), std::string(words[2]));
    }
  }
  return connections;
}

}  // namespace hvd::launcher
