#include "launcher/agent/host/process_connections.h"

#include <filesystem>
#include <string_view>
#include <vector>

#include "base/proc_file.h"
#include "base/text.h"

namespace hvd::launcher {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMaxTable = 180 * 100'000;  // a row has up to 180 bytes

// Returns the inodes of the process's sockets, from links with the text "socket:[4711]".
std::set<std::string> sockets_of(pid_t process) {
  std::set<std::string> sockets;
  std::error_code error;
  for (fs::directory_iterator at(cat("/proc/", process, "/fd"), error), end; !error && at != end;
       at.increment(error)) {
    std::error_code gone;
    const std::string target = fs::read_symlink(at->path(), gone).string();
    if (target.starts_with("socket:[")) sockets.insert(target.substr(8, target.size() - 9));
  }
  return sockets;
}

// Returns the connections of the process's network namespace, by inode.
std::map<std::string, ConnectionEnds> read_table(pid_t process) {
  std::map<std::string, ConnectionEnds> table;
  for (const char* name : {"tcp", "tcp6"}) {
    const std::string text = read_large_proc_file(cat("/proc/", process, "/net/", name), kMaxTable);
    std::string_view rest = text;
    while (!rest.empty()) {
      // Columns: number, local end, remote end, state, and further columns with the inode of the socket.
      const std::vector<std::string_view> words = words_of(take_line(rest));
      if (words.size() < 10 || words[3] != "01") continue;
      table.insert_or_assign(std::string(words[9]),
                             ConnectionEnds(std::string(words[1]), std::string(words[2])));
    }
  }
  return table;
}

}  // namespace

std::set<ConnectionEnds> Connections::of(pid_t process) {
  std::set<ConnectionEnds> connections;
  const std::set<std::string> sockets = sockets_of(process);
  if (sockets.empty()) return connections;
  std::error_code error;
  std::string network = fs::read_symlink(cat("/proc/", process, "/ns/net"), error).string();
  if (error) network = cat(process);
  auto table = tables_.find(network);
  if (table == tables_.end()) table = tables_.emplace(network, read_table(process)).first;
  for (const std::string& socket : sockets) {
    const auto found = table->second.find(socket);
    if (found != table->second.end()) connections.insert(found->second);
  }
  return connections;
}

}  // namespace hvd::launcher
