#include "launcher/spawn/ssh/ssh_connection.h"

#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <functional>

#include "base/log/log.h"
#include "launcher/spawn/connect_any.h"
#include "launcher/spawn/name_lookup.h"
#include "launcher/spawn/ssh/ssh_stream.h"

namespace hvd::launcher {

namespace asio = net::asio;

namespace {

// libssh reads 4 KiB at a time; other sessions get their turn after so many.
constexpr int kReadsAtOnce = 64;

void log_of_libssh(int, const char* function, const char* text, void*) {
  log::debug(cat("libssh: ", function, ": ", text));
}

}  // namespace

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

bool SshConnection::set(ssh_options_e option, const std::string& value) {
  return value.empty() || ssh_options_set(session_.get(), option, value.c_str()) == SSH_OK;
}

// The user's algorithms, those of the keys that are known first: a server that has other keys as
// well then shows one of these.
std::string SshConnection::host_key_algorithms(const SshSettings& settings) const {
  std::vector<std::string> algorithms = split(settings.host_key_algorithms, ',');
  const auto is_known = [this](std::string_view algorithm) {
    const std::string_view type = algorithm.starts_with("rsa-sha2-") ? "ssh-rsa" : algorithm;
    const auto is_of_type = [&](const KnownHostKey& known) {
      return type == ssh_key_type_to_char(ssh_key_type(known.key.get()));
    };
    return std::any_of(known_.keys.begin(), known_.keys.end(), is_of_type) ||
           std::any_of(known_portless_.keys.begin(), known_portless_.keys.end(), is_of_type);
  };
  std::stable_partition(algorithms.begin(), algorithms.end(), is_known);
  return join(algorithms, ",");
}

Status SshConnection::configure(const SshLogin& login, std::string& beyond_libssh) {
  if (!session_ || !event_) return internal_error("libssh has no memory for a session");
  ssh_session session = session_.get();
  ssh_set_log_callback(log_of_libssh);
  ssh_set_blocking(session, 0);
  ssh_set_counters(session, &counters_, nullptr);

  const SshSettings& settings = login.settings;
  std::vector<std::string> files = settings.user_known_hosts_files;
  files.insert(files.end(), settings.global_known_hosts_files.begin(),
               settings.global_known_hosts_files.end());
  // HostKeyAlias names the key alone, without a port.
  const bool has_alias = !settings.host_key_alias.empty();
  key_name_ =
      has_alias ? settings.host_key_alias : known_hosts_name(settings.host_name, settings.port);
  known_ = find_known_hosts(key_name_, files);
  if (!has_alias && settings.port != 22) {
    known_portless_ = find_known_hosts(known_hosts_name(settings.host_name, 22), files);
  }
  for (const KnownHostKeys& known : {std::cref(known_), std::cref(known_portless_)}) {
    if (known.marked_in.empty()) continue;
    beyond_libssh = cat("a @cert-authority or @revoked line, ", known.marked_in);
    return failed_precondition(beyond_libssh);
  }

  const bool reads_files = false;  // ssh -G has read them, and the keys are compared here
  const int strict = 1;
  bool ok = set(SSH_OPTIONS_HOST, settings.host_name) && set(SSH_OPTIONS_USER, settings.user) &&
            set(SSH_OPTIONS_SSH_DIR, login.user.directory) &&
            set(SSH_OPTIONS_KNOWNHOSTS, "/dev/null") &&
            set(SSH_OPTIONS_GLOBAL_KNOWNHOSTS, "/dev/null") &&
            set(SSH_OPTIONS_IDENTITY_AGENT, settings.identity_agent) &&
            set(SSH_OPTIONS_COMPRESSION, settings.compression ? "yes" : "no");
  ok = ok && ssh_options_set(session, SSH_OPTIONS_PORT, &settings.port) == SSH_OK &&
       ssh_options_set(session, SSH_OPTIONS_PROCESS_CONFIG, &reads_files) == SSH_OK &&
       ssh_options_set(session, SSH_OPTIONS_STRICTHOSTKEYCHECK, &strict) == SSH_OK;
  // libssh takes those of the names that it knows.
  ok = ok && set(SSH_OPTIONS_KEY_EXCHANGE, settings.key_exchanges) &&
       set(SSH_OPTIONS_HOSTKEYS, host_key_algorithms(settings)) &&
       set(SSH_OPTIONS_PUBLICKEY_ACCEPTED_TYPES, settings.public_key_algorithms) &&
       set(SSH_OPTIONS_CIPHERS_C_S, settings.ciphers) &&
       set(SSH_OPTIONS_CIPHERS_S_C, settings.ciphers) && set(SSH_OPTIONS_HMAC_C_S, settings.macs) &&
       set(SSH_OPTIONS_HMAC_S_C, settings.macs);
  if (!ok) {
    beyond_libssh = "a host name or a setting that libssh does not accept";
    return failed_precondition(cat("libssh does not accept the host name or a setting: ", error()));
  }
  return {};
}

net::Task<Status> SshConnection::connect(const SshLogin& login,
                                         std::function<void(SpawnStage)> on_stage) {
  on_stage(SpawnStage::kResolve);
  const SshSettings& settings = login.settings;
  auto addresses = co_await look_up(settings.host_name);
  if (!addresses.ok()) co_return addresses.status();
  const std::string& family = settings.address_family;
  std::erase_if(*addresses, [&](const asio::ip::address& address) {
    return (family == "inet" && address.is_v6()) || (family == "inet6" && address.is_v4());
  });
  if (addresses->empty()) {
    co_return not_found(
        cat("the name '", settings.host_name, "' has no address of AddressFamily ", family));
  }

  on_stage(SpawnStage::kConnect);
  auto socket = co_await connect_any(std::move(*addresses), static_cast<uint16_t>(settings.port));
  if (!socket.ok()) co_return socket.status();
  net::error_code ignored;
  socket->set_option(asio::ip::tcp::no_delay(true), ignored);
  const int watched = ::fcntl(socket->native_handle(), F_DUPFD_CLOEXEC, 0);
  if (watched < 0) co_return system_error("cannot duplicate a socket", errno);
  watch_.assign(watched);
  const int fd = socket->release();
  ssh_session session = session_.get();
  ssh_options_set(session, SSH_OPTIONS_FD, &fd);
  bool is_watched = false;
  const auto outcome = co_await finish(
      [&] {
        const int step = ssh_connect(session);
        // The socket can be polled by the event from the first call on.
        if (!std::exchange(is_watched, true)) ssh_event_add_session(event_.get(), session);
        return step;
      },
      SSH_AGAIN);
  if (!outcome.ok()) co_return outcome.status();
  if (*outcome == SSH_OK) co_return Status();
  if (counters_.in_bytes == 0) {
    co_return unavailable(cat("what listens on port ", settings.port,
                              " closed the connection without a "
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
