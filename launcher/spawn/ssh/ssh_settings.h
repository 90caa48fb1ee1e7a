// Parses the ssh settings of a host, as `ssh -G HOST` prints them. Pure: starts no program, reads no
// file.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace hvd::launcher {

struct SshSettings {
  std::string host_name;  // name or address to connect to
  std::string user;
  int port = 22;
  std::string host_key_alias;
  std::string strict_host_key_checking;  // as `ssh -G` prints it; "unread": unknown
  // A configuration file sets StrictHostKeyChecking to `ask`, which `ssh -G` also prints for the default.
  bool asks_about_new_keys = false;
  std::string identity_agent;                       // as written; empty: SSH_AUTH_SOCK
  std::vector<std::string> identity_files;          // as written, in order, defaults included
  std::vector<std::string> certificate_files;       // as written
  std::vector<std::string> user_known_hosts_files;  // as written
  std::vector<std::string> global_known_hosts_files;
  bool hashes_names = false;   // HashKnownHosts yes
  std::string address_family;  // "any", "inet" or "inet6"
  std::string proxy_jump;      // "user@a:22,b"; empty or "none": no jump host
  std::string ciphers, macs, key_exchanges, host_key_algorithms, public_key_algorithms;
  bool compression = false;
  bool identities_only = false;
  bool has_gssapi = false;        // GSSAPIAuthentication yes
  bool has_control_path = false;  // a master connection may exist
  bool has_session_type = false;  // this ssh supports SessionType (OpenSSH 8.7 and later)
  // The reason why these settings need the system's ssh; empty if libssh suffices.
  std::string beyond_libssh;

  bool operator==(const SshSettings&) const = default;
};

// Parses the output of `ssh -G`; returns nothing if it contains no settings.
std::optional<SshSettings> parse_ssh_settings(std::string_view output);

// Returns the settings without any configuration, for a machine without ssh.
SshSettings default_ssh_settings(const std::string& host, const std::string& user);

// Returns the configuration files that `ssh -v` names in its messages. The lines of these files decide whether
// one host's settings apply to all hosts.
std::vector<std::string> configuration_files(std::string_view messages);

// Returns whether a configuration file may give different hosts different settings.
bool depends_on_host(std::string_view configuration);

// Returns whether a configuration file contains StrictHostKeyChecking ask.
bool asks_about_new_keys(std::string_view configuration);

// Returns the end of a certificate's validity ("2026-01-31T18:00:00", in local time) from the
// output of `ssh-keygen -L`. Empty: the certificate has no end, or the output has none.
std::string end_of_validity(std::string_view output);

// Returns whether ssh uses the name unchanged: it is in lower case, and an address is in its usual
// form.
bool is_canonical_name(std::string_view host);

// The values for ~ and for the tokens of a path, such as %h.
struct SshTokens {
  std::string home, local_user, remote_user, remote_host, original_host;
  int port = 22;
  int uid = 0;
};
// Expands ~, ${VARIABLE} and tokens; returns nothing if the path has an unknown token.
std::optional<std::string> expand_ssh_path(
    std::string_view path, const SshTokens& tokens,
    const std::function<std::string(std::string_view)>& variable);

}  // namespace hvd::launcher
