#include "launcher/spawn/ssh_spawner.h"

#include <glob.h>

#include <fstream>
#include <iterator>
#include <optional>

#include "base/log.h"
#include "base/text.h"
#include "launcher/spawn/known_hosts.h"
#include "launcher/spawn/ssh_session.h"
#include "launcher/spawn/system_ssh.h"

namespace hvd::launcher {
namespace {

std::optional<std::string> read_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) return {};
  return std::string(std::istreambuf_iterator<char>(in), {});
}

// The files that an Include of a file in `directory` means.
std::vector<std::string> read_included(std::string_view pattern, const SshUser& user,
                                       const std::string& directory) {
  std::string path(pattern);
  if (path.starts_with("~/")) path.replace(0, 1, user.home);
  if (!path.starts_with('/')) path.insert(0, directory + "/");
  std::vector<std::string> texts;
  glob_t found{};
  if (::glob(path.c_str(), 0, nullptr, &found) == 0) {
    for (size_t i = 0; i < found.gl_pathc; ++i) {
      if (auto text = read_file(found.gl_pathv[i])) texts.push_back(std::move(*text));
    }
  }
  ::globfree(&found);
  return texts;
}

}  // namespace

SshConfig SshSpawner::config_of(const SpawnTarget& target) const {
  const SshConfigQuery query{target.host, target.user, user_.name};
  // A relative Include is relative to ~/.ssh in the user's file and to /etc/ssh in the system's;
  // the latter has absolute ones in practice.
  const SshConfigSource include = [this](std::string_view pattern) {
    auto texts = read_included(pattern, user_, user_.directory);
    if (texts.empty()) texts = read_included(pattern, user_, "/etc/ssh");
    return texts;
  };
  std::vector<std::string> files;
  for (const std::string& path : {user_.directory + "/config", user_.system_config}) {
    if (auto text = read_file(path)) files.push_back(std::move(*text));
  }
  SshConfig config = read_ssh_config(files, query, include);
  if (!config.beyond_libssh.empty()) return config;

  if (config.known_hosts_files.size() > 1 ||
      (!config.known_hosts_files.empty() && to_lower(config.known_hosts_files[0]) == "none")) {
    config.beyond_libssh = "UserKnownHostsFile with several files or none";
  }
  for (const std::string& path :
       {user_.directory + "/known_hosts", std::string("/etc/ssh/ssh_known_hosts")}) {
    const auto text = read_file(path);
    if (text && (has_marked_key(*text, target.host) || has_marked_key(*text, config.host_name))) {
      config.beyond_libssh = cat("a @cert-authority or @revoked line in ", path);
    }
  }
  return config;
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
  const SshLogin login{target, config_of(target), user_};

  std::string beyond_libssh = login.config.beyond_libssh;
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
  if (!shell) {
    log::info(cat(target.host, ": by the system's ssh instead of libssh, because of ",
                  beyond_libssh));
    on_stage(SpawnStage::kAuthenticate);
    shell = std::make_unique<SystemSsh>(login);
  }
  auto stream = co_await start_agent(*shell, *agent, target.agent_dir, on_stage);
  // A refusal by libssh is the better sentence: it names the keys.
  if (!stream.ok() && by_libssh.code() == Code::kPermissionDenied) co_return by_libssh;
  co_return stream;
}

}  // namespace hvd::launcher
