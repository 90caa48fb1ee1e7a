#include "launcher/spawn/ssh/ssh_spawner.h"

#include <unistd.h>

#include "base/log/log.h"
#include "base/settings.h"
#include "base/text.h"
#include "launcher/spawn/ssh/hang_up.h"
#include "launcher/spawn/ssh/new_host_key.h"
#include "launcher/spawn/ssh/ssh_session.h"
#include "launcher/spawn/ssh/system_ssh.h"

namespace hvd::launcher {
namespace {

void expand(std::vector<std::string>& paths, SshLogin& login) {
  for (std::string& path : paths) {
    auto expanded = expand_ssh_path(path, login);
    if (expanded)
      path = *std::move(expanded);
    else
      login.settings.beyond_libssh = cat("a token in '", path, "'");
  }
}

// Returns the socket of the ssh agent, or "none"; empty: libssh reads SSH_AUTH_SOCK.
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

// The system's ssh prints "a: Permission denied (publickey,password)." if the host refuses the login.
constexpr std::string_view kRefused = "Permission denied (";

bool is_refusal(const std::string& message) { return message.find(kRefused) != std::string::npos; }

// Returns libssh's error, which names the keys. Appends ssh's error if ssh failed for a reason other than a refusal.
Status joined(const Status& by_libssh, const Status& by_ssh) {
  if (by_ssh.code() != Code::kFailedPrecondition || is_refusal(by_ssh.message())) return by_libssh;
  return permission_denied(cat(by_libssh.message(), "; ", by_ssh.message()));
}

bool takes_passwords(const std::string& refusal) {
  const size_t methods = refusal.find(kRefused);
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
  // `ssh -G` lists the default keys even if they do not exist, but omits a missing key that the user
  // named.
  const std::string usual = user_.home + "/.ssh/id_";
  expand(keys, login);
  std::erase_if(keys, [&](const std::string& key) {
    return key.starts_with(usual) && ::access(key.c_str(), F_OK) != 0;
  });
  if (!target.identity_file.empty() && (keys.empty() || keys[0] != target.identity_file)) {
    keys.insert(keys.begin(), target.identity_file);
  }
  // ssh also loads the certificate next to a key.
  std::vector<std::string>& certificates = login.settings.certificate_files;
  expand(certificates, login);
  for (const std::string& key : keys) {
    const std::string certificate = key + "-cert.pub";
    if (::access(certificate.c_str(), F_OK) != 0) continue;
    certificates.push_back(certificate);
    if (login.settings.beyond_libssh.empty()) {
      login.settings.beyond_libssh = cat("the certificate ", certificate);
    }
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

// A host that has refused libssh may accept the system's ssh. For each user and set of keys, the first refused login
// tests this. The other hosts wait for the result, since servers count refused logins by client address.
struct SshSpawner::Refusal {
  explicit Refusal(const net::asio::any_io_executor& executor)
      : turns(std::make_shared<net::Turns>(executor)) {}

  const std::shared_ptr<net::Turns> turns;
  void learn(const Status& of_ssh) {
    if (of_ssh.ok() || is_refusal(of_ssh.message())) is_cured = of_ssh.ok();
  }

  // True if the system's ssh could log in; unset before its first attempt.
  std::optional<bool> is_cured;
};

net::Task<Result<std::unique_ptr<Duplex>>> SshSpawner::spawn(
    const SpawnTarget& target, std::function<void(SpawnStage)> on_stage) {
  auto agent = agent_file(target.agent_path);
  if (!agent.ok()) co_return agent.status();
  on_stage(SpawnStage::kConfigure);
  const auto login = co_await login_to(target);
  if (!login.ok()) co_return login.status();
  Retries retries(retry_after_);
  for (;;) {
    bool is_hung_up = false;
    auto stream = co_await connect(*login, *agent, on_stage, is_hung_up);
    if (stream.ok() || !is_hung_up) co_return stream;
    on_stage(SpawnStage::kRetry);
    const bool has_waited = co_await retries.wait();
    if (!has_waited) co_return stream;
  }
}

net::Task<SshSpawner::Stream> SshSpawner::connect(SshLogin login,
                                                  std::shared_ptr<const AgentFile> agent,
                                                  const OnStage& on_stage, bool& is_hung_up) {
  const SshSettings& settings = login.settings;
  auto& known = refusals_[cat(settings.user, '\n', join(settings.identity_files, "\n"))];
  if (!known) known = std::make_shared<Refusal>(co_await net::asio::this_coro::executor);
  const std::shared_ptr<Refusal> refusal = known;
  const std::string after_refusal = "a refusal by a host, which may need what libssh lacks";
  SshFailure failure{.beyond_libssh = settings.beyond_libssh};
  if (failure.beyond_libssh.empty() && refusal->is_cured.value_or(false)) {
    failure.beyond_libssh = after_refusal;
  }
  Status by_libssh;
  std::optional<net::Turns::Turn> turn;
  if (failure.beyond_libssh.empty()) {
    auto session = co_await SshSession::open(login, on_stage, failure);
    if (session.ok()) {
      co_return co_await start_agent(**session, agent, login.target.agent_dir, on_stage);
    }
    by_libssh = session.status();
    is_hung_up = failure.is_hung_up;
    if (failure.is_refusal) {
      auto mine = co_await refusal->turns->take();
      if (!mine) co_return aborted("the login was cancelled");
      if (!refusal->is_cured) turn.emplace(*std::move(mine));
      if (refusal->is_cured.value_or(true)) failure.beyond_libssh = after_refusal;
    }
    if (failure.beyond_libssh.empty()) co_return by_libssh;
  }
  auto stream = co_await connect_by_system_ssh(login, agent, on_stage, failure.beyond_libssh);
  if (turn) refusal->learn(stream.status());
  is_hung_up = shows_hang_up(stream.status().message());
  if (stream.ok() || by_libssh.code() != Code::kPermissionDenied) co_return stream;
  co_return joined(by_libssh, stream.status());
}

net::Task<SshSpawner::Stream> SshSpawner::connect_by_system_ssh(
    SshLogin login, std::shared_ptr<const AgentFile> agent, const OnStage& on_stage,
    std::string reason) {
  const SpawnTarget& target = login.target;
  log::info(cat(target.host, ": by the system's ssh instead of libssh, because of ", reason));
  on_stage(SpawnStage::kAuthenticate);
  const std::string& jump = login.settings.proxy_jump;
  if (!jump.empty() && jump != "none" && target.may_share) {
    auto command = co_await jumps_.proxy_command(jump);
    if (!command.ok()) co_return explain_hang_up(command.status());
    login.proxy_command = *std::move(command);
  }
  const std::string refusal = refusal_of_new_key(login, SshSession::authority_of(login.settings));
  SystemSsh shell(login, refusal.empty(), std::move(reason));
  auto stream = co_await start_agent(shell, std::move(agent), target.agent_dir, on_stage);
  if (stream.ok()) co_return stream;
  const std::string message = stream.status().message();
  if (refused_new_key(message)) {
    co_return permission_denied(cat(message, "; its host key is unknown", refusal));
  }
  if (message.find("Stdio forwarding request failed") != std::string::npos) {
    co_return unavailable(cat("its jump host ", printable(jump), " cannot connect to ",
                              login.settings.host_name, " port ", login.settings.port, "; run '",
                              ssh_try_command(target), "' to see why"));
  }
  if (!is_refusal(message)) co_return explain_hang_up(stream.status());
  if (const std::string expired = expired_certificate(login); !expired.empty()) {
    co_return permission_denied(cat(message, "; ", expired));
  }
  if (takes_passwords(message)) {
    const bool takes_keys = message.find("publickey") != std::string::npos;
    co_return permission_denied(cat(message, "; ", password_advice(target, takes_keys)));
  }
  co_return stream;
}

}  // namespace hvd::launcher
