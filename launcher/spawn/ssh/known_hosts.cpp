#include "launcher/spawn/ssh/known_hosts.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <fstream>

#include "base/text.h"
#include "base/unique_fd.h"

namespace hvd::launcher {

namespace {

// Returns whether a pattern of the line that begins with ! matches; libssh ignores such patterns.
bool is_excluded(const std::string& name, std::string_view line) {
  const size_t end = std::min(line.find_first_of(" \t"), line.size());
  for (const std::string& pattern : split(line.substr(0, end), ',')) {
    if (!pattern.starts_with('!')) continue;
    ssh_knownhosts_entry* entry = nullptr;
    const std::string positive = cat(std::string_view(pattern).substr(1), line.substr(end));
    const int outcome = ssh_known_hosts_parse_line(name.c_str(), positive.c_str(), &entry);
    if (outcome == SSH_OK) ssh_knownhosts_entry_free(entry);
    if (outcome != SSH_AGAIN) return true;
  }
  return false;
}

}  // namespace

std::string known_hosts_name(std::string_view host, int port) {
  return port == 22 ? to_lower(host) : cat("[", to_lower(host), "]:", port);
}

KnownHostKeys find_known_hosts(const std::string& name, const std::vector<std::string>& files) {
  KnownHostKeys found;
  for (const std::string& file : files) {
    std::ifstream in(file);
    std::string text;
    for (int line = 1; std::getline(in, text); ++line) {
      std::string_view words = trim(text);
      const bool is_marked = words.starts_with('@');
      if (is_marked) words = trim(words.substr(std::min(words.find_first_of(" \t"), words.size())));
      if (words.empty() || words[0] == '#') continue;
      if (!is_marked && is_excluded(name, words)) continue;
      ssh_knownhosts_entry* entry = nullptr;
      const int outcome =
          ssh_known_hosts_parse_line(name.c_str(), std::string(words).c_str(), &entry);
      // A marked line that libssh cannot parse may be about this host.
      if (is_marked && outcome != SSH_AGAIN) found.marked_in = cat(file, ":", line);
      if (outcome != SSH_OK) continue;
      if (!is_marked) found.keys.push_back({KeyPtr(entry->publickey), file, line});
      if (!is_marked) entry->publickey = nullptr;
      ssh_knownhosts_entry_free(entry);
    }
  }
  return found;
}

Status append_known_host(const std::string& path, const std::string& line) {
  const size_t slash = path.rfind('/');
  if (slash != std::string::npos && slash > 0) ::mkdir(path.substr(0, slash).c_str(), 0700);
  const UniqueFd file(::open(path.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0600));
  if (!file) return system_error(cat("cannot open ", path), errno);
  char last = '\n';
  const off_t size = ::lseek(file.get(), 0, SEEK_END);
  if (size > 0 && ::pread(file.get(), &last, 1, size - 1) != 1) last = '\n';
  const std::string text = (last == '\n' ? "" : "\n") + line;
  if (::write(file.get(), text.data(), text.size()) != static_cast<ssize_t>(text.size())) {
    return system_error(cat("cannot write ", path), errno);
  }
  return {};
}

}  // namespace hvd::launcher
