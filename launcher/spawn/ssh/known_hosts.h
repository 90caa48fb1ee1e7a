// Host keys: looks them up in known_hosts files as OpenSSH does (in every file, by the same names), and
// decides about the key that a host presents. Needs libssh(), except where a comment states otherwise.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "launcher/spawn/ssh/libssh.h"
#include "launcher/spawn/ssh/ssh_login.h"

namespace hvd::launcher {

struct KnownHostKey {
  KeyPtr key;
  std::string place;  // "FILE:LINE"
  std::string file;
};

// The lines about one name.
struct KnownHostKeys {
  std::vector<KnownHostKey> keys;
  std::vector<KnownHostKey> revoked;
  // The position ("FILE:LINE") of a marked line that only the system's ssh supports: @cert-authority, or a
  // revoked key that libssh cannot read.
  std::string marked_in;
  std::string authority_in;  // the position of a @cert-authority line
};

struct KnownHost {
  std::string name;  // the host's name in known_hosts files: HostKeyAlias, "host" or "[host]:2202"
  KnownHostKeys exact;     // keys of `name`
  KnownHostKeys portless;  // keys of the host without its port, which OpenSSH tries next
};

// Returns "[host]:2202" for a port other than 22, and "host" for 22.
std::string known_hosts_name(std::string_view host, int port);

// Returns the lines about `name` in `files`. Skips unreadable files and lines.
KnownHostKeys find_known_hosts(const std::string& name, const std::vector<std::string>& files);

// Returns the lines about a host in all files of its settings; without libssh(), no lines.
KnownHost find_known_host(const SshSettings& settings);

// Checks the key that the host presents, in OpenSSH's order. Adds an accepted new key to the user's
// first file, and reports it.
Status check_host_key(const SshLogin& login, const KnownHost& known, ssh_key key);

}  // namespace hvd::launcher
