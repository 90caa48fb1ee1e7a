#include "launcher/agent/host/process_connections.h"

#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <memory>
#include <string_view>
#include <vector>

#include "base/proc_file.h"
#include "base/text.h"

namespace hvd::launcher {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMaxTable = 180 * 100'000;  // a row has up to 180 bytes

// Returns the connections of the process's network namespace, by inode.
std::map<uint64_t, ConnectionEnds> read_table(pid_t process) {
  std::map<uint64_t, ConnectionEnds> table;
  for (const char* name : {"tcp", "tcp6"}) {
    const std::string text = read_large_proc_file(cat("/proc/", process, "/net/", name), kMaxTable);
    std::string_view rest = text;
    while (!rest.empty()) {
      // Columns: number, local end, remote end, state, and further columns with the inode of the socket.
      const std::vector<std::string_view> words = words_of(take_line(rest));
      if (words.size() < 10 || words[3] != "01") continue;
      table.insert_or_assign(static_cast<uint64_t>(parse_int(words[9]).value_or(0)),
                             ConnectionEnds(std::string(words[1]), std::string(words[2])));
    }
  }
  return table;
}

}  // namespace

bool add_sockets(pid_t process, size_t most, std::set<uint64_t>& inodes) {
  std::error_code error;
  fs::directory_iterator at(cat("/proc/", process, "/fd"), error);
  if (error) return false;
  size_t count = 0;
  for (const fs::directory_iterator end; !error && at != end; at.increment(error)) {
    if (++count > most) return false;
    const std::string target = link_target(at->path().string());  // "socket:[4711]"
    if (!target.starts_with("socket:[")) continue;
    const auto inode = parse_int(std::string_view(target).substr(8, target.size() - 9));
    inodes.insert(static_cast<uint64_t>(inode.value_or(0)));
  }
  return true;
}

std::set<ConnectionEnds> Connections::of(pid_t process) {
  std::set<ConnectionEnds> connections;
  std::set<uint64_t> sockets;
  add_sockets(process, SIZE_MAX, sockets);
  if (sockets.empty()) return connections;
  std::string network = link_target(cat("/proc/", process, "/ns/net"));
  if (network.empty()) network = cat(process);
  auto table = tables_.find(network);
  if (table == tables_.end()) table = tables_.emplace(network, read_table(process)).first;
  for (const uint64_t socket : sockets) {
    const auto found = table->second.find(socket);
    if (found != table->second.end()) connections.insert(found->second);
  }
  return connections;
}

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
