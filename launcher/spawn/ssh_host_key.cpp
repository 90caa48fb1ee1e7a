#include <fstream>

#include "base/log.h"
#include "launcher/spawn/known_hosts.h"
#include "launcher/spawn/ssh_connection.h"

namespace hvd::launcher {
namespace {

std::string fingerprint_of(ssh_key key) {
  unsigned char* hash = nullptr;
  size_t size = 0;
  if (ssh_get_publickey_hash(key, SSH_PUBLICKEY_HASH_SHA256, &hash, &size) != 0) return {};
  const TextPtr text(ssh_get_fingerprint_hash(SSH_PUBLICKEY_HASH_SHA256, hash, size));
  ssh_clean_pubkey_hash(&hash);
  return cat(ssh_key_type_to_char(ssh_key_type(key)), " ", text ? text.get() : "?");
}

// "path:line" of the first key of `host` in a known_hosts file, or empty.
std::string line_of_host(const std::string& path, const std::string& host) {
  std::ifstream in(path);
  std::string text;
  for (int line = 1; std::getline(in, text); ++line) {
    if (text.empty() || text[0] == '#' || text[0] == '@') continue;
    ssh_knownhosts_entry* entry = nullptr;
    if (ssh_known_hosts_parse_line(host.c_str(), text.c_str(), &entry) != SSH_OK) continue;
    ssh_knownhosts_entry_free(entry);
    return cat(path, ":", line);
  }
  return {};
}

}  // namespace

std::string SshConnection::known_hosts_name() const {
  return port_ == 22 ? to_lower(host_) : cat("[", to_lower(host_), "]:", port_);
}

Status SshConnection::check_host_key(const SshLogin& login) {
  ssh_key key = nullptr;
  if (ssh_get_server_publickey(session_.get(), &key) != SSH_OK) {
    return unavailable(cat("it showed no host key: ", error()));
  }
  const KeyPtr owned(key);
  switch (ssh_session_is_known_server(session_.get())) {
    case SSH_KNOWN_HOSTS_OK: return {};
    case SSH_KNOWN_HOSTS_CHANGED:
    case SSH_KNOWN_HOSTS_OTHER: return changed_host_key(fingerprint_of(key));
    case SSH_KNOWN_HOSTS_UNKNOWN:
    case SSH_KNOWN_HOSTS_NOT_FOUND: return unknown_host_key(login, fingerprint_of(key));
    case SSH_KNOWN_HOSTS_ERROR: break;
  }
  return failed_precondition(cat("its host key cannot be checked: ", error()));
}

Status SshConnection::changed_host_key(const std::string& fingerprint) {
  const std::string file = libssh_option(session_.get(), SSH_OPTIONS_KNOWNHOSTS);
  const std::string global = libssh_option(session_.get(), SSH_OPTIONS_GLOBAL_KNOWNHOSTS);
  std::string place = line_of_host(file, known_hosts_name());
  std::string place_file = file;
  if (place.empty()) {
    place = line_of_host(global, known_hosts_name());
    place_file = global;
  }
  return permission_denied(
      cat("its host key has changed: it shows ", fingerprint, ", and ",
          place.empty() ? file : place,
          " has another; somebody may be listening in, or the host was installed anew: then run "
          "ssh-keygen -f ", place_file, " -R ", shell_quote(known_hosts_name())));
}

Status SshConnection::unknown_host_key(const SshLogin& login,
                                                const std::string& fingerprint) {
  const std::string& policy = login.config.strict_host_key_checking;
  if (policy == "yes" || policy == "ask") {
    return permission_denied(
        cat("its host key is unknown (", fingerprint, ") and StrictHostKeyChecking is ", policy,
            policy == "ask" ? ", which horovodrun never does" : "", ": connect once with ssh ",
            original_host_, ", or set it to accept-new"));
  }
  char* entry = nullptr;
  Status added = internal_error("libssh cannot write it down");
  const std::string file = libssh_option(session_.get(), SSH_OPTIONS_KNOWNHOSTS);
  if (ssh_session_export_known_hosts_entry(session_.get(), &entry) == SSH_OK) {
    added = append_known_host(file, TextPtr(entry).get());
  }
  if (!added.ok()) {
    log::warning(cat("the new host key of ", host_, " is not remembered: ", added.message()));
  } else {
    log::info(cat("the new host key of ", host_, " (", fingerprint, ") was added to ", file));
  }
  return {};
}

}  // namespace hvd::launcher
