#include "launcher/spawn/ssh/ssh_connection.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "base/log/log.h"
#include "base/settings.h"
#include "launcher/spawn/name_lookup.h"
#include "launcher/spawn/ssh/ssh_stream.h"

namespace hvd::launcher {

namespace asio = net::asio;

namespace {

// libssh reads 4 KiB at a time. After this many reads, other sessions may run.
constexpr int kReadsAtOnce = 64;

void log_of_libssh(int, const char* function, const char* text, void*) {
  log::debug(cat("libssh: ", function, ": ", text));
}

bool has_ssh_agent(const SshSettings& settings) {
  if (settings.identity_agent == "none") return false;
  return !settings.identity_agent.empty() ||
         !environment_variable("SSH_AUTH_SOCK").value_or("").empty();
}

// Returns a method by which the system's ssh may log in although libssh could not; may be empty.
std::string other_way(const SshSettings& settings, bool has_agent, int methods) {
  if (settings.has_gssapi && (methods & SSH_AUTH_METHOD_GSSAPI_MIC)) return "GSSAPI";
  if (settings.identities_only && has_agent) return "IdentitiesOnly with an ssh-agent";
  return settings.has_control_path ? "ControlPath" : "";
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
  // libssh may find that the socket is writable without sending a byte; writers wait for this change.
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

// Returns the user's algorithms, with the algorithms of known keys first: a server with several keys then
// presents a known key.
std::string SshConnection::host_key_algorithms(const SshSettings& settings) const {
  std::vector<std::string> algorithms = split(settings.host_key_algorithms, ',');
  const auto is_known = [this](std::string_view algorithm) {
    const std::string_view type = algorithm.starts_with("rsa-sha2-") ? "ssh-rsa" : algorithm;
    const auto is_of_type = [&](const KnownHostKey& known) {
      return type == ssh_key_type_to_char(ssh_key_type(known.key.get()));
    };
    const std::vector<KnownHostKey>& exact = known_.exact.keys;
    const std::vector<KnownHostKey>& portless = known_.portless.keys;
    return std::any_of(exact.begin(), exact.end(), is_of_type) ||
           std::any_of(portless.begin(), portless.end(), is_of_type);
  };
  std::stable_partition(algorithms.begin(), algorithms.end(), is_known);
  return join(algorithms, ",");
}

bool SshConnection::set_options(const SshLogin& login) {
  const SshSettings& settings = login.settings;
  const std::pair<ssh_options_e, std::string> texts[] = {
      {SSH_OPTIONS_HOST, settings.host_name},
      {SSH_OPTIONS_USER, settings.user},
      {SSH_OPTIONS_SSH_DIR, login.user.directory},
      {SSH_OPTIONS_KNOWNHOSTS, "/dev/null"},
      {SSH_OPTIONS_GLOBAL_KNOWNHOSTS, "/dev/null"},
      {SSH_OPTIONS_IDENTITY_AGENT, settings.identity_agent},
      {SSH_OPTIONS_COMPRESSION, settings.compression ? "yes" : "no"},
      // libssh uses the names that it supports, and ignores the other names.
      {SSH_OPTIONS_KEY_EXCHANGE, settings.key_exchanges},
      {SSH_OPTIONS_HOSTKEYS, host_key_algorithms(settings)},
      {SSH_OPTIONS_PUBLICKEY_ACCEPTED_TYPES, settings.public_key_algorithms},
      {SSH_OPTIONS_CIPHERS_C_S, settings.ciphers},
      {SSH_OPTIONS_CIPHERS_S_C, settings.ciphers},
      {SSH_OPTIONS_HMAC_C_S, settings.macs},
      {SSH_OPTIONS_HMAC_S_C, settings.macs}};
  const bool reads_files = false;  // `ssh -G` has read them, and check_host_key() compares keys
  const int strict = 1;
  const std::pair<ssh_options_e, const void*> numbers[] = {
      {SSH_OPTIONS_PORT, &settings.port},
      {SSH_OPTIONS_PROCESS_CONFIG, &reads_files},
      {SSH_OPTIONS_STRICTHOSTKEYCHECK, &strict}};
  return std::ranges::all_of(numbers,
                             [this](const auto& each) {
                               return ssh_options_set(session_.get(), each.first, each.second) ==
                                      SSH_OK;
                             }) &&
         std::ranges::all_of(texts,
                             [this](const auto& each) { return set(each.first, each.second); });
}

Status SshConnection::configure(const SshLogin& login, SshFailure& failure) {
  if (!session_ || !event_) return internal_error("libssh has no memory for a session");
  ssh_session session = session_.get();
  ssh_set_log_callback(log_of_libssh);
  ssh_set_blocking(session, 0);
  ssh_set_counters(session, &counters_, nullptr);

  const SshSettings& settings = login.settings;
  known_ = find_known_host(settings);
  for (const KnownHostKeys* known : {&known_.exact, &known_.portless}) {
    if (known->marked_in.empty()) continue;
    failure.beyond_libssh = cat("the marked line ", known->marked_in);
    return failed_precondition(failure.beyond_libssh);
  }

  if (!set_options(login)) {
    failure.beyond_libssh = "a host name or a setting that libssh does not accept";
    return failed_precondition(cat("libssh does not accept the host name or a setting: ", error()));
  }
  return {};
}

net::Task<Status> SshConnection::connect(const SshLogin& login,
                                         std::function<void(SpawnStage)> on_stage,
                                         SshFailure& failure) {
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
        // After the first call of ssh_connect, the event can poll the socket.
        if (!std::exchange(is_watched, true)) ssh_event_add_session(event_.get(), session);
        return step;
      },
      SSH_AGAIN);
  if (!outcome.ok()) {
    failure.is_hung_up = is_broken();
    co_return outcome.status();
  }
  if (*outcome == SSH_OK) co_return Status();
  if (counters_.in_bytes == 0) {
    failure.is_hung_up = true;
    co_return unavailable(cat("the program that listens on port ", settings.port,
                              " closed the connection and sent "
                              "nothing (not an sshd, or its MaxStartups is reached)"));
  }
  // An sshd with too many unauthenticated connections closes the connection: with a reset, or after
  // text that is not a handshake.
  const std::string reason = error();
  failure.is_hung_up = reason.find("reset by peer") != std::string::npos ||
                       reason.find("disconnected") != std::string::npos;
  co_return unavailable(cat("the ssh handshake failed: ", reason,
                            failure.is_hung_up ? " (the sshd's MaxStartups may be reached)" : ""));
}

Status SshConnection::check_host_key(const SshLogin& login) {
  ssh_key key = nullptr;
  if (ssh_get_server_publickey(session_.get(), &key) != SSH_OK) {
    return unavailable(cat("it showed no host key: ", error()));
  }
  const KeyPtr owned(key);
  return hvd::launcher::check_host_key(login, known_, key);
}

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
    return permission_denied(
        fmt::format("the key of user {} is accepted, but not sufficient: the host also requires {}",
                    user, offered));
  }
  std::string text =
      tried.empty()
          ? fmt::format("authentication refused for user {}; found no key and no ssh-agent", user)
          : fmt::format("authentication refused for user {}; tried {}", user, join(tried, ", "));
  if (!offered.empty()) text += "; it accepts " + offered;
  if (is_broken()) text += fmt::format("; it then closed the connection: {}", error());
  if (methods & (SSH_AUTH_METHOD_PASSWORD | SSH_AUTH_METHOD_INTERACTIVE)) {
    text += "; " + password_advice(login.target, (methods & SSH_AUTH_METHOD_PUBLICKEY) != 0);
  }
  return permission_denied(text);
}

net::Task<Status> SshConnection::authenticate(const SshLogin& login, SshFailure& failure) {
  std::vector<std::string> tried;
  const SshSettings& settings = login.settings;
  std::vector<std::string> files = settings.identity_files;
  const bool has_agent = has_ssh_agent(settings);
  if (has_agent && !settings.identities_only) files.emplace_back();  // empty: the agent's keys

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
  // Requests the server's methods. A server without authentication accepts the login here.
  if (outcome == SSH_AUTH_DENIED && ssh_userauth_list(session_.get(), nullptr) == 0) {
    const auto none =
        co_await finish([&] { return ssh_userauth_none(session_.get(), nullptr); }, SSH_AUTH_AGAIN);
    if (!none.ok()) co_return none.status();
    if (*none == SSH_AUTH_SUCCESS) co_return Status();
  }
  const int offered = ssh_userauth_list(session_.get(), nullptr);
  if (!unreadable.empty())
    failure.beyond_libssh = unreadable;
  else
    failure.beyond_libssh = other_way(settings, has_agent, offered);
  // An agent that refuses to sign causes an error, not a denial; another try would ask the user again.
  failure.is_refusal = failure.beyond_libssh.empty() && outcome == SSH_AUTH_DENIED;
  co_return refused(login, outcome, tried);
}

}  // namespace hvd::launcher
