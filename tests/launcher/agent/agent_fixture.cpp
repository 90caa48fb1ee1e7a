#include "launcher/agent/agent_fixture.h"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <optional>

#include "base/clock.h"
#include "base/secrets/secret.h"
#include "base/text.h"
#include "base/unique_fd.h"
#include "launcher/link/admission.h"
#include "launcher/protocol/record.h"
#include "net/endpoint.h"

namespace hvd::launcher {

namespace {

namespace asio = net::asio;

std::vector<pid_t> all_processes() {
  std::vector<pid_t> pids;
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    if (const auto pid = parse_int(entry.path().filename().string())) {
      pids.push_back(static_cast<pid_t>(*pid));
    }
  }
  return pids;
}

// Returns parent and state from /proc/PID/stat.
std::optional<std::pair<pid_t, char>> parent_and_state(pid_t pid) {
  const std::string stat = read_file(cat("/proc/", pid, "/stat"));
  const size_t close = stat.rfind(')');
  if (close == std::string::npos) return {};
  const auto fields = split(stat.substr(close + 2), ' ');
  return std::pair(static_cast<pid_t>(*parse_int(fields.at(1))), fields.at(0).at(0));
}

// A connection that mute() makes silent.
class MutedDuplex : public Duplex {
 public:
  MutedDuplex(std::unique_ptr<Duplex> inner, std::shared_ptr<bool> is_muted)
      : inner_(std::move(inner)), is_muted_(std::move(is_muted)) {}
  net::Task<Result<size_t>> read_some(std::span<std::byte> buffer) override {
    for (;;) {
      auto size = co_await inner_->read_some(buffer);
      if (!*is_muted_ || !size.ok() || *size == 0) co_return size;
    }
  }
  net::Task<Status> write(ByteView bytes) override {
    if (*is_muted_) co_return Status();
    co_return co_await inner_->write(bytes);
  }
  void close() override { inner_->close(); }
  std::string last_words() const override { return inner_->last_words(); }

 private:
  const std::unique_ptr<Duplex> inner_;
  const std::shared_ptr<bool> is_muted_;
};

std::string random_mark() {
  std::array<std::byte, 8> bytes;
  fill_random(bytes);
  return to_hex(bytes);
}

}  // namespace

std::string read_file(const std::string& path) {
  const UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  std::string text;
  char buffer[65536];
  // read() fails if the process ends meanwhile; the part read so far is enough.
  for (ssize_t size; file && (size = ::read(file.get(), buffer, sizeof buffer)) > 0;) {
    text.append(buffer, static_cast<size_t>(size));
  }
  return text;
}

SocketDuplex::SocketDuplex(asio::any_io_executor executor, int fd)
    : socket_(std::make_shared<net::StreamSocket>(
          executor, asio::generic::stream_protocol(AF_UNIX, 0), fd)) {}

net::Task<Result<size_t>> SocketDuplex::read_some(std::span<std::byte> buffer) {
  const auto socket = socket_;
  const auto [error, size] =
      co_await socket->async_read_some(asio::buffer(buffer.data(), buffer.size()), net::use_tuple);
  if (error == asio::error::eof) co_return size_t{0};
  if (error) co_return net::to_status("the test's socket", error);
  co_return size;
}

net::Task<Status> SocketDuplex::write(ByteView bytes) {
  const auto socket = socket_;
  const auto [error, size] =
      co_await asio::async_write(*socket, asio::buffer(bytes.data(), bytes.size()), net::use_tuple);
  co_return net::to_status("the test's socket", error);
}

void SocketDuplex::close() {
  net::error_code ignored;
  socket_->close(ignored);
}

pid_t AgentFixture::fork_agent(std::vector<std::string> command, int input, int output) {
  std::vector<char*> arguments;
  for (std::string& word : command) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  const pid_t pid = ::fork();
  REQUIRE(pid >= 0);
  if (pid == 0) {
    ::dup2(input, STDIN_FILENO);
    ::dup2(output, STDOUT_FILENO);
    ::execv(arguments[0], arguments.data());
    ::_exit(126);
  }
  return pid;
}

std::unique_ptr<Duplex> AgentFixture::start_program(std::vector<std::string> command, pid_t& pid) {
  int ends[2];
  REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0);
  pid = fork_agent(std::move(command), ends[1], ends[1]);
  ::close(ends[1]);
  connection_ = ends[0];
  return std::make_unique<SocketDuplex>(loop_.get_executor(), ends[0]);
}

AgentFixture::AgentFixture(std::vector<std::string> command) : mark_(random_mark()) {
  if (command.empty()) command = {HVD_AGENT};
  begin_session(start_program(std::move(command), guardian_), {});
}

AgentFixture::AgentFixture(Respawned) : mark_(random_mark()) {
  begin_session(start_program({HVD_AGENT}, guardian_),
                {.respawn = [this](bool) { return respawn(); }, .agent_wait_seconds = 5});
}

net::Task<Result<std::unique_ptr<Duplex>>> AgentFixture::respawn() {
  if (!may_return) co_return unavailable("the test allows no other connection");
  ++returns;
  co_return start_program({HVD_AGENT}, later_processes_.emplace_back());
}

AgentFixture::AgentFixture(const std::string& agents_token, const std::string& launchers_token)
    : mark_(random_mark()) {
  const Secret secret = *Secret::from_hex(launchers_token);
  auto tls = tls_of_agents(secret, "", "");
  REQUIRE(tls.ok());
  server_ = std::make_unique<rendezvous::Server>(
      loop_.get_executor(), rendezvous::ServerOptions{.secret = secret, .tls = std::move(*tls)});
  server_->on_agent([this, secret](net::AcceptedSocket socket) {
    asio::co_spawn(loop_, take(std::move(socket), secret), asio::detached);
  });
  const auto bound = server_->listen(*net::parse_endpoint("tcp:127.0.0.1:0"));
  REQUIRE(bound.ok());
  int token[2];
  REQUIRE(::pipe(token) == 0);
  REQUIRE(::write(token[1], agents_token.data(), agents_token.size()) > 0);
  ::close(token[1]);
  const UniqueFd null(::open("/dev/null", O_RDWR | O_CLOEXEC));
  guardian_ = fork_agent({HVD_AGENT, "--join", net::to_string(*bound), "--token-fd", cat(token[0]),
                          "--name", "host 3", "--slots", "1"},
                         null.get(), STDERR_FILENO);
  ::close(token[0]);
  CHECK(until([&] { return link_ || !is_alive(guardian_); }));
}

void AgentFixture::begin_session(std::unique_ptr<Duplex> connection, Reconnection reconnection) {
  is_muted_ = std::make_shared<bool>(false);
  auto stream = std::make_unique<ResumableDuplex>(
      loop_.get_executor(), std::make_unique<MutedDuplex>(std::move(connection), is_muted_),
      std::move(reconnection));
  session_ = stream->running();
  link_ = AgentLink::open(loop_.get_executor(), std::move(stream), *this);
}

net::Task<void> AgentFixture::take(net::AcceptedSocket socket, Secret token) {
  connection_ = socket.native_handle();
  auto agent = co_await admit(std::move(socket), to_bytes(token.hex()));
  if (!agent.ok()) co_return;
  if (auto* admitted = std::get_if<AdmittedAgent>(&*agent)) {
    admitted_name_ = admitted->name;
    begin_session(std::move(admitted->duplex), {.is_by_agent = true});
    co_return;
  }
  auto& returned = std::get<ReturnedAgent>(*agent);
  ++returns;
  const auto running = session_.lock();
  Status status = failed_precondition("there is no session");
  if (running) {
    status = co_await ResumableDuplex::resume(running, returned.duplex, returned.offer,
                                              returned.challenge);
  }
  if (status.ok()) co_return;
  const Bytes refusal = framed(Failed{status.message()});
  static_cast<void>(co_await returned.duplex->write(refusal));
}

void AgentFixture::cut() {
  std::array<char, 4096> lost;
  while (::recv(connection_, lost.data(), lost.size(), MSG_DONTWAIT) > 0) {
  }
  ::shutdown(connection_, SHUT_RDWR);
}

AgentFixture::~AgentFixture() {
  link_.reset();
  stores.clear();  // the stores end before the loop that they use
  server_.reset();
  pass(0);
  // Clean up after a failed test too.
  for (int i = 0; i < 100 && ::waitpid(guardian_, nullptr, WNOHANG) == 0; ++i) pass(0.1);
  for (const pid_t pid : later_processes_) CHECK(::waitpid(pid, nullptr, 0) == pid);
  for (const pid_t pid : marked()) ::kill(pid, SIGKILL);
}

HostJob AgentFixture::shell_job(const std::string& script, int ranks) const {
  HostJob job;
  job.job = 0x1234;
  job.host = 7;
  job.host_name = "here";
  job.command = {"/bin/sh", "-c", script};
  job.working_directory = "/";
  job.environment = {{"HVD_TEST_MARK", mark_}};
  for (int rank = 0; rank < ranks; ++rank) {
    job.ranks.push_back({rank, {{"HOROVOD_RANK", cat(rank)}}});
  }
  job.kill_grace_seconds = 0.5;
  return job;
}

Status AgentFixture::drive(net::Task<Status> task) {
  std::optional<Status> status;
  asio::co_spawn(loop_, std::move(task), [&](const std::exception_ptr& error, Status result) {
    status = error ? internal_error("an exception") : std::move(result);
  });
  if (!until([&] { return status.has_value(); }, 20)) return deadline_exceeded("the test waits");
  return *status;
}

Status AgentFixture::prepare(const HostJob& job) { return drive(link_->prepare(job)); }
Status AgentFixture::start() { return drive(link_->start({})); }
Status AgentFixture::suspend() { return drive(link_->suspend()); }
void AgentFixture::wait_for_end() {
  bool is_over = false;
  asio::co_spawn(loop_, link_->wait_for_end(), [&](const std::exception_ptr&) { is_over = true; });
  CHECK(until([&] { return is_over; }));
}

Status AgentFixture::begin(const HostJob& job) {
  HVD_RETURN_IF_ERROR(prepare(job));
  return start();
}

std::string AgentFixture::run(const HostJob& job) {
  const Status status = begin(job);
  if (!status.ok()) return status.message();
  if (!until([&] { return is_finished || !lost.empty(); }, 30)) return "the job does not end";
  return lost.empty() ? "" : lost.front();
}

bool AgentFixture::until(const std::function<bool()>& claim, double seconds) {
  const Deadline deadline = Deadline::after_seconds(seconds);
  while (!claim()) {
    if (deadline.passed()) return false;
    loop_.restart();
    loop_.run_one_for(std::chrono::milliseconds(20));
  }
  return true;
}

void AgentFixture::pass(double seconds) {
  const Deadline deadline = Deadline::after_seconds(seconds);
  do {
    loop_.restart();
    loop_.run_one_for(std::chrono::milliseconds(deadline.poll_timeout()));
  } while (!deadline.passed());
}

void send_signal(pid_t pid, int number) {
  REQUIRE(pid > 1);
  ::kill(pid, number);
}

pid_t AgentFixture::agent() const {
  const auto children = children_of(guardian_);
  return children.empty() ? -1 : children.front();
}

std::vector<pid_t> AgentFixture::marked() const {
  std::vector<pid_t> found;
  for (const pid_t pid : all_processes()) {
    const auto stat = parent_and_state(pid);
    if (!stat || stat->second == 'Z') continue;
    if (read_file(cat("/proc/", pid, "/environ")).find(mark_) != std::string::npos) {
      found.push_back(pid);
    }
  }
  return found;
}

void AgentFixture::on_output(int rank, OutputStream stream, ByteView bytes) {
  output_size += bytes.size();
  if (!is_consuming) return;
  output[{rank, stream}] += as_text(bytes);
  link_->consumed(rank, stream, bytes.size());
}

void AgentFixture::on_output_end(int rank, OutputStream stream) {
  ended.emplace_back(rank, stream);
}

void AgentFixture::on_report(const AgentReport& report) {
  std::visit([this](const auto& each) { on(each); }, report);
}

void AgentFixture::on(const OutputChunk& each) {
  said[{each.number, each.is_error != 0}] += each.bytes;
  if (is_taking) link_->send(OutputCredit{each.number, static_cast<uint32_t>(each.bytes.size())});
}

void AgentFixture::on(const Exited& each) {
  CHECK(exits.count(each.exit.rank) == 0);
  exits[each.exit.rank] = each.exit;
}

void AgentFixture::on(const Finished&) {
  CHECK_FALSE(is_finished);
  is_finished = true;
}

void AgentFixture::on_lost(const Status& why) { lost.push_back(why.message()); }

void AgentFixture::on_store_connection(net::StreamSocket socket) {
  stores.push_back(std::move(socket));
}

std::vector<pid_t> children_of(pid_t pid) {
  std::vector<pid_t> children;
  for (const pid_t each : all_processes()) {
    const auto stat = parent_and_state(each);
    if (stat && stat->first == pid && stat->second != 'Z') children.push_back(each);
  }
  return children;
}

bool is_alive(pid_t pid) {
  const auto stat = parent_and_state(pid);
  return stat && stat->second != 'Z';
}

}  // namespace hvd::launcher
