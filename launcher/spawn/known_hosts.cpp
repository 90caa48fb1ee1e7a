#include "launcher/spawn/known_hosts.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <vector>

#include "base/text.h"
#include "base/unique_fd.h"
#include "launcher/spawn/ssh_config.h"

namespace hvd::launcher {

bool has_marked_key(std::string_view known_hosts, std::string_view host) {
  for (const std::string& line : split(known_hosts, '\n')) {
    const std::string_view text = trim(line);
    if (!text.starts_with('@')) continue;
    const size_t space = text.find_first_of(" \t");
    if (space == std::string_view::npos) continue;
    const std::string_view rest = trim(text.substr(space));
    const std::string_view names = rest.substr(0, rest.find_first_of(" \t"));
    // A hashed name cannot be told from here: it may be this host's.
    if (names.starts_with('|')) return true;
    std::vector<std::string> patterns = split(names, ',');
    for (std::string& pattern : patterns) {
      // "[host]:port"; the port is not looked at.
      if (!pattern.starts_with('[')) continue;
      pattern = pattern.substr(1, pattern.find(']') - 1);
    }
    if (matches_pattern_list(host, patterns)) return true;
  }
  return false;
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
