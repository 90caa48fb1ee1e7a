#include "launcher/spawn/ssh/new_host_key.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <vector>

#include "base/log/log.h"
#include "base/text.h"
#include "base/unique_fd.h"

namespace hvd::launcher {

std::string refusal_of_new_key(const SshLogin& login, std::string_view authority_in) {
  const std::string destination = ssh_destination(login.target);
  const std::string& policy = login.settings.strict_host_key_checking;
  if (policy == "unread") {
    return ", and without an ssh program, horovodrun cannot read what the ssh configuration "
           "allows: "
           "install OpenSSH's client";
  }
  if (policy == "true" || policy == "yes") {
    return cat(
        " and StrictHostKeyChecking is yes: connect once with ssh -o StrictHostKeyChecking=ask ",
        destination);
  }
  for (const char* lax : {"accept-new", "false", "no", "off"}) {
    if (policy == lax) return {};
  }
  if (login.settings.asks_about_new_keys) {
    return cat(
        " and StrictHostKeyChecking is ask, which horovodrun never does: connect once with ssh ",
        destination, ", or set it to accept-new");
  }
  // With these settings, ssh asks the user. A host with a @cert-authority line must not present an unknown key.
  if (authority_in.empty()) return {};
  return cat(", and ", authority_in,
             " names an authority for it: somebody may be listening in, or the host has lost its "
             "certificate; to accept the key, connect once with ssh -o StrictHostKeyChecking=ask ",
             destination);
}

void report_new_key(const SshLogin& login, std::string_view fingerprint, const Status& added) {
  const std::vector<std::string>& files = login.settings.user_known_hosts_files;
  const std::string& host = login.target.host;
  if (!added.ok()) {
    log::warning(
        fmt::format("host {}: its host key is new ({}) and was accepted, but not remembered: {}",
                    host, fingerprint, added.message()));
    return;
  }
  log::warning(fmt::format("host {}: its host key is new ({}) and was added to {}", host,
                           fingerprint, files.empty() ? "UserKnownHostsFile" : files[0]));
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
