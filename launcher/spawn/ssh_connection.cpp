#include "launcher/spawn/ssh_connection.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>

#include "base/log.h"
#include "base/settings.h"
#include "launcher/spawn/connect_any.h"
#include "launcher/spawn/name_lookup.h"
#include "launcher/spawn/ssh_stream.h"

namespace hvd::launcher {

namespace asio = net::asio;

namespace {

// libssh reads 4 KiB at a time; other sessions get their turn after so many.
constexpr int kReadsAtOnce = 64;

void log_of_libssh(int, const char* function, const char* text, void*) {
  log::debug(cat("libssh: ", function, ": ", text));
}

}  // namespace

std::string libssh_option(ssh_session session, ssh_options_e option) {
  char* value = nullptr;
  if (ssh_options_get(session, option, &value) != SSH_OK) return {};
  return TextPtr(value).get();
}

void SshConnection::settle() {
  if (!session_ || !event_) return;
  for (int i = 0; i < kReadsAtOnce; ++i) {
    const uint64_t before = counters_.in_bytes + counters_.out_bytes;
    if (ssh_event_dopoll(event_.get(), 0) == SSH_ERROR) break;
    if (counters_.in_bytes + counters_.out_bytes == before) break;
  }
  for (SshStream* stream : streams_) stream->drain_errors();
  const uint64_t bytes = counters_.in_bytes + counters_.out_bytes;
  const bool broken = is_broken();
  // libssh learns that the socket takes more without sending anything; who writes waits for that.
  const bool output = has_output();
  if (bytes != seen_bytes_ || broken != seen_broken_ || output != seen_output_) {
    seen_bytes_ = bytes;
    seen_broken_ = broken;
    seen_output_ = output;
    ++epoch_;
    changed_.notify();
  }
  arm();
}

void SshConnection::arm() {
  using Descriptor = asio::posix::stream_descriptor;
  if (!watch_.is_open() || is_broken()) return;
  const auto woken = [weak = weak_from_this()](bool SshConnection::*flag) {
    return [weak, flag](const net::error_code& error) {
      const auto self = weak.lock();
      if (!self) return;
      (*self).*flag = false;
      if (!error) self->settle();
    };
  };
  if (!std::exchange(waits_to_read_, true)) {
    watch_.async_wait(Descriptor::wait_read, woken(&SshConnection::waits_to_read_));
  }
  if (has_output() && !std::exchange(waits_to_write_, true)) {
    watch_.async_wait(Descriptor::wait_write, woken(&SshConnection::waits_to_write_));
  }
}

Status SshConnection::configure(const SshLogin& login, std::string& beyond_libssh) {
  if (!session_ || !event_) return internal_error("libssh has no memory for a session");
  ssh_session session = session_.get();
  ssh_set_log_callback(log_of_libssh);
  ssh_set_blocking(session, 0);
  ssh_set_counters(session, &counters_, nullptr);
  const SpawnTarget& target = login.target;
  const int strict = 1;  // unknown keys are our decision
  bool ok = ssh_options_set(session, SSH_OPTIONS_HOST, target.host.c_str()) == SSH_OK;
  ok = ok && ssh_options_set(session, SSH_OPTIONS_SSH_DIR, login.user.directory.c_str()) == SSH_OK;
  if (!target.user.empty()) {
    ok = ok && ssh_options_set(session, SSH_OPTIONS_USER, target.user.c_str()) == SSH_OK;
  }
  ok = ok && ssh_options_parse_config(session, nullptr) == SSH_OK;
  ok = ok && ssh_options_set(session, SSH_OPTIONS_STRICTHOSTKEYCHECK, &strict) == SSH_OK;
  if (ok && target.port != 0) {
    ok = ssh_options_set(session, SSH_OPTIONS_PORT, &target.port) == SSH_OK;
  }
  if (!ok) {
    beyond_libssh = "a host name or a configuration that libssh does not accept";
    return failed_precondition(cat("libssh does not accept the host name or the configuration: ",
                                   error()));
  }
  original_host_ = target.host;
  host_ = libssh_option(session, SSH_OPTIONS_HOST);
  user_ = libssh_option(session, SSH_OPTIONS_USER);
  if (user_.empty()) {
    user_ = login.user.name;
    ssh_options_set(session, SSH_OPTIONS_USER, user_.c_str());
  }
  unsigned port = 22;
  ssh_options_get_port(session, &port);
  port_ = static_cast<uint16_t>(port);
  const auto variable = [](std::string_view name) {
    return environment_variable(name).value_or("");
  };
  std::string known_hosts = login.user.directory + "/known_hosts";
  if (!login.config.known_hosts_files.empty()) {
    known_hosts = expand_ssh_path(login.config.known_hosts_files[0], tokens(login), variable);
  }
  ssh_options_set(session, SSH_OPTIONS_KNOWNHOSTS, known_hosts.c_str());
  const std::string& agent = login.config.identity_agent;
  if (!agent.empty() && agent != "none") {
    std::string path = expand_ssh_path(agent, tokens(login), variable);
    if (agent == "SSH_AUTH_SOCK") path = variable(agent);
    if (agent.starts_with('$') && !agent.starts_with("${")) path = variable(agent.substr(1));
    ssh_options_set(session, SSH_OPTIONS_IDENTITY_AGENT, path.c_str());
  }
  return {};
}

SshTokens SshConnection::tokens(const SshLogin& login) const {
  SshTokens tokens;
  tokens.home = login.user.home;
  tokens.local_user = login.user.name;
  tokens.remote_user = user_;
  tokens.remote_host = host_;
  tokens.original_host = original_host_;
  tokens.port = port_;
  tokens.uid = static_cast<int>(::geteuid());
  std::array<char, 256> name{};
  if (::gethostname(name.data(), name.size() - 1) == 0) tokens.local_host = name.data();
  return tokens;
}

net::Task<Status> SshConnection::connect(const SshLogin& login,
                                                  std::function<void(SpawnStage)> on_stage) {
  on_stage(SpawnStage::kResolve);
  auto addresses = co_await look_up(host_);
  if (!addresses.ok()) co_return addresses.status();
  const std::string& family = login.config.address_family;
  std::erase_if(*addresses, [&](const asio::ip::address& address) {
    return (family == "inet" && address.is_v6()) || (family == "inet6" && address.is_v4());
  });
  if (addresses->empty()) {
    co_return not_found(cat("the name '", host_, "' has no address of AddressFamily ", family));
  }

  on_stage(SpawnStage::kConnect);
  auto socket = co_await connect_any(std::move(*addresses), port_);
  if (!socket.ok()) co_return socket.status();
  net::error_code ignored;
  socket->set_option(asio::ip::tcp::no_delay(true), ignored);
  const int watched = ::fcntl(socket->native_handle(), F_DUPFD_CLOEXEC, 0);
  if (watched < 0) co_return system_error("cannot duplicate a socket", errno);
  watch_.assign(watched);
  const int fd = socket->release();
  ssh_session session = session_.get();
  ssh_options_set(session, SSH_OPTIONS_FD, &fd);
  // HostKeyAlias names the key alone, without a port.
  if (!login.config.host_key_alias.empty()) {
    const int standard_port = 22;
    ssh_options_set(session, SSH_OPTIONS_HOST, login.config.host_key_alias.c_str());
    ssh_options_set(session, SSH_OPTIONS_PORT, &standard_port);
    host_ = login.config.host_key_alias;
    port_ = standard_port;
  }

  bool is_watched = false;
  const auto outcome = co_await finish([&] {
    const int step = ssh_connect(session);
    // The socket can be polled by the event from the first call on.
    if (!std::exchange(is_watched, true)) ssh_event_add_session(event_.get(), session);
    return step;
  }, SSH_AGAIN);
  if (!outcome.ok()) co_return outcome.status();
  if (*outcome == SSH_OK) co_return Status();
  if (counters_.in_bytes == 0) {
    co_return unavailable(cat("what listens on port ", port_, " closed the connection without a "
                              "word (not an sshd, or its MaxStartups is reached)"));
  }
  // An sshd that has too many connections that are not logged in yet hangs up: with a reset, or after
  // a word that is no handshake.
  const std::string reason = error();
  const bool is_hung_up = reason.find("reset by peer") != std::string::npos ||
                          reason.find("disconnected") != std::string::npos;
  co_return unavailable(cat("the ssh handshake failed: ", reason,
                            is_hung_up ? " (the sshd's MaxStartups may be reached)" : ""));
}

}  // namespace hvd::launcher
