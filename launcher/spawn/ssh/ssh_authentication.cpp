#include <unistd.h>

#include "base/settings.h"
#include "launcher/spawn/ssh/ssh_connection.h"

namespace hvd::launcher {
namespace {

std::string methods_text(int methods) {
  std::vector<std::string> names;
  if (methods & SSH_AUTH_METHOD_PUBLICKEY) names.push_back("publickey");
  if (methods & SSH_AUTH_METHOD_PASSWORD) names.push_back("password");
  if (methods & SSH_AUTH_METHOD_INTERACTIVE) names.push_back("keyboard-interactive");
  if (methods & SSH_AUTH_METHOD_HOSTBASED) names.push_back("hostbased");
  if (methods & SSH_AUTH_METHOD_GSSAPI_MIC) names.push_back("gssapi-with-mic");
  return join(names, ", ");
}

}  // namespace

net::Task<Result<int>> SshConnection::try_key_file(std::string path,
                                                   std::vector<std::string>& tried,
                                                   std::string& beyond_libssh) {
  if (::access(path.c_str(), F_OK) != 0) {
    tried.push_back(path + " (does not exist)");
    co_return SSH_AUTH_DENIED;
  }
  if (::access(path.c_str(), R_OK) != 0) {
    tried.push_back(path + " (not readable)");
    co_return SSH_AUTH_DENIED;
  }
  bool is_locked = false;
  const ssh_auth_callback ask = [](const char*, char*, size_t, int, int, void* locked) {
    *static_cast<bool*>(locked) = true;
    return -1;
  };
  ssh_key key = nullptr;
  const int read = ssh_pki_import_privkey_file(path.c_str(), nullptr, ask, &is_locked, &key);
  const KeyPtr owned(key);
  if (read != SSH_OK) {
    tried.push_back(path + (is_locked ? " (needs its passphrase: run ssh-add)"
                                      : " (not a private key that libssh can read)"));
    if (!is_locked) beyond_libssh = cat("libssh cannot read ", path);
    co_return SSH_AUTH_DENIED;
  }
  tried.push_back(path);
  co_return co_await finish(
      [&] { return ssh_userauth_publickey(session_.get(), nullptr, owned.get()); }, SSH_AUTH_AGAIN);
}

Status SshConnection::refused(const SshLogin& login, int outcome,
                              const std::vector<std::string>& tried) const {
  const std::string& user = login.settings.user;
  const int methods = ssh_userauth_list(session_.get(), nullptr);
  const std::string offered = methods_text(methods);
  if (outcome == SSH_AUTH_PARTIAL) {
    return permission_denied(cat("authentication of user ", user,
                                 " by key is not enough for it, "
                                 "it also asks for ",
                                 offered));
  }
  std::string ending;
  if (is_broken()) ending = cat("; it then closed the connection: ", error());
  if (methods & (SSH_AUTH_METHOD_PASSWORD | SSH_AUTH_METHOD_INTERACTIVE)) {
    ending += "; " + password_advice(login.target, (methods & SSH_AUTH_METHOD_PUBLICKEY) != 0);
  }
  return permission_denied(
      cat("authentication refused for user ", user, "; ",
          tried.empty() ? "found no key and no ssh-agent" : "tried " + join(tried, ", "),
          offered.empty() ? "" : "; it accepts ", offered, ending));
}

net::Task<Status> SshConnection::authenticate(const SshLogin& login, std::string& beyond_libssh) {
  std::vector<std::string> tried;
  const SshSettings& settings = login.settings;
  std::vector<std::string> files = settings.identity_files;
  const bool has_agent = settings.identity_agent != "none" &&
                         (!settings.identity_agent.empty() ||
                          !environment_variable("SSH_AUTH_SOCK").value_or("").empty());
  if (has_agent && !settings.identities_only) files.emplace_back();  // stands for its keys

  int outcome = SSH_AUTH_DENIED;
  std::string unreadable;
  for (const std::string& file : files) {
    Result<int> result = 0;
    if (file.empty()) {
      result = co_await finish([&] { return ssh_userauth_agent(session_.get(), nullptr); },
                               SSH_AUTH_AGAIN);
      tried.push_back("the keys of ssh-agent");
    } else {
      result = co_await try_key_file(file, tried, unreadable);
    }
    if (!result.ok()) co_return result.status();
    outcome = *result;
    if (outcome == SSH_AUTH_SUCCESS) co_return Status();
    if (outcome == SSH_AUTH_PARTIAL || is_broken()) break;
  }
  // Asks what it would accept, and finds the server that asks for nothing.
  if (outcome == SSH_AUTH_DENIED && ssh_userauth_list(session_.get(), nullptr) == 0) {
    const auto none =
        co_await finish([&] { return ssh_userauth_none(session_.get(), nullptr); }, SSH_AUTH_AGAIN);
    if (!none.ok()) co_return none.status();
    if (*none == SSH_AUTH_SUCCESS) co_return Status();
  }
  const int offered = ssh_userauth_list(session_.get(), nullptr);
  if (settings.has_control_path) beyond_libssh = "ControlPath";
  if (settings.identities_only && has_agent) beyond_libssh = "IdentitiesOnly with an ssh-agent";
  if (settings.has_gssapi && (offered & SSH_AUTH_METHOD_GSSAPI_MIC)) beyond_libssh = "GSSAPI";
  if (!unreadable.empty()) beyond_libssh = unreadable;
  co_return refused(login, outcome, tried);
}

}  // namespace hvd::launcher
