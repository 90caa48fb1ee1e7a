#include "launcher/spawn/ssh/system_ssh.h"

#include <algorithm>

#include "base/log/log.h"
#include "base/text.h"
#include "launcher/spawn/child_process.h"
#include "launcher/spawn/name_lookup.h"
#include "launcher/spawn/ssh/new_host_key.h"

namespace hvd::launcher {
namespace {

constexpr std::string_view kShownKey = "debug1: Server host key: ";
constexpr std::string_view kAddedKey = "Warning: Permanently added '";
constexpr std::string_view kLostKey = "Failed to add the host to the list of known hosts";
// Messages of the levels below ERROR, down to DEBUG1. DEBUG1 is the first level that shows a key's fingerprint.
constexpr std::string_view kVerbose[] = {"debug1: ", "Authenticated to ", "Transferred: sent ",
                                         "Bytes per second: sent "};

}  // namespace

LastWords::Filter new_key_filter(const SshLogin& login) {
  return [login, fingerprint = std::string()](std::string_view line) mutable {
    if (line.starts_with(kShownKey)) fingerprint = printable(trim(line.substr(kShownKey.size())));
    const bool is_added = line.starts_with(kAddedKey);
    if (is_added || line.starts_with(kLostKey)) {
      // The ssh of ProxyJump prints its messages earlier, and shows no key.
      if (fingerprint.empty()) {
        log::warning(cat("host ", login.target.host, ": ssh: ", printable(trim(line))));
      } else {
        report_new_key(login, fingerprint,
                       is_added ? Status() : unavailable(printable(trim(line))));
      }
      return false;
    }
    return std::none_of(std::begin(kVerbose), std::end(kVerbose),
                        [&](std::string_view start) { return line.starts_with(start); });
  };
}

bool refused_new_key(std::string_view messages) {
  return messages.find(" host key is known for ") != std::string_view::npos;
}

net::Task<Result<std::unique_ptr<Duplex>>> SystemSsh::run(std::string command) {
  const std::string& host_name = login_.settings.host_name;
  if (!address_of_number(host_name).empty()) {
    co_return failed_precondition(cat("the ssh program, which is needed because of ", reason_,
                                      ", takes the name ", printable(host_name),
                                      " for an address; set HostName for it in ~/.ssh/config"));
  }
  ChildCommand child;
  // StrictHostKeyChecking no would also accept a changed or revoked key.
  child.arguments = {
      "ssh", "-T", "-x", "-o", "BatchMode=yes", "-o", "RemoteCommand=none", "-o",
      "ClearAllForwardings=yes", "-o",
      accepts_new_key_ ? "StrictHostKeyChecking=accept-new" : "StrictHostKeyChecking=yes", "-o",
      // With LogLevel ERROR, ssh hides "Connection closed by".
      accepts_new_key_ ? "LogLevel=DEBUG1" : "LogLevel=INFO"};
  if (!login_.proxy_command.empty()) {
    child.arguments.insert(child.arguments.end(), {"-o", "ProxyCommand=" + login_.proxy_command});
  }
  if (!login_.target.may_share) {
    child.arguments.insert(child.arguments.end(), {"-o", "ControlPath=none"});
  }
  // Removes settings for interactive use, which would close the link. An older ssh refuses unknown option names.
  if (login_.settings.has_session_type) {
    for (const char* option :
         {"StdinNull=no", "ForkAfterAuthentication=no", "SessionType=default"}) {
      child.arguments.insert(child.arguments.end(), {"-o", option});
    }
  }
  for (std::string& flag : ssh_flags(login_.target, login_.user)) {
    child.arguments.push_back(std::move(flag));
  }
  child.arguments.insert(child.arguments.end(), {"--", login_.target.host, std::move(command)});
  if (accepts_new_key_) child.filter = new_key_filter(login_);
  child.end = ChildEnd::kTerminate;
  const auto executor = co_await net::asio::this_coro::executor;
  Result<std::unique_ptr<ChildProcess>> process = ChildProcess::start(executor, child);
  if (!process.ok() && process.status().code() == Code::kNotFound) {
    co_return unavailable(
        cat("this machine has no ssh program, and libssh cannot replace it because of ", reason_,
            ": install OpenSSH's client"));
  }
  if (!process.ok()) co_return process.status();
  co_return std::unique_ptr<Duplex>(std::move(*process));
}

}  // namespace hvd::launcher
