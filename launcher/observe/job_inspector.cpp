#include "launcher/observe/job_inspector.h"

#include <unistd.h>

#include <algorithm>
#include <utility>

#include "base/log/log.h"
#include "base/text.h"
#include "launcher/observe/rules/silent_hosts.h"
#include "launcher/output/report.h"
#include "launcher/plan/rank_set.h"

namespace hvd::launcher {
namespace {

constexpr std::chrono::milliseconds kMetricsTime{800};
// The maximum age of figures. A viewer that queries once a second always gets new figures.
constexpr std::chrono::milliseconds kYoung{900};
// The time limit for kAnnounced samples, which agents only read from memory.
constexpr std::chrono::milliseconds kAnnouncedTime{400};
// The pause between two looks at ranks that may wait. Most operations end within it.
constexpr std::chrono::milliseconds kBetweenLooks{200};

// Returns "no answer for 12 s", or an empty text while the host answers.
std::string silence_of(const HostRun& host) {
  return host.silence() > 0 ? describe_silence(host.silence()) : "";
}

bool needs_stacks(const Message& question) {
  const Inspect* const inspect = std::get_if<Inspect>(&question);
  return std::holds_alternative<InspectLate>(question) ||
         (inspect != nullptr && inspect->detail != InspectDetail::kProcess);
}

}  // namespace

JobInspector::JobInspector(const net::asio::any_io_executor& executor, const Options& options,
                           const HostTable& hosts, const InitWaits& waits, JobMetrics metrics,
                           std::function<void(std::string_view sentence)> remark)
    : executor_(executor),
      options_(options),
      hosts_(hosts),
      waits_(waits),
      remark_(std::move(remark)),
      stack_tool_(executor),
      inspection_(
          executor, hosts,
          [this](size_t number, const Message& question) {
            const HostRun& host = hosts_.host(static_cast<int>(number));
            if (!host.can_answer()) return false;
            if (needs_stacks(question)) stack_tool_.offer_to(host.number(), *host.link());
            host.link()->send(question);
            return true;
          },
          [this](size_t host, const HostAnswer& answer) { metrics_.take_late(host, answer); }),
      commands_(executor, hosts,
                [this](int rank, const Message& order) -> std::string {
                  const HostRun& host = hosts_.rank(rank).host();
                  if (host.is_over()) return "the rank has ended\n";
                  if (!host.had_ranks()) return "the rank has not started\n";
                  const std::string silence = silence_of(host);
                  if (!silence.empty()) return cat("host ", host.name(), ": ", silence, "\n");
                  host.link()->send(order);
                  return "";
                }),
      metrics_(std::move(metrics)),
      looked_(executor) {}

net::Task<std::vector<HostAnswer>> JobInspector::ask(InspectDetail detail) {
  return inspection_.ask_all([detail](uint32_t number) { return Inspect{number, detail}; });
}

net::Task<std::vector<HostAnswer>> JobInspector::sample(SampleGroups groups,
                                                        std::chrono::milliseconds limit) {
  return inspection_.ask_all(
      [groups](uint32_t number) {
        return TakeSample{number, groups};
      },
      limit);
}

net::Task<std::vector<RankPlace>> JobInspector::place_of_late(int rank,
                                                              uint32_t late_microseconds) {
  const auto host = static_cast<size_t>(hosts_.rank(rank).host().number());
  HostAnswer answer = co_await inspection_.ask(host, [=](uint32_t number) {
    return InspectLate{number, rank, late_microseconds};
  });
  co_return std::move(answer.sample.places);
}

void JobInspector::on_silence(int host, double seconds) {
  if (hosts_.host(host).can_answer()) return;
  inspection_.give_up(static_cast<size_t>(host));
  commands_.on_silence(
      host, cat("host ", hosts_.host(host).name(), ": ", describe_silence(seconds), "\n"));
}

void JobInspector::open(JobPolicy& policy) {
  policy_ = &policy;
  auto server =
      InspectionServer::open(executor_, [this](std::string request, net::StreamSocket& caller) {
        return answer(std::move(request), caller);
      });
  if (!server.ok())
    log::info(cat("horovodrun ps cannot see this job: ", server.status().message()));
  else
    server_ = *std::move(server);
}

// Sends the client records as for exec: an OutputChunk if the policy accepts the change, then an ExecResult.
net::Task<void> JobInspector::change(const std::vector<std::string>& words,
                                     net::StreamSocket& caller) {
  const auto sentence =
      takes_changes_ ? policy_->change(words)
                     : Result<std::string>(failed_precondition("the ranks have not started"));
  ExecResult end{.why = {}};
  if (sentence.ok()) {
    const Message chunk = OutputChunk{.bytes = *sentence + "\n"};
    co_await send_record(caller, chunk);
  } else {
    end.code = kExitBadInput;
    end.why = cat("horovodrun: ", sentence.status().message(), "\n");
  }
  const Message last = std::move(end);
  co_await send_record(caller, last);
}

std::string JobInspector::states() const { return hosts_as_json(hosts_); }

// Returns whether the same host has a later entry in the table.
bool JobInspector::has_begun_again(const HostRun& host) const {
  return std::ranges::any_of(hosts_.hosts(), [&host](const HostRun& other) {
    return other.number() > host.number() && other.name() == host.name();
  });
}

net::Task<void> JobInspector::answer(std::string request, net::StreamSocket& caller) {
  constexpr std::string_view kRun = "exec ";
  if (request.starts_with(kRun)) {
    co_return co_await run_command(std::string_view(request).substr(kRun.size()), caller);
  }
  const std::vector<std::string> words = split(request, ' ');
  if (words[0] == "resize" || words[0] == "remove") co_return co_await change(words, caller);
  std::string text;
  if (const auto level = words[0] == "metrics" ? parse_metrics_level(words.back()) : std::nullopt)
    text = co_await metrics(*level);
  else if (words[0] == "ps")
    text = co_await job_as_json();
  else
    text = co_await describe(request == "stack --native" ? InspectDetail::kNativeStacks
                                                         : InspectDetail::kStacks);
  co_await net::asio::async_write(caller, net::asio::buffer(text), net::use_tuple);
}

// Samples the ranks twice if necessary: a rank waits if it has announced no operation between the samples.
net::Task<void> JobInspector::look(SampleGroups groups) {
  bool is_cancelled = false;
  while (is_looking_ && !is_cancelled) {
    const bool was_notified = co_await looked_.wait();
    is_cancelled = !was_notified;
  }
  const bool is_whole = groups.has(SampleGroup::kGpus);
  const bool is_known =
      looked_at_ && Clock::now() - *looked_at_ < kYoung && !(is_whole && lacks_gpus_);
  if (is_cancelled || is_known) co_return;
  is_looking_ = true;
  metrics_.take(co_await sample(groups, kMetricsTime));
  read_at_ = Clock::now();
  for (bool is_first = true; is_whole && (is_first || operation_waits_.needs_another());
       is_first = false) {
    if (!is_first) {
      net::asio::steady_timer timer(executor_, kBetweenLooks);
      co_await timer.async_wait(net::use_tuple);
    }
    take_announced(co_await sample(SampleGroup::kAnnounced, kAnnouncedTime));
  }
  lacks_gpus_ = !is_whole;
  is_looking_ = false;
  looked_at_ = Clock::now();
  looked_.notify();
}

void JobInspector::take_announced(const std::vector<HostAnswer>& answers) {
  std::vector<OperationWaits::Rank> ranks;
  for (size_t host = 0; host < answers.size(); ++host) {
    const std::vector<RankAnnounced>& announced = answers[host].sample.announced;
    for (const RankRun* run : hosts_.host(static_cast<int>(host)).ranks()) {
      const auto found = std::ranges::find(announced, run->number(), &RankAnnounced::rank);
      const bool is_in_job = run->state() == RankState::kInJob && run->is_member();
      if (!is_in_job || found == announced.end()) continue;
      ranks.push_back({.number = run->number(),
                       .rank = run->rank(),
                       .start = run->start(),
                       .world_size = found->world_size,
                       .operations = found->operations,
                       .joins = found->joins});
    }
  }
  operation_waits_.take(ranks, Clock::now());
}

net::Task<JobCounts> JobInspector::counts() {
  co_await look(SampleGroup::kMetrics);
  co_return known_counts();
}

JobCounts JobInspector::known_counts() const {
  const std::chrono::duration<double> seconds = Clock::now() - began_;
  JobCounts state{.job = {.seconds = seconds.count()}, .read_at = read_at_.value_or(began_)};
  const std::optional<SlowestRank> slowest = this->slowest();
  for (const RankRun* rank : hosts_.members()) {
    ++state.job.size;
    const RankMetrics* const metrics = metrics_.rank(rank->number());
    if (metrics == nullptr) continue;
    if (metrics->activity == RankActivity::kRuns && !rank->is_over()) ++state.job.up;
    state.counts.steps = std::max(state.counts.steps, metrics->counts.steps);
    state.counts.bytes += metrics->counts.bytes;
    ++state.counts.ranks;
    if (slowest && slowest->rank == rank->rank())
      state.job.slowest = {rank->rank(), rank->host().name(), slowest->late_seconds};
  }
  return state;
}

// Returns the slowest rank; nullopt if no rank is late, or if the last steps are too old because the job may hang.
std::optional<SlowestRank> JobInspector::slowest() const {
  std::optional<SlowestRank> slowest;
  if (!metrics_.is_stepping()) return slowest;
  for (const RankRun* run : hosts_.members()) {
    if (!run->waits() || !run->waits()->is_straggler) continue;
    const double late = run->waits()->late_now;
    if (!slowest || late > slowest->late_seconds) slowest = {run->rank(), late};
  }
  return slowest;
}

// Returns the answer to the commands ps and top.
net::Task<std::string> JobInspector::job_as_json() {
  co_await look(SampleGroup::kMetrics | SampleGroup::kGpus);
  co_return known_job();
}

std::string JobInspector::known_job() const {
  const int64_t age = metrics_.step_age();
  const std::chrono::duration<double> seconds = Clock::now() - began_;
  const JobFigures figures{
      .pid = ::getpid(),
      .command = options_.command,
      .name = options_.settings.job.name.value_or(""),
      .seconds = seconds.count(),
      .read_at = read_at_ ? std::chrono::duration<double>(*read_at_ - began_).count() : -1,
      .step_age = age < 0 ? -1 : static_cast<double>(age) * 1e-3,
      .slowest = slowest(),
      .rank = [this](int number) { return metrics_.rank(number); },
      .init_wait =
          [this](int number) {
            const auto wait = waits_.of(number);
            return wait ? wait->missing : std::vector<int>();
          },
      .operation_wait = [this](int rank) { return operation_waits_.of(rank); },
      .silence = [](const HostRun& host) { return host.silence(); }};
  return launcher::job_as_json(hosts_, figures);
}

net::Task<std::string> JobInspector::metrics(MetricsLevel level) {
  metrics_.take(co_await sample(SampleGroup::kMetrics | SampleGroup::kGpus, kMetricsTime));
  read_at_ = Clock::now();
  const std::string sentence = metrics_.about_unread(hosts_);
  if (!sentence.empty()) remark_(sentence);
  co_return metrics_.text(hosts_, level) + metrics_.waits_text(hosts_, level);
}

net::Task<std::string> JobInspector::metrics() {
  return metrics(metrics_level_of(options_.settings.output.metrics_level, hosts_.hosts().size()));
}

net::Task<void> JobInspector::show_stacks() {
  const std::vector<HostAnswer> answers = co_await ask(InspectDetail::kStacks);
  for (size_t number = 0; number < answers.size(); ++number) {
    const std::string_view text = answers[number].text;
    const HostRun& host = hosts_.host(static_cast<int>(number));
    if (host.silence() > 0) remark_(cat("host ", host.name(), ": ", silence_of(host)));
    if (text.empty()) continue;
    remark_(
        cat("where the ranks of host ", host.name(), " are:\n", text.substr(0, text.size() - 1)));
  }
}

// `digits`: a message to an agent, in hexadecimal digits.
net::Task<void> JobInspector::run_command(std::string_view digits, net::StreamSocket& caller) {
  const auto bytes = from_hex(digits);
  auto message = bytes.ok() ? decode(*bytes) : Result<Message>(bytes.status());
  Run* run = message.ok() ? std::get_if<Run>(&*message) : nullptr;
  if (run != nullptr) co_return co_await commands_.run(std::move(*run), caller);
  const Message refusal = ExecResult{
      .code = kExitBadInput,
      .why = "this is not an order to run a command; it may come from another release\n"};
  co_await send_record(caller, refusal);
}

// Returns the answer to the command stack.
net::Task<std::string> JobInspector::describe(InspectDetail detail) {
  std::vector<HostAnswer> hosts = co_await ask(detail);
  std::string text = cat("horovodrun, pid ", ::getpid(), ", ");
  if (hosts_.generation() >= 0) {
    text +=
        cat("generation ", hosts_.generation(), ", ", count_of_ranks(std::ssize(hosts_.members())));
    for (HostAnswer& host : hosts) host.text = with_present_ranks(host.text, hosts_);
  } else {
    text += count_of_ranks(hosts_.size());
  }
  text += cat(": ", printable(join(options_.command, " ")), "\n");
  for (size_t number = 0; number < hosts.size(); ++number) {
    text += describe(hosts_.host(static_cast<int>(number)), hosts[number].text);
  }
  co_return text;
}

// Describes one host. `ranks`: the answer of its agent, or empty.
std::string JobInspector::describe(const HostRun& host, const std::string& ranks) const {
  if (host.is_over())
    return has_begun_again(host) ? "" : cat("host ", host.name(), ": has ended\n");
  if (!ranks.empty()) return cat("host ", host.name(), "\n", ranks);
  std::string why = silence_of(host);
  if (host.state() == HostState::kConnecting)
    why = cat("connecting, ", to_string(host.stage()));
  else if (why.empty())
    why = host.had_ranks() ? "no rank runs" : to_string(host.state());
  return cat("host ", host.name(), ": ", why, "\n");
}

}  // namespace hvd::launcher
