#include "launcher/job.h"

#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <filesystem>

#include "base/check.h"
#include "base/log.h"
#include "base/secret.h"
#include "base/text.h"
#include "launcher/agent_link.h"
#include "launcher/installation.h"
#include "launcher/lobby.h"
#include "launcher/output.h"
#include "launcher/preflight.h"
#include "launcher/report.h"
#include "launcher/spawn/local.h"
#include "launcher/spawn/ssh_spawner.h"
#include "launcher/supervisor.h"
#include "launcher/worker_env.h"
#include "rendezvous/job_keys.h"
#include "rendezvous/server.h"

namespace hvd::launcher {
namespace {

// Between SIGTERM and SIGKILL of the ranks of a job that ends.
constexpr double kGrace = 2;
// How long agents may take beyond that before the launcher drops their links.
constexpr double kBeyondGrace = 2;
// How long a rank that made others fail by leaving may take to end itself.
constexpr std::chrono::seconds kTimeToLeave{2};
// How long a suspended launcher may take to say so.
constexpr std::chrono::seconds kTimeToSuspend{1};

uint64_t random_job() {
  uint64_t job = 0;
  while (job == 0) fill_random(std::as_writable_bytes(std::span(&job, 1)));
  return job;
}

// Each rank and each host costs descriptors, and the usual soft limit is 1,024.
void raise_descriptor_limit(size_t wanted) {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= wanted) return;
  limit.rlim_cur = std::min<rlim_t>(wanted, limit.rlim_max);
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

bool is_ignored(int signal) {
  struct sigaction action {};
  return ::sigaction(signal, nullptr, &action) == 0 && action.sa_handler == SIG_IGN;
}

class Job {
 public:
  Job(const Options& options, const SlotPlan& plan, Lobby* lobby)
      : options_(options),
        plan_(plan),
        lobby_(lobby),
        loop_(lobby ? lobby->loop() : own_loop_),
        supervisor_(plan),
        secret_(lobby ? lobby->secret() : Secret::random()),
        job_(random_job()),
        signals_(loop_),
        changed_(loop_),
        give_up_(loop_),
        cause_(loop_) {}

  int run();

 private:
  // What one agent reports, with the host it speaks for.
  struct HostEvents : AgentEvents {
    HostEvents(Job& job, int host) : job(job), host(host) {}
    void on_output(int rank, OutputStream stream, ByteView bytes) override {
      job.output_->write(rank, stream, bytes);
    }
    void on_output_end(int rank, OutputStream stream) override { job.output_->end(rank, stream); }
    void on_exit(const RankExit& exit) override {
      job.act(job.supervisor_.on_exit(exit, job.left_by(exit.rank)));
    }
    void on_finished() override { job.act(job.supervisor_.on_finished(host)); }
    void on_lost(const Status& why) override { job.act(job.supervisor_.on_lost(host, why)); }
    void on_store_connection(net::StreamSocket socket) override {
      job.server_->adopt(std::move(socket));
    }
    Job& job;
    int host;
  };

  Status find_places();
  net::Task<int> run_all();
  net::Task<int> prepare();
  net::Task<void> start();
  net::Task<void> end_in_time(double seconds);
  net::Task<void> suspend();

  std::vector<HostStart> host_starts();
  HostJob host_job(int host, bool is_local) const;
  std::optional<rendezvous::ScopeSizes> plain_scopes() const;
  void watch_signals();
  void on_signal(int number);
  std::optional<int> left_by(int rank) const;
  net::Task<void> await_cause();
  void act(Supervisor::Action action);
  void end_all(double grace);
  void drop_links();

  const Options& options_;
  const SlotPlan& plan_;
  Lobby* const lobby_;
  net::asio::io_context own_loop_{1};  // destroyed after all that lives on it
  net::asio::io_context& loop_;        // the lobby's, where there is one
  Supervisor supervisor_;
  Secret secret_;
  uint64_t job_;
  std::string agent_;
  std::string directory_;
  net::asio::signal_set signals_;
  net::asio::steady_timer changed_;  // cancelled when the job's state changes
  net::asio::steady_timer give_up_;
  net::asio::steady_timer cause_;
  std::unique_ptr<Output> output_;
  std::unique_ptr<rendezvous::Server> server_;
  LocalSpawner local_;
  SshSpawner ssh_;
  std::vector<std::unique_ptr<HostEvents>> events_;
  std::unique_ptr<Preflight> preflight_;
  std::vector<std::unique_ptr<AgentLink>> links_;
  int interrupt_ = 0;  // the signal that came before anything was started
  bool suspending_ = false;
};

Status Job::find_places() {
  const std::string key = options_.settings.text("ssh_identity_file");
  if (!key.empty() && ::access(key.c_str(), R_OK) != 0) {
    return system_error(cat("cannot read the private key ", key, " given with -i"), errno);
  }
  HVD_ASSIGN_OR_RETURN(agent_, find_agent(executable_folder()));
  std::error_code error;
  directory_ = std::filesystem::current_path(error).string();
  if (error) return system_error("cannot find the current directory", error.value());
  // As the user names it: a path through links may be the only one that other hosts have.
  const std::string logical = environment_variable("PWD").value_or("");
  if (logical.starts_with('/') && std::filesystem::equivalent(logical, directory_, error)) {
    directory_ = logical;
  }
  HVD_ASSIGN_OR_RETURN(output_, Output::open(loop_.get_executor(), plan_.size(),
                                             options_.settings.text("output_filename")));
  return {};
}

int Job::run() {
  raise_descriptor_limit(64 + 8 * plan_.hosts.size() + 4 * plan_.slots.size());
  if (const Status status = find_places(); !status.ok()) return refuse(status);
  int exit_code = 0;
  net::asio::co_spawn(loop_, run_all(), [&](std::exception_ptr failure, int code) {
    if (failure) std::rethrow_exception(failure);
    exit_code = code;
    loop_.stop();
  });
  loop_.run();
  return exit_code;
}

net::Task<int> Job::run_all() {
  watch_signals();
  if (const int code = co_await prepare(); code != 0) co_return code;
  co_await start();
  while (!supervisor_.is_done()) {
    changed_.expires_at(std::chrono::steady_clock::time_point::max());
    co_await changed_.async_wait(net::use_tuple);
  }
  give_up_.cancel();
  cause_.cancel();
  if (!supervisor_.report().empty()) output_->say(supervisor_.report());
  co_await output_->drain();
  drop_links();
  co_return supervisor_.exit_code();
}

// Brings up all agents. Not 0: the exit code, and nothing was started anywhere.
net::Task<int> Job::prepare() {
  Spawner& local = lobby_ ? static_cast<Spawner&>(*lobby_) : local_;
  Spawner& remote = lobby_ ? static_cast<Spawner&>(*lobby_) : ssh_;
  preflight_ = std::make_unique<Preflight>(loop_.get_executor(), local, remote, host_starts());
  const auto errors = co_await preflight_->run(options_.settings.number("start_timeout"));
  if (interrupt_ != 0) {
    output_->say(cat("ended by ", signal_name(interrupt_), " before anything was started"));
  }
  for (const Status& error : errors) output_->say(error.message());
  if (interrupt_ != 0 || !errors.empty()) {
    co_await output_->drain();
    co_return interrupt_ != 0 ? kExitSignal + interrupt_ : kExitBadInput;
  }
  links_ = preflight_->take_links();
  co_return 0;
}

std::vector<HostStart> Job::host_starts() {
  const Settings& settings = options_.settings;
  std::vector<HostStart> starts;
  for (const Host& host : plan_.hosts) {
    const int index = static_cast<int>(starts.size());
    events_.push_back(std::make_unique<HostEvents>(*this, index));
    HostStart start;
    start.target.host = host.name;
    start.target.user = host.user;
    start.target.port = static_cast<int>(settings.integer("ssh_port"));
    start.target.identity_file = settings.text("ssh_identity_file");
    start.target.agent_path = agent_;
    start.target.agent_dir = settings.text("agent_dir");
    start.make_job = [this, index](bool is_local) {
      return host_job(index, is_local && !lobby_);
    };
    start.events = events_.back().get();
    starts.push_back(std::move(start));
  }
  return starts;
}

HostJob Job::host_job(int host, bool is_local) const {
  JobEnvironment shared;
  shared.job = job_;
  shared.secret = secret_.hex();
  shared.start_timeout = options_.settings.number("start_timeout");
  HostJob job;
  job.job = job_;
  job.host = static_cast<uint32_t>(host);
  job.host_name = plan_.hosts[static_cast<size_t>(host)].name;
  job.command = options_.command;
  job.working_directory = directory_;
  job.environment =
      overlay(overlay(host_environment(environment(), is_local),
                      flag_environment(options_.settings)),
              job_environment(shared));
  for (const Slot& slot : plan_.slots) {
    if (slot.host == host) job.ranks.push_back({slot.rank, slot_environment(plan_, slot)});
  }
  job.lease_seconds = options_.settings.number("lease");
  job.kill_grace_seconds = kGrace;
  job.insecure_compat = options_.settings.flag("insecure_compat");
  return job;
}

// Where Horovod's own workers meet, and how many; nothing when they are not let in.
std::optional<rendezvous::ScopeSizes> Job::plain_scopes() const {
  if (!options_.settings.flag("insecure_compat")) return {};
  rendezvous::ScopeSizes sizes = {{"global", plan_.size()}};
  for (const Slot& slot : plan_.slots) {
    sizes[cat("local_", plan_.hosts[static_cast<size_t>(slot.host)].name)] = slot.local_size;
    sizes[cat("cross_", slot.local_rank)] = slot.cross_size;
  }
  return sizes;
}

net::Task<void> Job::start() {
  server_ = lobby_ ? lobby_->take_server()
                   : std::make_unique<rendezvous::Server>(
                         loop_.get_executor(),
                         rendezvous::ServerOptions{.secret = secret_,
                                                   .size = plan_.size(),
                                                   .insecure_compat = plain_scopes()});
  output_->on_consumed([this](int rank, OutputStream stream, size_t size) {
    const auto host = static_cast<size_t>(plan_.slots[static_cast<size_t>(rank)].host);
    if (links_[host]) links_[host]->consumed(rank, stream, size);
  });
  output_->on_broken([this](OutputStream stream, int error) {
    // A broken standard error alone loses nothing that the user still reads.
    if (stream == OutputStream::kStdout) act(supervisor_.on_output_broken(error));
  });
  for (size_t host = 0; host < links_.size(); ++host) {
    net::asio::co_spawn(
        loop_, links_[host]->start(), [this, host](std::exception_ptr error, Status status) {
          if (error) status = internal_error("the start was cut off");
          if (status.ok() || supervisor_.is_done(static_cast<int>(host))) return;
          links_[host]->close();
          act(supervisor_.on_start_failed(static_cast<int>(host), status));
        });
  }
  co_return;
}

void Job::watch_signals() {
  for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGTSTP}) {
    // nohup's wish; an ignored SIGINT is only the mark of a shell's background job.
    if ((number == SIGHUP || number == SIGTSTP) && is_ignored(number)) continue;
    signals_.add(number);
  }
  signals_.async_wait([this](const net::error_code& error, int number) {
    if (error) return;
    on_signal(number);
    watch_signals();
  });
}

void Job::on_signal(int number) {
  if (number == SIGTSTP) {
    if (!std::exchange(suspending_, true)) {
      net::asio::co_spawn(loop_, suspend(), net::asio::detached);
    }
    return;
  }
  if (links_.empty()) {
    interrupt_ = number;
    if (preflight_) preflight_->cancel();
    return;
  }
  act(supervisor_.on_signal(number));
}

// Tells the agents that silence is no loss, and stops this process until it is continued.
net::Task<void> Job::suspend() {
  struct Telling {
    size_t left;
    net::asio::steady_timer done;
  };
  const auto telling = std::make_shared<Telling>(
      Telling{links_.size(), net::asio::steady_timer(loop_, kTimeToSuspend)});
  for (const auto& link : links_) {
    net::asio::co_spawn(loop_, link->suspend(), [telling](std::exception_ptr, Status) {
      if (--telling->left == 0) telling->done.cancel();
    });
  }
  if (telling->left > 0) co_await telling->done.async_wait(net::use_tuple);
  ::raise(SIGSTOP);
  // The links' next pings end the suspension.
  suspending_ = false;
}

std::optional<int> Job::left_by(int rank) const {
  const auto value = server_ ? server_->value(rendezvous::left_by_key(rank)) : std::nullopt;
  if (!value) return {};
  const auto peer = parse_int(as_text(*value));
  if (!peer || *peer < 0 || *peer >= plan_.size()) return {};
  return static_cast<int>(*peer);
}

net::Task<void> Job::await_cause() {
  cause_.expires_after(kTimeToLeave);
  const auto [error] = co_await cause_.async_wait(net::use_tuple);
  if (!error) act(supervisor_.on_awaited());
}

void Job::act(Supervisor::Action action) {
  switch (action) {
    case Supervisor::Action::kNone: break;
    case Supervisor::Action::kAwait:
      net::asio::co_spawn(loop_, await_cause(), net::asio::detached);
      break;
    case Supervisor::Action::kEnd: end_all(kGrace); break;
    case Supervisor::Action::kKill:
      output_->discard_stalled();
      end_all(0);
      break;
  }
  changed_.cancel();
}

void Job::end_all(double grace) {
  for (size_t host = 0; host < links_.size(); ++host) {
    if (!supervisor_.is_done(static_cast<int>(host))) links_[host]->end(grace);
  }
  net::asio::co_spawn(loop_, end_in_time(grace + kBeyondGrace), net::asio::detached);
}

// Agents end their ranks by themselves once their link is gone, so nobody need wait for one that
// does not answer. But one that waits for a stalled terminal to take the last output is no such.
net::Task<void> Job::end_in_time(double seconds) {
  give_up_.expires_after(std::chrono::duration_cast<std::chrono::nanoseconds>(
      std::chrono::duration<double>(seconds)));
  const auto [error] = co_await give_up_.async_wait(net::use_tuple);
  if (error) co_return;
  if (output_->is_stalled()) {
    co_await output_->drain();
    if (!supervisor_.is_done()) co_await end_in_time(seconds);
    co_return;
  }
  for (size_t host = 0; host < links_.size(); ++host) {
    if (supervisor_.is_done(static_cast<int>(host))) continue;
    output_->say(cat("host ", plan_.hosts[host].name, " has not confirmed that its ranks ended"));
    links_[host]->close();
    act(supervisor_.on_lost(static_cast<int>(host), unavailable("it does not answer")));
  }
}

void Job::drop_links() {
  for (const auto& link : links_) link->close();
}

}  // namespace

int run_job(const Options& options, const SlotPlan& plan, Lobby* lobby) {
  log::set_identity("horovodrun");
  log::set_timestamps(false);
  if (log::Level level; log::parse_level(options.settings.text("log_level"), level)) {
    log::set_level(level);
  }
  if (options.settings.flag("verbose")) log::set_level(log::Level::kInfo);
  // A local agent starts with this process's environment.
  for (const auto& [name, value] : environment()) {
    if (host_environment({{name, value}}, true).empty()) forget_environment_variable(name);
  }
  std::signal(SIGPIPE, SIG_IGN);
  return Job(options, plan, lobby).run();
}

}  // namespace hvd::launcher
