#include "launcher/preflight.h"

#include <pwd.h>
#include <unistd.h>

#include <algorithm>

#include "base/check.h"
#include "base/log.h"
#include "base/text.h"
#include "launcher/spawn/name_lookup.h"

namespace hvd::launcher {
namespace {

// How long others may go on after the first failure, and how long cancelled ones may take.
constexpr double kAfterFailure = 2;
constexpr double kAfterCancel = 1;

// Only ssh makes a rank another user's.
bool is_somebody_else(const std::string& user) {
  if (user.empty()) return false;
  const passwd* self = ::getpwuid(::geteuid());
  return self == nullptr || user != self->pw_name;
}

}  // namespace

struct Preflight::Progress {
  HostStart start;
  std::string stage = "resolve";
  std::unique_ptr<AgentLink> link;
  net::asio::cancellation_signal cancel;
  bool done = false;
  Status status;

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
  if (is_somebody_else(host.start.target.user)) is_local = false;
  Spawner& spawner = is_local ? local_ : remote_;
  auto duplex = co_await spawner.spawn(host.start.target, [&host](SpawnStage stage) {
    host.stage = to_string(stage);
    if (stage != SpawnStage::kReady) log::info(cat("host ", host.name(), ": ", host.stage));
  });
  if (!duplex.ok()) co_return duplex.status();
  host.stage = "prepare";
  host.link = std::make_unique<AgentLink>(executor_, *std::move(duplex), *host.start.events);
  const HostJob job = host.start.make_job(is_local);
  Status status = co_await host.link->prepare(job);
  if (status.ok()) log::info(cat("host ", host.name(), ": ready for ", job.ranks.size(), " ranks"));
  co_return status;
}

net::Task<std::vector<Status>> Preflight::run(double timeout_seconds) {
  for (const auto& host : hosts_) {
    net::asio::co_spawn(
        executor_, bring_up(*host),
        net::asio::bind_cancellation_slot(
            host->cancel.slot(), [this, &host = *host](std::exception_ptr error, Status status) {
              host.done = true;
              if (error) status = internal_error("cancelled");
              host.status = status.ok() ? status : host.error(status);
              changed_.cancel();
            }));
  }
  const Deadline deadline = Deadline::after_seconds(timeout_seconds);
  co_await wait_for_all(deadline);
  std::vector<Status> errors;
  for (const auto& host : hosts_) {
    if (host->done && !host->status.ok()) {
      errors.push_back(host->status);
    } else if (!host->done && deadline.passed()) {
      errors.push_back(host->error(deadline_exceeded(
          cat("not done after ", timeout_seconds, " s; --start-timeout allows more"))));
    }
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

// Returns when all hosts are done, at the deadline, or a moment after the first failure.
net::Task<void> Preflight::wait_for_all(Deadline deadline) {
  const bool was_cancelled = cancelled_;
  for (;;) {
    const auto is_done = [](const auto& host) { return host->done; };
    const auto has_failed = [](const auto& host) { return host->done && !host->status.ok(); };
    if (std::all_of(hosts_.begin(), hosts_.end(), is_done) || deadline.passed()) co_return;
    if (cancelled_ && !was_cancelled) co_return;
    if (std::any_of(hosts_.begin(), hosts_.end(), has_failed)) {
      const Deadline soon = Deadline::after_seconds(kAfterFailure);
      if (soon.time() < deadline.time()) deadline = soon;
    }
    changed_.expires_at(deadline.time());
    co_await changed_.async_wait(net::use_tuple);
  }
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
