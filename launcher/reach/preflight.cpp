#include "launcher/reach/preflight.h"

#include <pwd.h>
#include <unistd.h>

#include <algorithm>

#include "base/check.h"
#include "base/text.h"
#include "launcher/output/report.h"
#include "launcher/plan/rank_set.h"
#include "launcher/spawn/name_lookup.h"
#include "launcher/spawn/ssh/hang_up.h"
#include "net/asio.h"

namespace hvd::launcher {
namespace {

// Seconds that the other hosts get after the first failure, and seconds that abandoned hosts get to end.
constexpr double kAfterFailure = 2;
constexpr double kAfterCancel = 1;

// The share of --start-timeout for "resolve" and "connect", which take far less than a second when they
// work. Other stages have no limit except --start-timeout for all stages. The launcher passes no time limit
// to ssh.
constexpr double kShareOfShortStages = 0.5;

std::string_view stage_of(const HostRun& host) {
  return host.state() <= HostState::kConnecting ? to_string(host.stage()) : "prepare";
}

bool is_short(SpawnStage stage) {
  return stage == SpawnStage::kResolve || stage == SpawnStage::kConnect;
}

// Returns the likely cause of a stage that takes too long. `try_command`: a command that shows more, or empty.
std::string likely_cause(const HostRun& host, const std::string& try_command) {
  const std::string seen = try_command.empty() ? "" : cat("; run '", try_command, "' to see it");
  if (host.state() != HostState::kConnecting)
    return "its --remote-init, its Python or a file system hangs, or the network is slow";
  switch (host.stage()) {
    case SpawnStage::kConfigure:
      return cat("a command or a name look-up of the ssh configuration hangs", seen);
    case SpawnStage::kResolve:
      return "no name service answers";
    case SpawnStage::kConnect:
      return "nothing answers at its ssh port: it is down, or a firewall drops the packets";
    case SpawnStage::kRetry:
      return std::string(kCrowded);
    case SpawnStage::kAuthenticate:
      return "its sshd is overloaded, or waits for a name service";
    case SpawnStage::kSendAgent:
      return cat("~/.bashrc or another start file of its login shell may wait for input", seen,
                 "; if its disk or the network is slow, HOROVOD_AGENT_DIR names another disk");
    case SpawnStage::kStartAgent:
    case SpawnStage::kReady:
      break;
  }
  return "it is slow";
}

// Returns how the host's agent starts, for --verbose.
std::string way_to(const SpawnTarget& target, bool is_local) {
  if (is_local) return "it is this machine, so its agent is a child of the launcher";
  if (target.is_step) return "it is a node of the Slurm job, so srun starts its agent";
  if (!target.command.empty()) return cat("--launch-agent starts its agent: ", target.command);
  return cat("it is another machine, so ssh starts its agent",
             target.user.empty() ? "" : cat(", as user ", target.user),
             target.port == 0 ? "" : cat(", at port ", target.port));
}

std::string_view reason_of(SpawnStage stage) {
  switch (stage) {
    case SpawnStage::kConfigure:
      return ": read the settings of ssh for it";
    case SpawnStage::kResolve:
      return ": look up its address";
    case SpawnStage::kConnect:
      return ": reach its sshd";
    case SpawnStage::kRetry:
      return ": its sshd closed the connection before the key exchange";
    case SpawnStage::kAuthenticate:
      return ": log in";
    case SpawnStage::kSendAgent:
      return ": copy horovod-agent, unless an earlier job did";
    case SpawnStage::kStartAgent:
      return ": run horovod-agent, which checks the program and starts the ranks";
    case SpawnStage::kReady:
      break;
  }
  return "";
}

// Returns whether `user` is not the launcher's own account. A child of the launcher cannot run in another account.
bool is_somebody_else(const std::string& user) {
  if (user.empty()) return false;
  const passwd* self = ::getpwuid(::geteuid());
  return self == nullptr || user != self->pw_name;
}

}  // namespace

struct Preflight::Attempt {
  Attempt(HostStart start, double timeout_seconds)
      : start(std::move(start)), timeout_seconds(timeout_seconds) {}

  HostRun& host() const { return *start.host; }
  double short_limit() const { return timeout_seconds * kShareOfShortStages; }
  // A stage ends by its own limit or by the limit for all stages, which wait_for_all() applies.
  void enter(SpawnStage stage) {
    host().enter(stage,
                 is_short(stage) ? Deadline::after_seconds(short_limit()) : Deadline::never());
  }
  void abandon() {
    if (link) link->close();
    cancel.emit(net::asio::cancellation_type::terminal);
  }

  const HostStart start;
  const double timeout_seconds;
  std::string try_command;
  std::shared_ptr<AgentLink> link;  // moved to the host by HostRun::hold()
  net::asio::cancellation_signal cancel;
  bool is_over = false;  // the attempt has ended or was abandoned
  bool is_getting_environment = false;
  Status status;
};

// The attempts of one run() call.
struct Preflight::Attempts {
  explicit Attempts(const net::asio::any_io_executor& executor) : changed(executor) {}

  std::vector<std::shared_ptr<Attempt>> all;
  net::asio::steady_timer changed;
  bool is_cancelled = false;
  bool is_abandoned = false;  // hosts that end later are dropped
};

Preflight::Preflight(net::asio::any_io_executor executor, Spawner& local, Spawner& remote)
    : executor_(std::move(executor)), local_(local), remote_(remote) {}

// Unfinished coroutines of the loop may keep the attempts alive longer than the hosts, so destroy the links here.
Preflight::~Preflight() {
  for (const auto& attempts : running_) {
    for (const auto& attempt : attempts->all) attempt->link.reset();
  }
}

net::Task<Status> Preflight::bring_up(std::shared_ptr<Attempt> attempt) {
  HostRun& host = attempt->host();
  const HostStart& start = attempt->start;
  bool is_local = co_await is_local_host(host.name());
  if (is_somebody_else(start.target.user) || !start.target.may_be_local) is_local = false;
  Spawner& spawner = is_local ? local_ : remote_;
  attempt->try_command = spawner.try_command(start.target);
  explain(cat("host ", host.name(), ": ", way_to(start.target, is_local)));
  auto duplex = co_await spawner.spawn(start.target, [&attempt = *attempt](SpawnStage stage) {
    attempt.enter(stage);
    if (stage == SpawnStage::kReady) return;
    explain(cat("host ", attempt.host().name(), ": ", to_string(stage), reason_of(stage)));
  });
  if (!duplex.ok()) co_return duplex.status();
  host.advance(HostState::kConnecting, HostState::kPreparing, HostCause::kConnected);
  attempt->link = AgentLink::open(executor_, *std::move(duplex), host.events());
  const HostJob job = start.make_job(is_local);
  AgentLink::NextPart code;
  if (start.code) {
    code = [parts = std::make_shared<StagedParts>(start.code->entries, "--stage")] {
      return parts->next();
    };
  }
  AgentLink::Environment environment;
  if (start.environment) {
    environment = [attempt = attempt.get()](EnvironmentWanted wanted) {
      attempt->is_getting_environment = true;
      return attempt->start.environment(std::move(wanted));
    };
  }
  Status status =
      co_await attempt->link->prepare(job, std::move(code), start.package, std::move(environment));
  if (status.ok()) {
    const auto count = static_cast<int64_t>(job.ranks.size());
    explain(cat("host ", host.name(), ": ready for ", count_of_ranks(count)));
  }
  co_return status;
}

void Preflight::finish(Attempts& attempts, Attempt& attempt, Status status) {
  if (std::exchange(attempt.is_over, true)) return;
  HostRun& host = attempt.host();
  if (status.ok()) {
    host.hold(std::move(attempt.link));
  } else {
    attempt.status = status.with_context(cat("host ", host.name(), ": ", stage_of(host)));
    const bool is_drop = attempts.is_abandoned;
    if (!host.is_over()) {
      host.to(is_drop ? HostState::kDone : HostState::kLost,
              is_drop ? HostCause::kDrop : HostCause::kLost);
    }
  }
  attempts.changed.cancel();
}

net::Task<std::vector<Status>> Preflight::run(std::vector<HostStart> hosts,
                                              double timeout_seconds) {
  const auto attempts = std::make_shared<Attempts>(executor_);
  running_.push_back(attempts);
  Deadline deadline = Deadline::after_seconds(timeout_seconds);
  for (HostStart& host : hosts) {
    const auto attempt = std::make_shared<Attempt>(std::move(host), timeout_seconds);
    attempts->all.push_back(attempt);
    attempt->host().advance(HostState::kPlanned, HostState::kConnecting, HostCause::kReach);
    attempt->enter(SpawnStage::kResolve);
    net::asio::co_spawn(executor_, bring_up(attempt),
                        net::asio::bind_cancellation_slot(
                            attempt->cancel.slot(),
                            [this, attempts, attempt](std::exception_ptr error, Status status) {
                              if (error) status = net::status_of(error, "cancelled");
                              finish(*attempts, *attempt, std::move(status));
                            }));
  }
  co_await wait_for_all(*attempts, deadline, timeout_seconds);
  if (deadline.passed()) give_up_all(*attempts, timeout_seconds);
  std::vector<Status> errors;
  for (const auto& attempt : attempts->all) {
    if (attempt->is_over && !attempt->status.ok()) errors.push_back(attempt->status);
  }
  if (!errors.empty() || attempts->is_cancelled) {
    attempts->is_abandoned = true;
    for (const auto& attempt : attempts->all) {
      if (!attempt->is_over) attempt->abandon();
    }
    deadline = Deadline::after_seconds(kAfterCancel);
    co_await wait_for_all(*attempts, deadline, timeout_seconds);
    for (const auto& attempt : attempts->all) {
      HostRun& host = attempt->host();
      if (!host.is_over()) host.to(HostState::kDone, HostCause::kDrop);
      host.close();
      attempt->link.reset();
    }
  }
  std::erase(running_, attempts);
  co_return errors;
}

// Waits until all hosts are done, but not beyond the deadline, kAfterFailure seconds after the first failure, or
// cancel(). Moves the deadline while all hosts that are not done get their environment.
net::Task<void> Preflight::wait_for_all(Attempts& attempts, Deadline& deadline,
                                        double timeout_seconds) {
  Deadline soon = Deadline::never();
  for (;;) {
    const Deadline next = attempts.is_abandoned ? Deadline::never() : give_up_late_ones(attempts);
    const auto is_over = [](const auto& attempt) { return attempt->is_over; };
    const auto gets_environment = [](const auto& attempt) {
      return attempt->is_over || attempt->is_getting_environment;
    };
    const bool has_failure = std::ranges::any_of(attempts.all, [](const auto& attempt) {
      return attempt->is_over && !attempt->status.ok();
    });
    if (has_failure && soon.time() == Deadline::never().time()) {
      soon = Deadline::after_seconds(kAfterFailure);
    }
    if (!has_failure && !attempts.is_abandoned &&
        std::ranges::all_of(attempts.all, gets_environment)) {
      deadline = Deadline::after_seconds(timeout_seconds);
    }
    if (std::ranges::all_of(attempts.all, is_over) || deadline.passed() || soon.passed()) co_return;
    if (attempts.is_cancelled && !attempts.is_abandoned) co_return;
    attempts.changed.expires_at(std::min({deadline.time(), soon.time(), next.time()}));
    co_await attempts.changed.async_wait(net::use_tuple);
  }
}

// Abandons late hosts. Returns the time at which the next host may be late.
Deadline Preflight::give_up_late_ones(Attempts& attempts) {
  Deadline next = Deadline::never();
  for (const auto& attempt : attempts.all) {
    if (attempt->is_over) continue;
    const HostRun& host = attempt->host();
    const Deadline limit = host.deadline();
    // The launcher may order the end of a host that has no link yet.
    const bool is_ending = host.state() == HostState::kEnding && host.link() == nullptr;
    if (host.state() != HostState::kConnecting && !is_ending) continue;
    if (limit.passed())
      give_up(attempts, *attempt, attempt->short_limit());
    else if (limit.time() < next.time())
      next = limit;
  }
  return next;
}

// Called at the deadline. If some hosts have not requested the environment, abandons only them: other hosts may wait
// for them.
void Preflight::give_up_all(Attempts& attempts, double seconds) {
  const auto has_not_asked = [](const auto& attempt) {
    return !attempt->is_over && !attempt->is_getting_environment;
  };
  const bool waits_for_others = std::ranges::any_of(attempts.all, has_not_asked);
  for (const auto& attempt : attempts.all) {
    if (attempt->is_over || (waits_for_others && !has_not_asked(attempt))) continue;
    give_up(attempts, *attempt, seconds);
  }
}

void Preflight::give_up(Attempts& attempts, Attempt& attempt, double seconds) {
  finish(attempts, attempt,
         deadline_exceeded(cat("not done after ", seconds,
                               " s: ", likely_cause(attempt.host(), attempt.try_command),
                               "; --start-timeout allows more")));
  attempt.abandon();
}

void Preflight::cancel() {
  for (const auto& attempts : running_) {
    attempts->is_cancelled = true;
    attempts->changed.cancel();
  }
}

std::vector<HostProgress> progress_of(const HostTable& hosts) {
  std::vector<HostProgress> progress;
  for (const HostRun& host : hosts.hosts()) {
    const std::chrono::duration<double> seconds = Clock::now() - host.since();
    progress.push_back({host.name(), std::string(host.is_over() ? "failed" : stage_of(host)),
                        seconds.count(), host.link() != nullptr});
  }
  return progress;
}

}  // namespace hvd::launcher
