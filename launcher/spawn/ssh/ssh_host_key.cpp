#include <algorithm>

#include "base/log/log.h"
#include "launcher/spawn/ssh/ssh_connection.h"

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

bool holds(const KnownHostKeys& known, ssh_key key) {
  return std::any_of(known.keys.begin(), known.keys.end(), [&](const KnownHostKey& each) {
    return ssh_key_cmp(each.key.get(), key, SSH_KEY_CMP_PUBLIC) == 0;
  });
}

Status changed_host_key(const KnownHostKey& known, const std::string& name,
                        const std::string& fingerprint) {
  return permission_denied(
      cat("its host key has changed: it shows ", fingerprint, ", and ", known.file, ":", known.line,
          " has another; somebody may be listening in, or the host was installed anew: then run "
          "ssh-keygen -f ",
          known.file, " -R ", shell_quote(name)));
}

}  // namespace

// The order of OpenSSH's questions: a key that is known without the port opens the host at any.
Status SshConnection::check_host_key(const SshLogin& login) {
  ssh_key key = nullptr;
  if (ssh_get_server_publickey(session_.get(), &key) != SSH_OK) {
    return unavailable(cat("it showed no host key: ", error()));
  }
  const KeyPtr owned(key);
  if (holds(known_, key)) return {};
  for (const KnownHostKey& known : known_.keys) {
    if (ssh_key_type(known.key.get()) == ssh_key_type(key)) {
      return changed_host_key(known, key_name_, fingerprint_of(key));
    }
  }
  if (holds(known_portless_, key)) return {};
  return unknown_host_key(login, key);
}

Status SshConnection::unknown_host_key(const SshLogin& login, ssh_key key) {
  const SshSettings& settings = login.settings;
  const std::string fingerprint = fingerprint_of(key);
  const std::string unknown = cat("its host key is unknown (", fingerprint, ")");
  const std::string destination = ssh_destination(login.target);
  const std::string& policy = settings.strict_host_key_checking;
  if (policy == "unread") {
    return permission_denied(
        cat(unknown,
            ", and without an ssh program nothing here can read what "
            "the ssh configuration says about that: install OpenSSH's client"));
  }
  if (policy == "true" || policy == "yes") {
    return permission_denied(cat(unknown,
                                 " and StrictHostKeyChecking is yes: connect once with "
                                 "ssh -o StrictHostKeyChecking=ask ",
                                 destination));
  }
  if (policy == "ask" && settings.asks_about_new_keys) {
    return permission_denied(cat(unknown,
                                 " and StrictHostKeyChecking is ask, which horovodrun "
                                 "never does: connect once with ssh ",
                                 destination, ", or set it to accept-new"));
  }
  Status added = failed_precondition("UserKnownHostsFile is none");
  char* text = nullptr;
  if (!settings.user_known_hosts_files.empty() &&
      ssh_pki_export_pubkey_base64(key, &text) == SSH_OK) {
    const TextPtr base64(text);
    added = append_known_host(
        settings.user_known_hosts_files[0],
        cat(key_name_, " ", ssh_key_type_to_char(ssh_key_type(key)), " ", base64.get(), "\n"));
  }
  log::warning(cat("host ", login.target.host, ": its host key is new (", fingerprint, ") and was ",
                   added.ok() ? cat("added to ", settings.user_known_hosts_files[0])
                              : cat("accepted, but not remembered: ", added.message())));
  return {};
}

}  // namespace hvd::launcher
