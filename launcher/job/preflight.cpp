#include "launcher/job/preflight.h"

#include <pwd.h>
#include <unistd.h>

#include <algorithm>

#include "base/check.h"
#include "base/text.h"
#include "launcher/output/verbose.h"
#include "launcher/plan/rank_set.h"
#include "launcher/spawn/name_lookup.h"
#include "rendezvous/server/thrown.h"

namespace hvd::launcher {
namespace {

// Seconds for the other hosts after the first failure, and for hosts that were cancelled.
constexpr double kAfterFailure = 2;
constexpr double kAfterCancel = 1;

// The share of --start-timeout for "resolve" and "connect", which take well under a second when
// they work. The other stages have no limit but --start-timeout as a whole. The launcher passes no
// time limit to ssh.
constexpr double kShareOfShortStages = 0.5;

// The likely cause of a stage that does not end. `try_command`: a command that shows more, or empty.
std::string likely_cause(std::string_view stage, const std::string& try_command) {
  const std::string seen = try_command.empty() ? "" : cat("; run '", try_command, "' to see it");
  if (stage == "configure") {
    return cat("a command or a name look-up of the ssh configuration hangs", seen);
  }
  if (stage == "resolve") return "no name service answers about it";
  if (stage == "connect") {
    return "nothing answers at its ssh port: it is down, or a firewall drops what is sent there";
  }
  if (stage == "authenticate") return "its sshd is overloaded, or waits for a name service itself";
  if (stage == "send agent") {
    return cat("~/.bashrc or another start file of its login shell may wait for input", seen,
               "; if its disk or the network is slow, HOROVOD_AGENT_DIR names another disk");
  }
  if (stage == "prepare") return "its --remote-init, its Python or a file system hangs";
  return "it is slow";
}

// For --verbose.
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
      return ": look its address up";
    case SpawnStage::kConnect:
      return ": reach its sshd";
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

// Whether the ranks run as another user, which only ssh can do.
bool is_somebody_else(const std::string& user) {
  if (user.empty()) return false;
  const passwd* self = ::getpwuid(::geteuid());
  return self == nullptr || user != self->pw_name;
}

}  // namespace

struct Preflight::Progress {
  HostStart start;
  std::string stage = "resolve";
  std::string try_command;
  Clock::time_point since = Clock::now();  // the start of that stage
  std::unique_ptr<AgentLink> link;
  net::asio::cancellation_signal cancel;
  bool done = false;  // or given up
  Status status;

  void enter(std::string_view next) {
    stage = next;
    since = Clock::now();
  }
  const std::string& name() const { return start.target.host; }
  Status error(const Status& status) const {
    return status.with_context(cat("host ", name(), ": ", stage));
  }
};

Preflight::Preflight(net::asio::any_io_executor executor, Spawner& local, Spawner& remote,
                     std::vector<HostStart> hosts)
    : executor_(executor), local_(local), remote_(remote), changed_(executor) {
  for (HostStart& host : hosts) {
    hosts_.push_back(std::make_unique<Progress>());
    hosts_.back()->start = std::move(host);
  }
}

Preflight::~Preflight() = default;

net::Task<Status> Preflight::bring_up(Progress& host) {
  bool is_local = co_await is_local_host(host.name());
  if (is_somebody_else(host.start.target.user) || !host.start.target.may_be_local) is_local = false;
  Spawner& spawner = is_local ? local_ : remote_;
  host.try_command = spawner.try_command(host.start.target);
  explain(cat("host ", host.name(), ": ", way_to(host.start.target, is_local)));
  auto duplex = co_await spawner.spawn(host.start.target, [&host](SpawnStage stage) {
    host.enter(to_string(stage));
    if (stage == SpawnStage::kReady) return;
    explain(cat("host ", host.name(), ": ", host.stage, reason_of(stage)));
  });
  if (!duplex.ok()) co_return duplex.status();
  host.enter("prepare");
  host.link = std::make_unique<AgentLink>(executor_, *std::move(duplex), *host.start.events);
  const HostJob job = host.start.make_job(is_local);
  AgentLink::NextPart code;
  if (host.start.code) {
    code = [parts = std::make_shared<StagedParts>(*host.start.code)] { return parts->next(); };
  }
  Status status = co_await host.link->prepare(job, std::move(code));
  if (status.ok()) {
    const auto count = static_cast<int64_t>(job.ranks.size());
    explain(cat("host ", host.name(), ": ready for ", count_of_ranks(count)));
  }
  co_return status;
}

net::Task<std::vector<Status>> Preflight::run(double timeout_seconds) {
  for (const auto& host : hosts_) {
    net::asio::co_spawn(
        executor_, bring_up(*host),
        net::asio::bind_cancellation_slot(
            host->cancel.slot(), [this, &host = *host](std::exception_ptr error, Status status) {
              if (std::exchange(host.done, true)) return;
              if (error) status = rendezvous::status_of(error, "cancelled");
              host.status = status.ok() ? status : host.error(status);
              changed_.cancel();
            }));
  }
  const Deadline deadline = Deadline::after_seconds(timeout_seconds);
  seconds_ = timeout_seconds;
  co_await wait_for_all(deadline);
  std::vector<Status> errors;
  for (size_t index = 0; index < hosts_.size(); ++index) {
    const auto& host = hosts_[index];
    if (!host->done && deadline.passed()) give_up(*host, timeout_seconds);
    if (!host->done || host->status.ok()) continue;
    failed_hosts_.push_back(static_cast<int>(index));
    errors.push_back(host->status);
  }
  const bool failed = !errors.empty() || cancelled_;
  if (failed) {
    abandon_unfinished();
    co_await wait_for_all(Deadline::after_seconds(kAfterCancel));
    for (const auto& host : hosts_) {
      if (host->link) host->link->close();
    }
  }
  co_return errors;
}

// Returns when all hosts are done, at the deadline, or kAfterFailure seconds after the first failure.
net::Task<void> Preflight::wait_for_all(Deadline deadline) {
  const bool was_cancelled = cancelled_;
  for (;;) {
    const Deadline next = give_up_late_ones();
    const auto is_done = [](const auto& host) { return host->done; };
    const auto has_failed = [](const auto& host) { return host->done && !host->status.ok(); };
    if (std::all_of(hosts_.begin(), hosts_.end(), is_done) || deadline.passed()) co_return;
    if (cancelled_ && !was_cancelled) co_return;
    if (std::any_of(hosts_.begin(), hosts_.end(), has_failed)) {
      const Deadline soon = Deadline::after_seconds(kAfterFailure);
      if (soon.time() < deadline.time()) deadline = soon;
    }
    changed_.expires_at(std::min(deadline.time(), next.time()));
    co_await changed_.async_wait(net::use_tuple);
  }
}

// Returns the time at which the next host may be late.
Deadline Preflight::give_up_late_ones() {
  const double most = seconds_ * kShareOfShortStages;
  Deadline next = Deadline::never();
  for (const auto& host : hosts_) {
    if (host->done || (host->stage != "resolve" && host->stage != "connect")) continue;
    const Deadline limit = Deadline::at(host->since + std::chrono::duration_cast<Clock::duration>(
                                                          std::chrono::duration<double>(most)));
    if (limit.passed())
      give_up(*host, most);
    else if (limit.time() < next.time())
      next = limit;
  }
  return next;
}

void Preflight::give_up(Progress& host, double seconds) {
  host.done = true;
  host.status = host.error(deadline_exceeded(cat("not done after ", seconds,
                                                 " s: ", likely_cause(host.stage, host.try_command),
                                                 "; --start-timeout allows more")));
  if (host.link) host.link->close();
  host.cancel.emit(net::asio::cancellation_type::terminal);
}

std::vector<HostProgress> Preflight::progress() const {
  std::vector<HostProgress> progress;
  for (const auto& host : hosts_) {
    const std::chrono::duration<double> seconds = Clock::now() - host->since;
    progress.push_back({host->name(), host->done ? "failed" : host->stage, seconds.count(),
                        host->done && host->status.ok()});
  }
  return progress;
}

void Preflight::abandon_unfinished() {
  for (const auto& host : hosts_) {
    if (host->done) continue;
    if (host->link) host->link->close();
    host->cancel.emit(net::asio::cancellation_type::terminal);
  }
}

void Preflight::cancel() {
  cancelled_ = true;
  changed_.cancel();
}

std::vector<std::unique_ptr<AgentLink>> Preflight::take_links() {
  std::vector<std::unique_ptr<AgentLink>> links;
  for (const auto& host : hosts_) {
    HVD_CHECK(host->link != nullptr);
    links.push_back(std::move(host->link));
  }
  return links;
}

}  // namespace hvd::launcher
