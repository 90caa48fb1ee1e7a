#include "launcher/spawn/ssh_session.h"

#include <fcntl.h>
#include <libssh/callbacks.h>
#include <libssh/libssh.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <fstream>
#include <sstream>

#include "base/clock.h"
#include "base/log.h"
#include "base/settings.h"
#include "base/text.h"
#include "launcher/spawn/connect_any.h"
#include "launcher/spawn/known_hosts.h"
#include "launcher/spawn/last_words.h"
#include "launcher/spawn/name_lookup.h"
#include "launcher/spawn/wakeup.h"

namespace hvd::launcher {

namespace asio = net::asio;

namespace {

// How long the end of a channel's data waits for the news of how the command ended.
constexpr std::chrono::milliseconds kEndOfCommand{500};
// libssh reads 4 KiB at a time; other sessions get their turn after so many.
constexpr int kReadsAtOnce = 64;
constexpr size_t kWriteAtOnce = 64 << 10;

template <auto Free>
struct Freed {
  template <typename T>
  void operator()(T* thing) const { Free(thing); }
};
using SessionPtr = std::unique_ptr<ssh_session_struct, Freed<ssh_free>>;
using EventPtr = std::unique_ptr<ssh_event_struct, Freed<ssh_event_free>>;
using KeyPtr = std::unique_ptr<ssh_key_struct, Freed<ssh_key_free>>;
using TextPtr = std::unique_ptr<char, Freed<ssh_string_free_char>>;

void log_of_libssh(int, const char* function, const char* text, void*) {
  log::debug(cat("libssh: ", function, ": ", text));
}

std::string get_option(ssh_session session, ssh_options_e option) {
  char* value = nullptr;
  if (ssh_options_get(session, option, &value) != SSH_OK) return {};
  return TextPtr(value).get();
}

std::string fingerprint_of(ssh_key key) {
  unsigned char* hash = nullptr;
  size_t size = 0;
  if (ssh_get_publickey_hash(key, SSH_PUBLICKEY_HASH_SHA256, &hash, &size) != 0) return {};
  const TextPtr text(ssh_get_fingerprint_hash(SSH_PUBLICKEY_HASH_SHA256, hash, size));
  ssh_clean_pubkey_hash(&hash);
  return cat(ssh_key_type_to_char(ssh_key_type(key)), " ", text ? text.get() : "?");
}

std::string methods_text(int methods) {
  std::vector<std::string> names;
  if (methods & SSH_AUTH_METHOD_PUBLICKEY) names.push_back("publickey");
  if (methods & SSH_AUTH_METHOD_PASSWORD) names.push_back("password");
  if (methods & SSH_AUTH_METHOD_INTERACTIVE) names.push_back("keyboard-interactive");
  if (methods & SSH_AUTH_METHOD_HOSTBASED) names.push_back("hostbased");
  if (methods & SSH_AUTH_METHOD_GSSAPI_MIC) names.push_back("gssapi-with-mic");
  return join(names, ", ");
}

// "path:line" of the first key of `host` in a known_hosts file, or empty.
std::string line_of_host(const std::string& path, const std::string& host) {
  std::ifstream in(path);
  std::string text;
  for (int line = 1; std::getline(in, text); ++line) {
    if (text.empty() || text[0] == '#' || text[0] == '@') continue;
    ssh_knownhosts_entry* entry = nullptr;
    if (ssh_known_hosts_parse_line(host.c_str(), text.c_str(), &entry) != SSH_OK) continue;
    ssh_knownhosts_entry_free(entry);
    return cat(path, ":", line);
  }
  return {};
}

}  // namespace

// The libssh session and its socket. Whatever libssh reads on behalf of one waiter may be what
// another waits for, so everything that it has done is found by counters and told to all.
class SshSession::Connection : public std::enable_shared_from_this<Connection> {
 public:
  explicit Connection(asio::any_io_executor executor)
      : changed_(executor), watch_(executor), session_(ssh_new()), event_(ssh_event_new()) {}
  ~Connection() {
    net::error_code ignored;
    watch_.close(ignored);
    settle();
  }

  Status configure(const SshLogin& login, std::string& beyond_libssh);
  net::Task<Status> connect(const SshLogin& login, std::function<void(SpawnStage)> on_stage);
  Status check_host_key(const SshLogin& login);
  net::Task<Status> authenticate(const SshLogin& login, std::string& beyond_libssh);
  net::Task<Result<std::unique_ptr<Duplex>>> run(std::string command);

  // Repeats a call of libssh's until it is not `again`, waiting for the socket in between. False
  // in `go_on` means that the coroutine was cancelled.
  template <typename Call>
  net::Task<Result<int>> finish(Call call, int again) {
    for (;;) {
      const uint64_t before = epoch_;
      const int outcome = call();
      settle();
      if (outcome != again) co_return outcome;
      if (epoch_ != before) continue;
      const bool go_on = co_await changed_.wait();
      if (!go_on) co_return aborted("the connection was given up");
    }
  }

  // After every call of libssh's: sends what it has queued, takes in what has arrived, tells all.
  void settle();
  uint64_t epoch() const { return epoch_; }
  Wakeup& changed() { return changed_; }
  bool has_output() const { return ssh_get_poll_flags(session_.get()) & SSH_WRITE_PENDING; }
  bool is_broken() const {
    return (ssh_get_status(session_.get()) & (SSH_CLOSED | SSH_CLOSED_ERROR)) != 0;
  }
  std::string error() const { return printable(ssh_get_error(session_.get())); }
  void add(Stream* stream) { streams_.push_back(stream); }
  void remove(Stream* stream) { std::erase(streams_, stream); }

 private:
  void arm();
  SshTokens tokens(const SshLogin& login) const;
  std::string known_hosts_name() const;
  Status unknown_host_key(const SshLogin& login, const std::string& fingerprint);
  Status changed_host_key(const std::string& fingerprint);
  net::Task<Result<int>> try_key_file(std::string path, std::vector<std::string>& tried,
                                      std::string& beyond_libssh);
  Status refused(int outcome, const std::vector<std::string>& tried) const;

  Wakeup changed_;
  asio::posix::stream_descriptor watch_;  // a duplicate: libssh closes its own when it fails
  SessionPtr session_;
  EventPtr event_;  // goes before the session
  ssh_counter_struct counters_{};
  std::vector<Stream*> streams_;
  uint64_t epoch_ = 0;
  uint64_t seen_bytes_ = 0;
  bool seen_broken_ = false;
  bool seen_output_ = false;
  bool waits_to_read_ = false;
  bool waits_to_write_ = false;
  std::string host_;  // that is connected to, of which the key must be known
  std::string original_host_;
  std::string user_;
  uint16_t port_ = 22;
};

// A command's channel.
class SshSession::Stream : public Duplex {
 public:
  Stream(std::shared_ptr<Connection> connection, ssh_channel channel)
      : connection_(std::move(connection)), channel_(channel) {
    callbacks_.userdata = this;
    callbacks_.channel_exit_status_function = [](ssh_session, ssh_channel, int code, void* self) {
      static_cast<Stream*>(self)->words_.set_exit_code(code);
    };
    callbacks_.channel_exit_signal_function = [](ssh_session, ssh_channel, const char* name, int,
                                                 const char*, const char*, void* self) {
      static_cast<Stream*>(self)->words_.set_signal(cat("SIG", name));
    };
    ssh_callbacks_init(&callbacks_);
    ssh_set_channel_callbacks(channel_, &callbacks_);
    connection_->add(this);
  }
  ~Stream() override {
    close();
    connection_->remove(this);
    ssh_remove_channel_callbacks(channel_, &callbacks_);
    ssh_channel_free(channel_);
    connection_->settle();
  }

  net::Task<Status> start(std::string command);
  net::Task<Result<size_t>> read_some(std::span<std::byte> buffer) override;
  net::Task<Status> write(ByteView bytes) override;
  void close() override;
  std::string last_words() const override { return words_.text(); }

  // Standard error has no reader of its own: it must not fill the channel's window.
  void drain_errors();

 private:
  net::Task<void> wait_for_exit();

  std::shared_ptr<Connection> connection_;
  ssh_channel channel_;
  ssh_channel_callbacks_struct callbacks_{};
  LastWords words_;
  bool is_closed_ = false;
};

void SshSession::Connection::settle() {
  if (!session_ || !event_) return;
  for (int i = 0; i < kReadsAtOnce; ++i) {
    const uint64_t before = counters_.in_bytes + counters_.out_bytes;
    if (ssh_event_dopoll(event_.get(), 0) == SSH_ERROR) break;
    if (counters_.in_bytes + counters_.out_bytes == before) break;
  }
  for (Stream* stream : streams_) stream->drain_errors();
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

void SshSession::Connection::arm() {
  using Descriptor = asio::posix::stream_descriptor;
  if (!watch_.is_open() || is_broken()) return;
  const auto woken = [weak = weak_from_this()](bool Connection::*flag) {
    return [weak, flag](const net::error_code& error) {
      const auto self = weak.lock();
      if (!self) return;
      (*self).*flag = false;
      if (!error) self->settle();
    };
  };
  if (!std::exchange(waits_to_read_, true)) {
    watch_.async_wait(Descriptor::wait_read, woken(&Connection::waits_to_read_));
  }
  if (has_output() && !std::exchange(waits_to_write_, true)) {
    watch_.async_wait(Descriptor::wait_write, woken(&Connection::waits_to_write_));
  }
}

Status SshSession::Connection::configure(const SshLogin& login, std::string& beyond_libssh) {
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
  host_ = get_option(session, SSH_OPTIONS_HOST);
  user_ = get_option(session, SSH_OPTIONS_USER);
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

SshTokens SshSession::Connection::tokens(const SshLogin& login) const {
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

net::Task<Status> SshSession::Connection::connect(const SshLogin& login,
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
  co_return unavailable(cat("the ssh handshake failed: ", error()));
}

std::string SshSession::Connection::known_hosts_name() const {
  return port_ == 22 ? to_lower(host_) : cat("[", to_lower(host_), "]:", port_);
}

Status SshSession::Connection::check_host_key(const SshLogin& login) {
  ssh_key key = nullptr;
  if (ssh_get_server_publickey(session_.get(), &key) != SSH_OK) {
    return unavailable(cat("it showed no host key: ", error()));
  }
  const KeyPtr owned(key);
  switch (ssh_session_is_known_server(session_.get())) {
    case SSH_KNOWN_HOSTS_OK: return {};
    case SSH_KNOWN_HOSTS_CHANGED:
    case SSH_KNOWN_HOSTS_OTHER: return changed_host_key(fingerprint_of(key));
    case SSH_KNOWN_HOSTS_UNKNOWN:
    case SSH_KNOWN_HOSTS_NOT_FOUND: return unknown_host_key(login, fingerprint_of(key));
    case SSH_KNOWN_HOSTS_ERROR: break;
  }
  return failed_precondition(cat("its host key cannot be checked: ", error()));
}

Status SshSession::Connection::changed_host_key(const std::string& fingerprint) {
  const std::string file = get_option(session_.get(), SSH_OPTIONS_KNOWNHOSTS);
  const std::string global = get_option(session_.get(), SSH_OPTIONS_GLOBAL_KNOWNHOSTS);
  std::string place = line_of_host(file, known_hosts_name());
  std::string place_file = file;
  if (place.empty()) {
    place = line_of_host(global, known_hosts_name());
    place_file = global;
  }
  return permission_denied(
      cat("its host key has changed: it shows ", fingerprint, ", and ",
          place.empty() ? file : place,
          " has another; somebody may be listening in, or the host was installed anew: then run "
          "ssh-keygen -f ", place_file, " -R ", shell_quote(known_hosts_name())));
}

Status SshSession::Connection::unknown_host_key(const SshLogin& login,
                                                const std::string& fingerprint) {
  const std::string& policy = login.config.strict_host_key_checking;
  if (policy == "yes" || policy == "ask") {
    return permission_denied(
        cat("its host key is unknown (", fingerprint, ") and StrictHostKeyChecking is ", policy,
            policy == "ask" ? ", which horovodrun never does" : "", ": connect once with ssh ",
            original_host_, ", or set it to accept-new"));
  }
  char* entry = nullptr;
  Status added = internal_error("libssh cannot write it down");
  const std::string file = get_option(session_.get(), SSH_OPTIONS_KNOWNHOSTS);
  if (ssh_session_export_known_hosts_entry(session_.get(), &entry) == SSH_OK) {
    added = append_known_host(file, TextPtr(entry).get());
  }
  if (!added.ok()) {
    log::warning(cat("the new host key of ", host_, " is not remembered: ", added.message()));
  } else {
    log::info(cat("the new host key of ", host_, " (", fingerprint, ") was added to ", file));
  }
  return {};
}

net::Task<Result<int>> SshSession::Connection::try_key_file(std::string path,
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
      [&] { return ssh_userauth_publickey(session_.get(), nullptr, owned.get()); },
      SSH_AUTH_AGAIN);
}

Status SshSession::Connection::refused(int outcome, const std::vector<std::string>& tried) const {
  const std::string keys = tried.empty() ? "found no key and no ssh-agent" : "tried " + join(tried, ", ");
  const std::string offered = methods_text(ssh_userauth_list(session_.get(), nullptr));
  if (outcome == SSH_AUTH_PARTIAL) {
    return permission_denied(cat("authentication of user ", user_, " by key is not enough for it, "
                                 "it also asks for ", offered));
  }
  std::string ending;
  if (is_broken()) ending = cat("; it then closed the connection: ", error());
  return permission_denied(cat("authentication refused for user ", user_, "; ", keys,
                               offered.empty() ? "" : "; it accepts ", offered, ending));
}

net::Task<Status> SshSession::Connection::authenticate(const SshLogin& login,
                                                       std::string& beyond_libssh) {
  std::vector<std::string> tried;
  std::vector<std::string> files;
  const SshConfig& config = login.config;
  const auto variable = [](std::string_view name) {
    return environment_variable(name).value_or("");
  };
  if (!login.target.identity_file.empty()) files.push_back(login.target.identity_file);
  for (const std::string& file : config.identity_files) {
    const std::string path = expand_ssh_path(file, tokens(login), variable);
    if (!path.empty()) files.push_back(path);
  }
  const bool has_own_files = !files.empty();
  const bool has_agent = config.identity_agent != "none" &&
                         (!config.identity_agent.empty() || !variable("SSH_AUTH_SOCK").empty());
  const bool uses_agent = has_agent && !config.identities_only;
  if (uses_agent) files.emplace_back();
  if (!has_own_files) {
    for (const char* name : {"/id_ed25519", "/id_ecdsa", "/id_rsa"}) {
      const std::string path = login.user.directory + name;
      if (::access(path.c_str(), F_OK) == 0) files.push_back(path);
    }
  }

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
  // Asks what it would accept, and finds the server that asks for nothing.
  if (outcome == SSH_AUTH_DENIED && ssh_userauth_list(session_.get(), nullptr) == 0) {
    const auto none = co_await finish(
        [&] { return ssh_userauth_none(session_.get(), nullptr); }, SSH_AUTH_AGAIN);
    if (!none.ok()) co_return none.status();
    if (*none == SSH_AUTH_SUCCESS) co_return Status();
  }
  const int offered = ssh_userauth_list(session_.get(), nullptr);
  if (config.has_control_path) beyond_libssh = "ControlPath";
  if (config.identities_only && has_agent) beyond_libssh = "IdentitiesOnly with an ssh-agent";
  if (config.has_gssapi && (offered & SSH_AUTH_METHOD_GSSAPI_MIC)) beyond_libssh = "GSSAPI";
  if (!unreadable.empty()) beyond_libssh = unreadable;
  co_return refused(outcome, tried);
}

net::Task<Result<std::unique_ptr<Duplex>>> SshSession::Connection::run(std::string command) {
  ssh_channel channel = ssh_channel_new(session_.get());
  if (channel == nullptr) co_return unavailable(cat("no channel: ", error()));
  auto stream = std::make_unique<Stream>(shared_from_this(), channel);
  const Status started = co_await stream->start(std::move(command));
  if (!started.ok()) co_return started;
  co_return std::unique_ptr<Duplex>(std::move(stream));
}

net::Task<Status> SshSession::Stream::start(std::string command) {
  const auto opened = co_await connection_->finish(
      [&] { return ssh_channel_open_session(channel_); }, SSH_AGAIN);
  if (!opened.ok()) co_return opened.status();
  if (*opened != SSH_OK) {
    co_return unavailable(cat("it refused a session (MaxSessions of its sshd?): ",
                              connection_->error()));
  }
  const auto accepted = co_await connection_->finish(
      [&] { return ssh_channel_request_exec(channel_, command.c_str()); }, SSH_AGAIN);
  if (!accepted.ok()) co_return accepted.status();
  if (*accepted == SSH_OK) co_return Status();
  co_return unavailable(cat("it refused to run a command: ", connection_->error()));
}

void SshSession::Stream::drain_errors() {
  std::array<char, 1024> buffer;
  for (;;) {
    const int size = ssh_channel_read_nonblocking(channel_, buffer.data(), buffer.size(), 1);
    if (size <= 0) return;
    words_.add({buffer.data(), static_cast<size_t>(size)});
  }
}

net::Task<Result<size_t>> SshSession::Stream::read_some(std::span<std::byte> buffer) {
  const std::shared_ptr<Connection> connection = connection_;
  for (;;) {
    if (is_closed_) co_return aborted("the stream was closed");
    const uint64_t before = connection->epoch();
    const auto limit = static_cast<uint32_t>(std::min<size_t>(buffer.size(), 1 << 20));
    const int size = ssh_channel_read_nonblocking(channel_, buffer.data(), limit, 0);
    connection->settle();
    if (size > 0) co_return static_cast<size_t>(size);
    if (size == SSH_EOF || ssh_channel_is_eof(channel_) || ssh_channel_is_closed(channel_)) {
      if (connection->is_broken() && !ssh_channel_is_eof(channel_)) {
        co_return unavailable(cat("the ssh connection broke: ", connection->error()));
      }
      co_await wait_for_exit();
      co_return size_t{0};
    }
    if (size < 0 || connection->is_broken()) {
      co_return unavailable(cat("the ssh connection broke: ", connection->error()));
    }
    if (connection->epoch() != before) continue;
    const bool go_on = co_await connection->changed().wait();
    if (!go_on) co_return aborted("reading was given up");
  }
}

// The end of the data comes before the exit status.
net::Task<void> SshSession::Stream::wait_for_exit() {
  const std::shared_ptr<Connection> connection = connection_;
  const auto limit = Clock::now() + kEndOfCommand;
  asio::steady_timer timer(co_await asio::this_coro::executor, limit);
  timer.async_wait([weak = std::weak_ptr(connection)](const net::error_code& error) {
    const auto self = weak.lock();
    if (self && !error) self->changed().notify();
  });
  while (!words_.ended() && !is_closed_ && !ssh_channel_is_closed(channel_) &&
         !connection->is_broken() && Clock::now() < limit) {
    const bool go_on = co_await connection->changed().wait();
    if (!go_on) co_return;
  }
}

net::Task<Status> SshSession::Stream::write(ByteView bytes) {
  const std::shared_ptr<Connection> connection = connection_;
  while (!bytes.empty() || connection->has_output()) {
    if (is_closed_) co_return aborted("the stream was closed");
    const uint64_t before = connection->epoch();
    if (!bytes.empty()) {
      const auto limit = static_cast<uint32_t>(std::min(bytes.size(), kWriteAtOnce));
      const int size = ssh_channel_write(channel_, bytes.data(), limit);
      connection->settle();
      if (size < 0 && size != SSH_AGAIN) {
        co_return unavailable(cat("the far side takes no more: ", connection->error()));
      }
      if (size > 0) {
        bytes = bytes.subspan(static_cast<size_t>(size));
        continue;
      }
    }
    if (connection->is_broken()) {
      co_return unavailable(cat("the ssh connection broke: ", connection->error()));
    }
    if (connection->epoch() != before) continue;
    const bool go_on = co_await connection->changed().wait();
    if (!go_on) co_return aborted("writing was given up");
  }
  co_return Status();
}

void SshSession::Stream::close() {
  if (std::exchange(is_closed_, true)) return;
  ssh_channel_close(channel_);
  connection_->settle();
  connection_->changed().notify();
}

SshSession::SshSession(std::shared_ptr<Connection> connection)
    : connection_(std::move(connection)) {}
SshSession::~SshSession() = default;

net::Task<Result<std::unique_ptr<SshSession>>> SshSession::open(
    SshLogin login, std::function<void(SpawnStage)> on_stage, std::string& beyond_libssh) {
  const auto connection = std::make_shared<Connection>(co_await asio::this_coro::executor);
  Status status = connection->configure(login, beyond_libssh);
  if (!status.ok()) co_return status;
  status = co_await connection->connect(login, on_stage);
  if (!status.ok()) co_return status;
  status = connection->check_host_key(login);
  if (!status.ok()) co_return status;
  on_stage(SpawnStage::kAuthenticate);
  status = co_await connection->authenticate(login, beyond_libssh);
  if (!status.ok()) co_return status;
  co_return std::unique_ptr<SshSession>(new SshSession(connection));
}

net::Task<Result<std::unique_ptr<Duplex>>> SshSession::run(std::string command) {
  return connection_->run(std::move(command));
}

}  // namespace hvd::launcher
