// What of the user's ssh configuration (ssh_config(5)) libssh does not act upon or does not tell:
// host key policy, identities, and what only the system's ssh can do. Reads nothing by itself.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace hvd::launcher {

struct SshConfig {
  // Lower case; empty when it is not set. "accept-new" is our default, a prompt is never shown.
  std::string strict_host_key_checking;
  std::string host_name;                     // as written, %h and all
  std::string host_key_alias;
  std::string identity_agent;                // as written
  std::vector<std::string> identity_files;   // as written, in their order
  std::vector<std::string> known_hosts_files;  // as written; empty: ssh's own
  std::string address_family;                // "any", "inet", "inet6" or empty
  bool identities_only = false;
  bool has_gssapi = false;       // GSSAPIAuthentication yes
  bool has_control_path = false; // a master connection may exist
  // Why only the system's ssh can do what the configuration asks for; empty when libssh can.
  std::string beyond_libssh;
};

struct SshConfigQuery {
  std::string host;        // as the user wrote it, without user and port
  std::string user;        // that the user asked for, or empty
  std::string local_user;
};

// The contents of the files that an Include's pattern names, in their order; unreadable ones left
// out. `pattern` is as written: may be relative or begin with ~.
using SshConfigSource = std::function<std::vector<std::string>(std::string_view pattern)>;

// `files` in the order that ssh reads them: the user's, then the system's. The first value counts.
SshConfig read_ssh_config(const std::vector<std::string>& files, const SshConfigQuery& query,
                          const SshConfigSource& include);

// True when the whole `name` matches `pattern` with its * and ?; case does not count.
bool matches_pattern(std::string_view name, std::string_view pattern);
// Patterns of which one must match and none that begins with ! may.
bool matches_pattern_list(std::string_view name, const std::vector<std::string>& patterns);

// %d, %h, ... and ~ in a path. An unknown token leaves nothing: the file cannot be meant.
struct SshTokens {
  std::string home, local_user, remote_user, remote_host, original_host, local_host;
  int port = 22;
  int uid = 0;
};
std::string expand_ssh_path(std::string_view path, const SshTokens& tokens,
                            const std::function<std::string(std::string_view)>& variable);

}  // namespace hvd::launcher
