#include "launcher/spawn/ssh/ssh_spawner.h"

#include <unistd.h>

#include "base/log/log.h"
#include "base/settings.h"
#include "base/text.h"
#include "launcher/spawn/ssh/new_host_key.h"
#include "launcher/spawn/ssh/ssh_session.h"
#include "launcher/spawn/ssh/system_ssh.h"

namespace hvd::launcher {
namespace {

// Expands the file names of the settings to paths.
void expand(std::vector<std::string>& paths, SshLogin& login) {
  for (std::string& path : paths) {
    auto expanded = expand_ssh_path(path, login);
    if (expanded)
      path = *std::move(expanded);
    else
      login.settings.beyond_libssh = cat("a token in '", path, "'");
  }
}

// Returns the socket of the ssh agent, "none", or nothing for SSH_AUTH_SOCK.
std::string agent_socket(const std::string& written, SshLogin& login) {
  const auto variable = [](const std::string& name) {
    return environment_variable(name).value_or("");
  };
  if (written.empty() || written == "none") return written;
  if (written == "SSH_AUTH_SOCK") return variable(written);
  if (written.starts_with('$') && !written.starts_with("${")) return variable(written.substr(1));
  std::vector<std::string> paths = {written};
  expand(paths, login);
  return paths[0];
}

// The system's ssh refuses with "a: Permission denied (publickey,password).".
bool takes_passwords(const std::string& refusal) {
  const size_t methods = refusal.find("Permission denied (");
  if (methods == std::string::npos) return false;
  const std::string offered = refusal.substr(methods, refusal.find(')', methods) - methods);
  return offered.find("password") != std::string::npos ||
         offered.find("keyboard-interactive") != std::string::npos;
}

}  // namespace

net::Task<Result<SshLogin>> SshSpawner::login_to(const SpawnTarget& target) {
  auto settings = co_await query_.settings_of(target);
  if (!settings.ok()) co_return settings.status();
  SshLogin login{target, *std::move(settings), user_};
  std::vector<std::string>& keys = login.settings.identity_files;
  // ssh -G lists the default keys, even if they do not exist. It omits a key that the user named
  // and that does not exist.
  const std::string usual = user_.home + "/.ssh/id_";
  expand(keys, login);
  std::erase_if(keys, [&](const std::string& key) {
    return key.starts_with(usual) && ::access(key.c_str(), F_OK) != 0;
  });
  if (!target.identity_file.empty() && (keys.empty() || keys[0] != target.identity_file)) {
    keys.insert(keys.begin(), target.identity_file);
  }
  expand(login.settings.user_known_hosts_files, login);
  expand(login.settings.global_known_hosts_files, login);
  login.settings.identity_agent = agent_socket(login.settings.identity_agent, login);
  co_return login;
}

std::string SshSpawner::try_command(const SpawnTarget& target) const {
  return ssh_try_command(target);
}

Result<std::shared_ptr<const AgentFile>> SshSpawner::agent_file(const std::string& path) {
  if (const auto known = agents_.find(path); known != agents_.end()) return known->second;
  HVD_ASSIGN_OR_RETURN(auto file, AgentFile::load(path));
  agents_.emplace(path, file);
  return file;
}

net::Task<Result<std::unique_ptr<Duplex>>> SshSpawner::spawn(
    const SpawnTarget& target, std::function<void(SpawnStage)> on_stage) {
  auto agent = agent_file(target.agent_path);
  if (!agent.ok()) co_return agent.status();
  on_stage(SpawnStage::kConfigure);
  const auto found = co_await login_to(target);
  if (!found.ok()) co_return found.status();
  const SshLogin& login = *found;

  std::string beyond_libssh = login.settings.beyond_libssh;
  Status by_libssh;
  std::unique_ptr<RemoteShell> shell;
  if (beyond_libssh.empty()) {
    auto session = co_await SshSession::open(login, on_stage, beyond_libssh);
    if (session.ok()) {
      shell = std::move(*session);
    } else if (beyond_libssh.empty()) {
      co_return session.status();
    } else {
      by_libssh = session.status();
    }
  }
  std::string refusal;
  if (!shell) {
    log::info(
        cat(target.host, ": by the system's ssh instead of libssh, because of ", beyond_libssh));
    on_stage(SpawnStage::kAuthenticate);
    refusal = refusal_of_new_key(login, SshSession::authority_of(login.settings));
    shell = std::make_unique<SystemSsh>(login, refusal.empty(), beyond_libssh);
  }
  auto stream = co_await start_agent(*shell, *agent, target.agent_dir, on_stage);
  // The refusal by libssh is the better message: it names the keys.
  if (!stream.ok() && by_libssh.code() == Code::kPermissionDenied) co_return by_libssh;
  if (!stream.ok() && refused_new_key(stream.status().message())) {
    co_return permission_denied(
        cat(stream.status().message(), "; its host key is unknown", refusal));
  }
  if (!stream.ok() && takes_passwords(stream.status().message())) {
    const bool takes_keys = stream.status().message().find("publickey") != std::string::npos;
    co_return permission_denied(
        cat(stream.status().message(), "; ", password_advice(target, takes_keys)));
  }
  co_return stream;
}

}  // namespace hvd::launcher
