#include "launcher/spawn/ssh/ssh_query.h"

#include <array>
#include <optional>

#include "base/log/log.h"
#include "base/text.h"
#include "launcher/spawn/child_process.h"
#include "launcher/spawn/name_lookup.h"
#include "net/notification.h"

namespace hvd::launcher {
namespace {

constexpr size_t kOutputLimit = 1 << 20;

// Returns the messages of ssh without its debug messages.
std::string complaint_of(std::string_view output) {
  std::vector<std::string> lines;
  for (const std::string& line : split(output, '\n')) {
    if (line.starts_with("debug1: ") || line.starts_with("OpenSSH_")) continue;
    if (!trim(line).empty()) lines.push_back(printable(trim(line)));
  }
  return join(lines, "; ");
}

}  // namespace

struct SshQuery::Answer {
  SshSettings settings;
  bool is_for_all_hosts = false;
};

struct SshQuery::Group {
  explicit Group(const net::asio::any_io_executor& executor)
      : turns(std::make_shared<net::Turns>(executor)) {}

  const std::shared_ptr<net::Turns> turns;
  std::optional<Answer> first;
};

net::Task<Result<SshSettings>> SshQuery::settings_of(const SpawnTarget& target) {
  auto& known = groups_[{target.user, target.port, target.identity_file}];
  if (!known) known = std::make_shared<Group>(co_await net::asio::this_coro::executor);
  const std::shared_ptr<Group> group = known;
  if (!group->first) {
    const auto turn = co_await group->turns->take();
    if (!turn) co_return aborted("the query to ssh was cancelled");
    if (!group->first) {
      auto answer = co_await ask(target);
      if (!answer.ok()) co_return answer.status();
      group->first = *answer;
      co_return answer->settings;
    }
  }
  if (group->first->is_for_all_hosts && is_canonical_name(target.host)) {
    SshSettings settings = group->first->settings;
    settings.host_name = target.host;
    co_return settings;
  }
  auto answer = co_await ask(target);
  if (!answer.ok()) co_return answer.status();
  co_return answer->settings;
}

net::Task<Result<SshQuery::Answer>> SshQuery::ask(const SpawnTarget& target) const {
  ChildCommand child;
  // With -v, ssh names the files that it reads.
  // With ForkAfterAuthentication, ssh requires a command.
  child.arguments = {"ssh", "-v", "-G", "-T", "-o", "RemoteCommand=none"};
  for (std::string& flag : ssh_flags(target, user_)) child.arguments.push_back(std::move(flag));
  child.arguments.insert(child.arguments.end(), {"--", target.host, "true"});
  child.joins_errors = true;
  child.end = ChildEnd::kTerminate;
  const auto process = ChildProcess::start(co_await net::asio::this_coro::executor, child);
  if (!process.ok()) {
    if (process.status().code() != Code::kNotFound) co_return process.status();
    co_return without_ssh(target, "this machine has no ssh program");
  }
  std::string output;
  std::array<std::byte, 4096> buffer;
  while (output.size() < kOutputLimit) {
    const auto size = co_await (*process)->read_some(buffer);
    if (!size.ok()) co_return size.status();
    if (*size == 0) break;
    output += as_text({buffer.data(), *size});
  }
  auto settings = parse_ssh_settings(output);
  if (!settings) {
    const std::string complaint = complaint_of(output);
    // Another ssh, for example dropbear's, supports neither -G nor OpenSSH's configuration.
    if (output.find("OpenSSH_") == std::string::npos) {
      co_return without_ssh(target, cat("the ssh program is not OpenSSH's: ", complaint));
    }
    co_return failed_precondition(cat("ssh does not accept its configuration: ", complaint));
  }
  // ssh itself parses a name like 28 as an address.
  if (settings->host_name == address_of_number(target.host)) settings->host_name = target.host;
  Answer answer{*std::move(settings), true};
  for (const std::string& file : configuration_files(output)) {
    const auto text = read_ssh_file(file);
    if (!text || depends_on_host(*text)) answer.is_for_all_hosts = false;
    if (!text || asks_about_new_keys(*text)) answer.settings.asks_about_new_keys = true;
  }
  co_return answer;
}

SshQuery::Answer SshQuery::without_ssh(const SpawnTarget& target, const std::string& why) const {
  Answer answer{default_ssh_settings(target.host, target.user.empty() ? user_.name : target.user),
                true};
  if (target.port != 0) answer.settings.port = target.port;
  std::string unread;
  for (const std::string& file : {user_.directory + "/config", user_.system_config}) {
    if (read_ssh_file(file)) unread += cat(unread.empty() ? "" : " and ", file);
  }
  // A configuration that the launcher cannot read may require strict checking.
  if (!unread.empty()) answer.settings.strict_host_key_checking = "unread";
  log::info(cat(why, ": hosts are reached by ssh's defaults and the flags -p and -i",
                unread.empty()
                    ? ""
                    : cat(", unknown host keys are refused, and ", unread, " does not count")));
  return answer;
}

}  // namespace hvd::launcher
