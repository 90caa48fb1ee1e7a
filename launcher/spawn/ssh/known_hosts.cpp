#include "launcher/spawn/ssh/known_hosts.h"

#include <algorithm>
#include <array>
#include <fstream>
#include <utility>

#include "base/json_text.h"
#include "base/secrets/hmac.h"
#include "base/secrets/secret.h"
#include "base/text.h"
#include "launcher/spawn/ssh/new_host_key.h"

namespace hvd::launcher {

namespace {

// Returns whether a pattern with a leading ! excludes the name; libssh ignores such patterns.
bool is_excluded(const std::string& name, std::string_view line) {
  const size_t end = std::min(line.find(' '), line.size());
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

std::string fingerprint_of(ssh_key key) {
  unsigned char* hash = nullptr;
  size_t size = 0;
  if (ssh_get_publickey_hash(key, SSH_PUBLICKEY_HASH_SHA256, &hash, &size) != 0) return {};
  const TextPtr text(ssh_get_fingerprint_hash(SSH_PUBLICKEY_HASH_SHA256, hash, size));
  ssh_clean_pubkey_hash(&hash);
  return cat(ssh_key_type_to_char(ssh_key_type(key)), " ", text ? text.get() : "?");
}

const KnownHostKey* find(const std::vector<KnownHostKey>& keys, ssh_key key) {
  const auto found = std::find_if(keys.begin(), keys.end(), [&](const KnownHostKey& each) {
    return ssh_key_cmp(each.key.get(), key, SSH_KEY_CMP_PUBLIC) == 0;
  });
  return found == keys.end() ? nullptr : &*found;
}

// Returns the name in HashKnownHosts form: "|1|SALT|HMAC-SHA1 of the name".
std::string hashed_name(std::string_view name) {
  std::array<std::byte, 20> salt;
  fill_random(salt);
  return cat("|1|", to_base64(as_text(salt)), "|",
             to_base64(as_text(hmac_sha1(salt, as_bytes(name)))));
}

Status add_to_users_file(const SshLogin& login, const std::string& name, ssh_key key) {
  const std::vector<std::string>& files = login.settings.user_known_hosts_files;
  if (files.empty()) return failed_precondition("UserKnownHostsFile is none");
  char* text = nullptr;
  if (ssh_pki_export_pubkey_base64(key, &text) != SSH_OK) {
    return internal_error("libssh cannot write the key");
  }
  const TextPtr base64(text);
  // Do not change the case of a HostKeyAlias before hashing: OpenSSH hashes it unchanged.
  const std::string written = login.settings.hashes_names ? hashed_name(name) : to_lower(name);
  return append_known_host(files[0], cat(written, " ", ssh_key_type_to_char(ssh_key_type(key)), " ",
                                         base64.get(), "\n"));
}

// Reads the key of a line without a mark. Returns false for a line about another host.
bool read_key(KnownHostKey& known, const std::string& name, std::string_view words) {
  // OpenSSH hashes a name without changing its case, and compares unhashed names case-insensitively.
  const std::string wanted = words[0] == '|' ? name : to_lower(name);
  if (is_excluded(wanted, words)) return false;
  ssh_knownhosts_entry* entry = nullptr;
  const int outcome =
      ssh_known_hosts_parse_line(wanted.c_str(), std::string(words).c_str(), &entry);
  if (outcome == SSH_OK) {
    known.key.reset(std::exchange(entry->publickey, nullptr));
    ssh_knownhosts_entry_free(entry);
  }
  return outcome != SSH_AGAIN;
}

// Adds a line's key or mark if the line's patterns match the name. `known` has the line's position.
void add_line(KnownHostKeys& found, const std::string& name, std::string_view line,
              KnownHostKey known) {
  std::string_view words = trim(line);
  std::string_view mark;
  if (words.starts_with('@')) mark = words.substr(0, std::min(words.find(' '), words.size()));
  words = trim(words.substr(mark.size()));
  if (words.empty() || words[0] == '#' || !read_key(known, name, words)) return;
  const bool is_revoked = mark == "@revoked";
  const bool is_authority = !mark.empty() && !is_revoked;
  if (is_authority) found.authority_in = known.place;
  // A marked line that libssh cannot parse may be about this host.
  if (is_authority || (is_revoked && !known.key)) found.marked_in = known.place;
  if (!known.key || is_authority) return;
  (is_revoked ? found.revoked : found.keys).push_back(std::move(known));
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
      std::replace(text.begin(), text.end(), '\t', ' ');  // libssh splits a line only at spaces
      add_line(found, name, text, {nullptr, cat(file, ":", line), file});
    }
  }
  return found;
}

KnownHost find_known_host(const SshSettings& settings) {
  KnownHost known;
  if (!libssh().ok()) return known;
  std::vector<std::string> files = settings.user_known_hosts_files;
  files.insert(files.end(), settings.global_known_hosts_files.begin(),
               settings.global_known_hosts_files.end());
  // HostKeyAlias names only the key, without a port.
  const bool has_alias = !settings.host_key_alias.empty();
  known.name =
      has_alias ? settings.host_key_alias : known_hosts_name(settings.host_name, settings.port);
  known.exact = find_known_hosts(known.name, files);
  if (!has_alias && settings.port != 22) {
    known.portless = find_known_hosts(known_hosts_name(settings.host_name, 22), files);
  }
  return known;
}

Status check_host_key(const SshLogin& login, const KnownHost& known, ssh_key key) {
  const std::string shown = fingerprint_of(key);
  for (const KnownHostKeys* each : {&known.exact, &known.portless}) {
    const KnownHostKey* line = find(each->revoked, key);
    if (line == nullptr) continue;
    return permission_denied(cat("its host key ", shown, " is marked as revoked in ", line->place,
                                 ": somebody may be listening in, or the host needs a new key"));
  }
  if (find(known.exact.keys, key) != nullptr) return {};
  // Treat a key of another type as changed too: an attacker may choose the type.
  if (!known.exact.keys.empty()) {
    const KnownHostKey& other = known.exact.keys[0];
    return permission_denied(
        cat("its host key has changed: it shows ", shown, ", and ", other.place,
            " has another; somebody may be listening in, or the host was installed anew: then run "
            "ssh-keygen -f ",
            other.file, " -R ", shell_quote(known.name)));
  }
  // A key known without a port is valid for every port.
  if (find(known.portless.keys, key) != nullptr) return {};
  const std::string refusal = refusal_of_new_key(login, known.exact.authority_in);
  if (!refusal.empty()) {
    return permission_denied(cat("its host key is unknown (", shown, ")", refusal));
  }
  report_new_key(login, shown, add_to_users_file(login, known.name, key));
  return {};
}

}  // namespace hvd::launcher
