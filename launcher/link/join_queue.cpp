#include "launcher/link/join_queue.h"

#include <algorithm>
#include <array>

#include "base/limits/descriptor_limit.h"
#include "base/log/log.h"
#include "base/text.h"
#include "launcher/protocol/protocol.h"
#include "launcher/protocol/record.h"
#include "launcher/protocol/token_proof.h"

namespace hvd::launcher {
namespace {

namespace asio = net::asio;

// The time limit for an agent to prove that it has the token.
constexpr std::chrono::seconds kAdmission{10};
// The time limit for sending the last sentence to the waiting agents.
constexpr std::chrono::seconds kLastSentence{2};
// The interval of pings, well within an agent's first lease.
constexpr std::chrono::seconds kPingEvery{15};

std::string names_of(const std::vector<Host>& hosts) {
  std::vector<std::string> names;
  names.reserve(hosts.size());
  for (const Host& host : hosts) names.push_back(host.name);
  return join(names, ", ");
}

int slots_of(const std::vector<Host>& hosts) {
  int slots = 0;
  for (const Host& host : hosts) slots += host.slots;
  return slots;
}

}  // namespace

JoinQueue::JoinQueue(asio::io_context& loop, std::unique_ptr<rendezvous::Server> server,
                     const Secret& token, JobIdentity identity, Wanted wanted)
    : loop_(loop),
      server_(std::move(server)),
      token_(wanted.is_plaintext ? plaintext_token(token) : token),
      identity_(std::move(identity)),
      wanted_(std::move(wanted)),
      changed_(loop),
      pinged_(loop) {
  server_->on_agent(
      [this](net::AcceptedSocket socket) { spawn_bounded(receive(std::move(socket))); });
  on_change();
}

JoinQueue::~JoinQueue() = default;

struct JoinQueue::Caller {
  explicit Caller(asio::io_context& loop) : limit(loop, kAdmission) {}
  void end() { cancel.emit(asio::cancellation_type::terminal); }
  asio::cancellation_signal cancel;
  asio::steady_timer limit;
};

void JoinQueue::spawn_bounded(net::Task<void> task) {
  std::erase_if(callers_, [](const auto& caller) { return caller.expired(); });
  const size_t wanted = wanted_.hosts.empty() ? static_cast<size_t>(std::max(wanted_.slots, 0))
                                              : wanted_.hosts.size();
  if (callers_.size() >= descriptor_share(kMostUnproven) + wanted) {
    // Cancel the oldest caller, which has had the most time.
    callers_.front().lock()->end();
    callers_.pop_front();
  }
  const auto caller = std::make_shared<Caller>(loop_);
  callers_.push_back(caller);
  caller->limit.async_wait([caller](const net::error_code& error) {
    if (!error) caller->end();
  });
  asio::co_spawn(loop_, std::move(task),
                 asio::bind_cancellation_slot(caller->cancel.slot(), [caller](std::exception_ptr) {
                   caller->limit.cancel();
                 }));
}

net::Task<void> JoinQueue::receive(net::AcceptedSocket socket) {
  Bytes token = to_bytes(token_.hex());
  auto agent = co_await admit(std::move(socket), std::move(token));
  if (!agent.ok())
    refused_.report(agent.status().message());
  else if (auto* admitted = std::get_if<AdmittedAgent>(&*agent))
    take(std::move(*admitted));
  else
    co_await take(std::get<ReturnedAgent>(std::move(*agent)));
}

net::Task<void> JoinQueue::take(ReturnedAgent agent) {
  Status status = failed_precondition("it runs no job yet");
  if (resume_) status = co_await resume_(agent.duplex, agent.offer, agent.challenge);
  if (status.ok()) co_return;
  refused_.report(cat("the link of an agent did not resume: ", status.message()));
  reject(std::move(agent.duplex), status.message());
}

void JoinQueue::take(AdmittedAgent agent) {
  const auto hosts = parse_hosts(agent.name);
  if (!hosts.ok() || hosts->size() != 1) {
    log::warning(cat("an agent joined as '", printable(agent.name),
                     "', which is not a host name; start it "
                     "with another --name"));
    return reject(std::move(agent.duplex), "its name is not a host name; give it another --name");
  }
  if (is_closed_) return reject(std::move(agent.duplex), "the job ends");
  if (is_complete() && !wanted_.stays_open) {
    return reject(std::move(agent.duplex), "the job has the hosts that it needs");
  }
  const Host& host = hosts->front();
  const std::string name = printable(host.name);
  if (const Status status = check_agent_version(agent.version); !status.ok()) {
    log::warning(cat("host ", name, ": ", status.message()));
    return reject(std::move(agent.duplex), status.message());
  }
  if (!wanted_.hosts.empty() && find_wanted(host.name) == nullptr) {
    strangers_.insert(name);
    log::warning(cat("an agent joined as '", name, "', but this job awaits ",
                     names_of(wanted_.hosts),
                     "; start it with one of these names (--name), or add it to "
                     "-H"));
    return reject(std::move(agent.duplex),
                  cat("the job awaits ", names_of(wanted_.hosts), ", not '", name,
                      "'; give the agent one of these names with --name"));
  }
  // The earlier agent with this name may have disappeared without closing its connection.
  const auto same = std::find_if(joined_.begin(), joined_.end(), [&](const auto& other) {
    return other->host.name == host.name && other->duplex;
  });
  if (same != joined_.end()) {
    log::warning(cat("host ", name,
                     " joined again; if these are two hosts, start each agent with its "
                     "own --name"));
    reject_after_ping(
        **same, cat("another agent joined as '", name,
                    "' and took its place; if these are two hosts, start each agent with its own "
                    "--name"));
    joined_.erase(same);
  }
  joined_.push_back(std::make_shared<Joined>(Joined{host, std::move(agent.duplex)}));
  log::info(cat("host ", name, " joined with ", host.slots, " slots"));
  on_change();
  changed_.cancel();
  if (notify_) notify_();
}

net::Task<void> JoinQueue::ping_until_closed() {
  asio::steady_timer timer(loop_);
  while (!is_closed_) {
    timer.expires_after(kPingEvery);
    co_await timer.async_wait(net::use_tuple);
    if (is_closed_) co_return;
    const size_t before = joined_.size();
    co_await ping_all();
    if (joined_.size() != before && notify_ && !is_closed_) notify_();
  }
}

void JoinQueue::remove(const std::string& name) {
  std::erase_if(joined_,
                [&](const auto& joined) { return joined->host.name == name && !joined->duplex; });
  on_change();
}

void JoinQueue::close() {
  if (std::exchange(is_closed_, true)) return;
  for (const auto& joined : joined_) {
    if (joined->duplex) reject_after_ping(*joined, "the job ends");
  }
}

void JoinQueue::end_waiting() {
  close();
  loop_.restart();
  const auto is_answered = [](const auto& caller) { return caller.expired(); };
  const auto limit = std::chrono::steady_clock::now() + kLastSentence;
  while (!std::ranges::all_of(callers_, is_answered) && loop_.run_one_until(limit) > 0) continue;
}

void JoinQueue::reject_after_ping(Joined& joined, const std::string& why) {
  if (joined.is_pinged)
    joined.rejection = why;
  else
    reject(std::move(joined.duplex), why);
}

void JoinQueue::reject(std::unique_ptr<Duplex> duplex, const std::string& why) {
  // Wait until the agent, which reads the sentence, closes the connection. Closing it here might discard the sentence.
  const auto send = [](std::unique_ptr<Duplex> agent, Bytes frame) -> net::Task<void> {
    std::array<std::byte, 1024> ignored;
    if (!(co_await agent->write(frame)).ok()) co_return;
    for (Result<size_t> size = 1; size.ok() && *size > 0;)
      size = co_await agent->read_some(ignored);
  };
  spawn_bounded(send(std::move(duplex), framed(Failed{why})));
}

void JoinQueue::on_change() {
  if (!server_) return;  // the job has taken the server
  std::vector<rendezvous::JoinedHost> hosts;
  for (const auto& joined : joined_) {
    const Host* wanted = find_wanted(joined->host.name);
    hosts.push_back(
        {joined->host.name, wanted ? wanted->slots : joined->host.slots, joined->since});
  }
  server_->show_hosts(wanted_.hosts.empty() ? wanted_.slots : slots_of(wanted_.hosts),
                      std::move(hosts));
}

const Host* JoinQueue::find_wanted(const std::string& name) const {
  for (const Host& host : wanted_.hosts) {
    if (host.name == name) return &host;
  }
  return nullptr;
}

bool JoinQueue::has(const std::string& name) const {
  return std::any_of(joined_.begin(), joined_.end(),
                     [&](const auto& joined) { return joined->host.name == name; });
}

bool JoinQueue::is_complete() const {
  if (wanted_.hosts.empty()) return slots_of(hosts()) >= wanted_.slots;
  return std::all_of(wanted_.hosts.begin(), wanted_.hosts.end(),
                     [&](const Host& host) { return has(host.name); });
}

std::string JoinQueue::describe_wanted() const {
  if (!wanted_.hosts.empty()) return cat("the hosts ", names_of(wanted_.hosts));
  return cat("hosts that provide ", wanted_.slots, wanted_.slots == 1 ? " slot" : " slots");
}

std::string JoinQueue::describe_missing() const {
  if (wanted_.hosts.empty()) {
    std::vector<std::string> there;
    for (const auto& joined : joined_)
      there.push_back(cat(joined->host.name, ":", joined->host.slots));
    return cat("only ", slots_of(hosts()), " of ", wanted_.slots, " slots joined",
               there.empty() ? "" : cat(" (", join(there, ", "), ")"));
  }
  return cat(names_of(missing_hosts()), " did not join");
}

std::vector<Host> JoinQueue::missing_hosts() const {
  std::vector<Host> missing;
  for (const Host& host : wanted_.hosts) {
    if (!has(host.name)) missing.push_back(host);
  }
  return missing;
}

std::string JoinQueue::advice() const {
  std::string text;
  if (!strangers_.empty()) {
    const std::vector<std::string> names(strangers_.begin(), strangers_.end());
    text = cat("agents joined under other names: ", join(names, ", "), "; ");
  }
  const std::vector<Host> missing = missing_hosts();
  if (missing.size() == 1) {
    return cat(text, "run there: ", wanted_.join_command, " --name ", missing.front().name);
  }
  return cat(text, "run on each ",
             missing.empty() ? "host: " : "of them, with its name: ", wanted_.join_command,
             missing.empty() ? "" : " --name NAME");
}

net::Task<Status> JoinQueue::wait(double seconds) {
  const Deadline deadline = Deadline::after_seconds(seconds);
  while (!is_complete()) {
    if (deadline.passed()) {
      co_return deadline_exceeded(cat(
          describe_missing(), " within ", seconds, " s; ", advice(), "; or allow more time with ",
          wanted_.stays_open ? "--elastic-timeout" : "--start-timeout"));
    }
    changed_.expires_at(std::min(deadline.time(), Clock::now() + kPingEvery));
    const auto [error] = co_await changed_.async_wait(net::use_tuple);
    if (!error) co_await ping_all();
  }
  if (wanted_.stays_open) asio::co_spawn(loop_, ping_until_closed(), asio::detached);
  co_return Status();
}

// Renews the leases of waiting agents, and removes agents that have gone: they may join again.
net::Task<void> JoinQueue::ping_all() {
  const Bytes ping = framed(Ping{});
  // A copy, because other agents may join during a write, even under the same name.
  const std::vector<std::shared_ptr<Joined>> all = joined_;
  for (const auto& joined : all) {
    if (!joined->duplex) continue;
    joined->is_pinged = true;
    const Status status = co_await joined->duplex->write(ping);
    joined->is_pinged = false;
    pinged_.cancel();
    if (!joined->rejection.empty()) {
      reject(std::move(joined->duplex), joined->rejection);
      continue;
    }
    if (status.ok()) continue;
    log::warning(cat("host ", printable(joined->host.name), " had joined, but has gone again"));
    std::erase(joined_, joined);
    on_change();
  }
}

std::vector<Host> JoinQueue::hosts() const {
  std::vector<Host> hosts;
  for (const auto& joined : joined_) {
    const bool is_known = std::any_of(hosts.begin(), hosts.end(), [&](const Host& host) {
      return host.name == joined->host.name;
    });
    if (!is_known) hosts.push_back(joined->host);
  }
  return hosts;
}

net::Task<Result<std::unique_ptr<Duplex>>> JoinQueue::spawn(
    const SpawnTarget& target, std::function<void(SpawnStage)> on_stage) {
  const std::vector<std::shared_ptr<Joined>> all = joined_;
  for (const auto& joined : all) {
    if (joined->host.name != target.host) continue;
    while (joined->is_pinged) {
      pinged_.expires_at(asio::steady_timer::time_point::max());
      co_await pinged_.async_wait(net::use_tuple);
    }
    if (!joined->duplex) continue;  // already taken, or rejected
    on_stage(SpawnStage::kReady);
    co_return Result<std::unique_ptr<Duplex>>(std::move(joined->duplex));
  }
  co_return unavailable("it has not joined");
}

}  // namespace hvd::launcher
