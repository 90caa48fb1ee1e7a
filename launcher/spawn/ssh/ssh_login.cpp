#include "launcher/spawn/ssh/ssh_login.h"

#include <pwd.h>
#include <unistd.h>

#include <array>
#include <ctime>
#include <fstream>
#include <iterator>

#include "base/process/spawn.h"
#include "base/settings.h"
#include "base/text.h"

namespace hvd::launcher {
namespace {

constexpr double kKeygenSeconds = 5;

// Returns the local time in ssh-keygen's format: later times compare greater as text.
std::string local_time_now() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  ::localtime_r(&now, &parts);
  std::array<char, 32> text{};
  return {text.data(), std::strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%S", &parts)};
}

}  // namespace

SshUser SshUser::current() {
  SshUser user;
  if (const passwd* entry = ::getpwuid(::geteuid()); entry != nullptr) {
    user.name = entry->pw_name;
    user.home = entry->pw_dir;
  } else {
    user.name = std::to_string(::geteuid());
    user.home = environment_variable("HOME").value_or("/");
  }
  user.directory = user.home + "/.ssh";
  user.system_config = "/etc/ssh/ssh_config";
  return user;
}

std::vector<std::string> ssh_flags(const SpawnTarget& target, const SshUser& user) {
  std::vector<std::string> flags;
  if (user.directory != SshUser::current().directory) flags = {"-F", user.directory + "/config"};
  const auto add = [&](const char* flag, const std::string& value) {
    flags.insert(flags.end(), {flag, value});
  };
  if (!target.user.empty()) add("-l", target.user);
  if (target.port != 0) add("-p", std::to_string(target.port));
  if (!target.identity_file.empty()) add("-i", target.identity_file);
  return flags;
}

std::string ssh_destination(const SpawnTarget& target) {
  std::string words;
  if (target.port != 0) words += cat("-p ", target.port, " ");
  if (!target.identity_file.empty()) words += cat("-i ", shell_quote(target.identity_file), " ");
  return words + (target.user.empty() ? "" : target.user + "@") + target.host;
}

std::string ssh_try_command(const SpawnTarget& target) {
  return cat("ssh ", ssh_destination(target), " true");
}

std::string expired_certificate(const SshLogin& login) {
  for (const std::string& file : login.settings.certificate_files) {
    const auto shown =
        output_of({.arguments = {"ssh-keygen", "-L", "-f", file}, .environment = environment()},
                  Deadline::after_seconds(kKeygenSeconds));
    const std::string end = shown.ok() ? end_of_validity(*shown) : "";
    if (!end.empty() && end < local_time_now()) {
      return cat("the certificate ", file, " has expired at ", end, ": get a new one");
    }
  }
  return {};
}

std::string password_advice(const SpawnTarget& target, bool accepts_keys) {
  const std::string copy = cat("run ssh-copy-id ", ssh_destination(target), " once");
  if (accepts_keys) return cat("horovodrun sends no password: ", copy);
  return cat(
      "horovodrun sends no password: set PubkeyAuthentication yes in the host's sshd_config, "
      "then ",
      copy);
}

std::optional<std::string> expand_ssh_path(const std::string& path, const SshLogin& login) {
  SshTokens tokens;
  tokens.home = login.user.home;
  tokens.local_user = login.user.name;
  tokens.remote_user = login.settings.user;
  tokens.remote_host = login.settings.host_name;
  tokens.original_host = login.target.host;
  tokens.port = login.settings.port;
  tokens.uid = static_cast<int>(::geteuid());
  return expand_ssh_path(
      path, tokens, [](std::string_view name) { return environment_variable(name).value_or(""); });
}

std::optional<std::string> read_ssh_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) return {};
  return std::string(std::istreambuf_iterator<char>(in), {});
}

}  // namespace hvd::launcher
