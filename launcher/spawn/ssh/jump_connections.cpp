#include "launcher/spawn/ssh/jump_connections.h"

#include <unistd.h>

#include <array>
#include <cstdlib>

#include "base/log/log.h"
#include "base/settings.h"
#include "base/text.h"
#include "launcher/spawn/child_process.h"

namespace hvd::launcher {
namespace {

// Runs ssh until the input of this script ends, at the latest with the launcher. Then removes the socket's folder.
constexpr char kKeepConnection[] =
    "folder=$1; shift; trap : HUP; exec 3<&0; (read -r line <&3; kill -HUP 0) & "
    "\"$@\" </dev/null 3<&-; code=$?; kill -HUP $! 2>/dev/null; rm -rf \"$folder\"; exit $code";

// Returns the path of a new folder that only this user can enter; empty on failure. The path is short, because the
// paths of sockets in the folder have a limit of 108 bytes.
std::string make_folder() {
  for (const std::string& parent :
       {environment_variable("XDG_RUNTIME_DIR").value_or(""), std::string("/tmp")}) {
    std::string folder = parent + "/horovod-ssh-XXXXXX";
    if (parent.starts_with('/') && folder.size() < 64 && ::mkdtemp(folder.data()) != nullptr) {
      return folder;
    }
  }
  return {};
}

// Runs a program to its end. Returns whether its exit code is 0.
net::Task<bool> succeeds(std::vector<std::string> arguments) {
  ChildCommand command;
  command.arguments = std::move(arguments);
  command.joins_errors = true;
  command.end = ChildEnd::kTerminate;
  const auto process = ChildProcess::start(co_await net::asio::this_coro::executor, command);
  if (!process.ok()) co_return false;
  std::array<std::byte, 512> buffer;
  for (;;) {
    const Result<size_t> size = co_await (*process)->read_some(buffer);
    if (!size.ok()) co_return false;
    if (*size == 0) co_return (*process)->exit_code() == 0;
  }
}

}  // namespace

struct JumpConnections::Connection {
  explicit Connection(const net::asio::any_io_executor& executor)
      : turns(std::make_shared<net::Turns>(executor)) {}

  const std::shared_ptr<net::Turns> turns;
  int tries = 0;
  Status status;  // result of the last try
  std::string command;
  std::unique_ptr<ChildProcess> ssh;  // null: the launcher has no connection of its own
};

JumpConnections::JumpConnections(SshUser user) : user_(std::move(user)) {}
JumpConnections::~JumpConnections() = default;

// Returns ssh's flags for `jump`: "a,me@b:22" leads through a to b.
std::vector<std::string> JumpConnections::flags_to(const std::string& jump) const {
  std::vector<std::string> flags = ssh_flags({}, user_);
  const size_t comma = jump.rfind(',');
  if (comma != std::string::npos) {
    flags.insert(flags.end(), {"-J", jump.substr(0, comma)});
  }
  const std::string last = comma == std::string::npos ? jump : jump.substr(comma + 1);
  flags.insert(flags.end(), {"--", "ssh://" + last});
  return flags;
}

net::Task<Result<std::string>> JumpConnections::proxy_command(std::string jump) {
  auto& known = connections_[jump];
  if (!known) known = std::make_shared<Connection>(co_await net::asio::this_coro::executor);
  const std::shared_ptr<Connection> connection = known;
  const int tries = connection->tries;
  const auto turn = co_await connection->turns->take();
  if (!turn) co_return aborted("the connection to the jump host was cancelled");
  const bool has_waited = connection->tries != tries;
  const bool has_ended = connection->ssh && connection->ssh->has_ended();
  if (!has_waited && (tries == 0 || has_ended || !connection->status.ok())) {
    connection->status = co_await open(*connection, jump);
    ++connection->tries;
  }
  if (!connection->status.ok()) co_return connection->status;
  co_return connection->command;
}

net::Task<Status> JumpConnections::open(Connection& connection, const std::string& jump) const {
  connection.ssh.reset();
  connection.command.clear();
  const std::vector<std::string> flags = flags_to(jump);
  std::vector<std::string> check = {"ssh", "-O", "check"};
  check.insert(check.end(), flags.begin(), flags.end());
  if (co_await succeeds(std::move(check))) co_return Status();
  const std::string folder = make_folder();
  if (folder.empty()) co_return Status();
  const std::string socket = folder + "/socket";
  ChildCommand command;
  // After the login, ssh listens at the control socket, and then runs the local command.
  command.arguments = {"/bin/sh",
                       "-c",
                       kKeepConnection,
                       "sh",
                       folder,
                       "ssh",
                       "-T",
                       "-x",
                       "-N",
                       "-M",
                       "-S",
                       socket,
                       "-o",
                       "BatchMode=yes",
                       "-o",
                       "ControlPersist=no",
                       "-o",
                       "RemoteCommand=none",
                       "-o",
                       "ClearAllForwardings=yes",
                       "-o",
                       "PermitLocalCommand=yes",
                       "-o",
                       "LocalCommand=echo"};
  command.arguments.insert(command.arguments.end(), flags.begin(), flags.end());
  command.end = ChildEnd::kTerminate;
  auto process = ChildProcess::start(co_await net::asio::this_coro::executor, command);
  if (!process.ok()) co_return Status();
  std::array<std::byte, 16> buffer;
  const Result<size_t> size = co_await (*process)->read_some(buffer);
  if (!size.ok()) co_return size.status();
  if (*size == 0) {
    co_return unavailable(
        cat("ssh cannot reach its jump host ", printable(jump), ": ", (*process)->last_words()));
  }
  log::info(cat("one connection to the jump host ", jump, " serves the hosts behind it"));
  connection.ssh = *std::move(process);
  std::vector<std::string> words = {"ssh", "-S", socket, "-o", "ControlMaster=no", "-W", "[%h]:%p"};
  words.insert(words.end(), flags.begin(), flags.end());
  for (std::string& word : words) {
    connection.command += cat(connection.command.empty() ? "" : " ", shell_quote(word));
  }
  co_return Status();
}

}  // namespace hvd::launcher
