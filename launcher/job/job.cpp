#include "launcher/job/job.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <csignal>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "base/check.h"
#include "base/limits/descriptor_limit.h"
#include "base/log/log.h"
#include "base/process/signals.h"
#include "base/secrets/secret.h"
#include "base/text.h"
#include "launcher/elastic/elastic_job.h"
#include "launcher/elastic/job_policy.h"
#include "launcher/hosts/host_table.h"
#include "launcher/job/end_report.h"
#include "launcher/job/host_shutdown.h"
#include "launcher/job/job_signals.h"
#include "launcher/job/job_state.h"
#include "launcher/job/supervisor.h"
#include "launcher/link/agent_link.h"
#include "launcher/link/join_queue.h"
#include "launcher/observe/job_inspector.h"
#include "launcher/observe/job_part.h"
#include "launcher/observe/parts.h"
#include "launcher/observe/rules/init_waits.h"
#include "launcher/observe/rules/silent_hosts.h"
#include "launcher/output/output.h"
#include "launcher/output/report.h"
#include "launcher/plan/host_remarks.h"
#include "launcher/plan/rank_set.h"
#include "launcher/plan/worker_env.h"
#include "launcher/reach/host_jobs.h"
#include "launcher/reach/host_startup.h"
#include "launcher/reach/job_store.h"
#include "launcher/reach/start_report.h"
#include "net/asio.h"

namespace hvd::launcher {
namespace {

// The time within which a rank must exit to be the cause of other ranks' failures.
constexpr std::chrono::seconds kTimeToLeave{2};

}  // namespace

class JobLaunch : private PolicyLaunch, private PartLaunch {
 public:
  JobLaunch(const Options& options, const SlotPlan& plan, uint32_t generation,
            ResolvedEnvironment& environment, JoinQueue* join_queue, const LaunchEvents& events,
            JobHistory* history, std::function<bool(int host)> has_spare);
  JobLaunch(const JobLaunch&) = delete;

  ~JobLaunch() override;
  JobEnd run();

 private:
  struct HostEvents;

  Status find_places();
  net::Task<int> run_all();
  void report_cause();
  net::Task<int> prepare();
  void start();
  void choose_policy();
  void receive_events(HostRun& host);

  HostTable& hosts() override { return hosts_; }
  rendezvous::Server& store() override { return store_.server(); }
  net::asio::any_io_executor executor() override { return loop_.get_executor(); }
  void print(std::string_view sentence) override { output_->print(sentence); }
  std::string last_exception(int rank) const override { return output_->last_exception(rank); }
  void reach(HostRun& host) override;
  void start(HostRun& host) override;
  void end(HostRun& host) override;
  void end(RankRun& rank) override;
  void end_job(int exit_code, const std::string& sentence, int rank) override;

  const Options& options() const override { return options_; }
  const LaunchEvents& events() const override { return events_; }
  bool is_elastic() const override { return history_ != nullptr; }
  bool is_first() const override { return generation_ == 0; }
  double lease_seconds() const override { return host_jobs_.lease_seconds(); }
  Clock::time_point began() const override {
    return history_ ? history_->began : phase_.began_at(JobState::kStart);
  }
  JobOutput& output() override { return *output_; }
  InitWaits& init_waits() override { return waits_; }
  InitWaits& mpi_waits() override { return mpi_waits_; }
  JobInspector& inspector() override { return inspector_; }
  void run(std::shared_ptr<JobPart> part, net::Task<void> task) override {
    parts_->run(std::move(part), std::move(task));
  }
  bool is_ending() const override { return supervisor_.is_ending(); }
  bool is_holding() const override { return supervisor_.is_holding(); }
  void end_wait(int rank, const std::vector<int>& waiting, const char* call) override;
  void script_ended(const std::string& script) override { supervisor_.on_script_ended(script); }
  bool has_spare(const HostRun& host) const override {
    return has_spare_ && has_spare_(host.number());
  }
  void replace(const HostRun& host, const std::string& sentence) override;
  void redraw() override { report(TerminalChanged{}); }

  void report(const JobEvent& event) {
    if (parts_) parts_->report(event);
  }
  void started(HostRun& host, const Status& status);
  void on_late(HostRun& host);

  void explain_interrupt();
  std::string meanwhile(const RankExit& exit) const;
  void on_end_signal(int number);
  bool is_silent(int host) const;
  void on_silence(int host, double seconds);
  void on_answer(int host);
  void give_up(HostRun& host);
  void expect_end(HostRun& host);
  void lose(HostRun& host, const Status& why);
  void on_gone(int host);
  std::optional<Supervisor::LeftBy> left_by(int rank) const;
  net::Task<void> await_cause();
  // `signal`: the signal that caused the action, or 0.
  void act(Supervisor::Action action, int signal = 0);
  void end_all(double grace, int signal = 0);

  const Options& options_;
  JobPhase phase_;
  HostTable hosts_;
  JobHistory* const history_;  // the history of an elastic job, else null
  const std::function<bool(int host)> has_spare_;
  const uint32_t generation_;
  JoinQueue* const join_queue_;
  const LaunchEvents& events_;
  net::asio::io_context own_loop_{1};  // destroyed after all objects that live on it
  net::asio::io_context& loop_;        // the loop of join_queue, or own_loop_
  Supervisor supervisor_;
  const JobIdentity identity_;
  HostJobs host_jobs_;
  JobSignals signals_;
  net::asio::steady_timer changed_;  // cancelled when the job's state changes
  net::asio::steady_timer cause_;
  std::unique_ptr<JobOutput> output_;
  JobStore store_;
  InitWaits waits_;      // in hvd.init()
  InitWaits mpi_waits_;  // in MPI_Init
  HostStartup startup_;
  int slow_host_ = -1;                  // the host that a spare replaces in the next launch, or -1
  int end_signal_ = 0;                  // the last signal that ends the job, or 0
  const int first_hosts_;               // the number of hosts with which the launch begins
  std::string end_cause_;               // why the launch ended, or empty
  bool has_met_ = false;                // a rank has joined a world, or used the store
  bool is_ended_by_scheduler_ = false;  // a scheduler has ended the ranks of a host
  JobInspector inspector_;
  std::optional<HostShutdown> shutdown_;  // set shortly before the ranks start
  std::optional<JobParts> parts_;         // set shortly before the ranks start
  std::unique_ptr<JobPolicy> policy_ = std::make_unique<JobPolicy>();
};

// Passes the events of one host's agent to the launch.
struct JobLaunch::HostEvents : AgentEvents {
  HostEvents(JobLaunch& job, HostRun& run) : job(job), run(run), host(run.number()) {}
  void on_output(int rank, OutputStream stream, ByteView bytes) override {
    job.report(RankWrote{rank});
    job.output_->write(rank, stream, bytes);
  }
  void on_output_end(int rank, OutputStream stream) override {
    job.report(RankWrote{rank, true});
    job.output_->end(rank, stream);
  }
  bool owns(int rank) const {
    return job.hosts_.has_rank(rank) && &job.hosts_.rank(rank).host() == &run;
  }
  void on_report(const AgentReport& report) override {
    std::visit([this](const auto& each) { on(each); }, report);
  }
  void on(const Inspected& answer) {
    job.inspector_.on_answer(host, answer.number, {.text = answer.text});
  }
  void on(const Sampled& answer) {
    job.inspector_.on_answer(host, answer.number, {.sample = answer.sample});
  }
  void on(const InputTaken& taken) { job.report(taken); }
  void on(const Exited& exited) {
    const RankExit& exit = exited.exit;
    if (!owns(exit.rank)) return;
    job.hosts_.rank(exit.rank).set_changes(exit.changes);
    const bool is_success = exit.code == 0 && exit.signal == 0;
    job.output_->rank_ended(exit.rank, {.is_success = is_success,
                                        .is_failure = !is_success && !exit.by_agent,
                                        .is_mute = exit.signal != 0});
    const std::string meanwhile = job.meanwhile(exit);
    job.act(job.supervisor_.on_exit(exit, job.left_by(exit.rank), meanwhile),
            exit.signal == SIGTERM ? SIGTERM : 0);
    job.report(RankExited{exit});
  }
  void on(const PmixReport& report) {
    if (!report.failure.empty()) {
      job.output_->print(cat("host ", run.name(), ": ", printable(report.failure, 1000)));
    } else if (owns(report.rank)) {
      Joined joined;
      joined.rank = report.rank;
      joined.start = report.start;
      joined.has_met = report.has_met;
      job.report(RankInMpi{joined});
    }
  }
  void on(const Joined& joined) {
    if (!owns(joined.rank)) return;
    job.has_met_ = true;
    run.joined(joined);
    // A one-rank world on each host is not an error: --check-build -H runs one.
    if (is_question(job.options_)) return;
    // Detect ranks that started a world without the other ranks.
    if (joined.ranks.empty()) {
      job.act(job.supervisor_.on_joined(joined.rank, joined.world_rank, joined.world_size));
    }
    job.report(RankJoined{joined});
  }
  void on(const OutputChunk& chunk) { job.inspector_.on_output_chunk(chunk); }
  void on(const ExecResult& ran) { job.inspector_.on_exec_result(ran); }
  void on(const Signalled& signalled) { job.signals_.pass_on(signalled.number, host); }
  void on(const Leaving& leaving) {
    if (!job.store_.is_open()) return;  // the launch has not started
    run.advance(HostState::kStarting, HostState::kLeaving, HostCause::kLeave);
    run.advance(HostState::kRunning, HostState::kLeaving, HostCause::kLeave);
    job.policy_->host_leaves(run, leaving.sentence);
  }
  void on(const Ending& ending) {
    run.take_away();
    job.is_ended_by_scheduler_ |= ending.is_by_scheduler != 0;
    job.act(job.supervisor_.on_agent_ending(host, ending.sentence), SIGTERM);
  }
  void on(const Finished& finished) {
    run.set_independence(finished.is_independent);
    if (run.link() == nullptr) return;  // prepare() returns this error
    job.act(job.supervisor_.on_finished(host));
    job.on_gone(host);
  }
  void on_lost(const Status& why) override {
    // Ranks of an unreachable host run until the end of the lease.
    const bool is_reached = why.code() != Code::kDeadlineExceeded || run.link() == nullptr;
    if (!is_reached) job.expect_end(run);
    job.lose(run, why);
  }
  void on_standstill(double seconds) override {
    job.act(job.supervisor_.end_job(
        kExitLauncher,
        cat("the launcher stood still for ", std::lround(seconds),
            " s, longer than --heartbeat-timeout ", job.host_jobs_.lease_seconds(), " s"),
        -1));
  }
  void on_silence(double seconds) override { job.on_silence(host, seconds); }
  void on_answer() override { job.on_answer(host); }
  void on_store_connection(net::StreamSocket socket) override {
    if (!job.store_.is_open())
      return;  // closes the connection: no rank runs before the launch has started
    job.has_met_ = true;
    job.store_.server().adopt(std::move(socket));
  }
  JobLaunch& job;
  HostRun& run;
  const int host;
};

JobLaunch::JobLaunch(const Options& options, const SlotPlan& plan, uint32_t generation,
                     ResolvedEnvironment& environment, JoinQueue* join_queue,
                     const LaunchEvents& events, JobHistory* history,
                     std::function<bool(int host)> has_spare)
    : options_(options),
      hosts_(plan),
      history_(history),
      has_spare_(std::move(has_spare)),
      generation_(generation),
      join_queue_(join_queue),
      events_(events),
      loop_(join_queue ? join_queue->loop() : own_loop_),
      supervisor_(hosts_, to_lower(options.settings.end.on_failure) == "wait"),
      identity_(join_queue ? join_queue->identity() : random_job()),
      host_jobs_(options, plan, hosts_, generation, identity_, history != nullptr),
      signals_(loop_, hosts_, [this](int number) { on_end_signal(number); }),
      changed_(loop_),
      cause_(loop_),
      store_(loop_.get_executor(), options.settings, hosts_),
      waits_(hosts_),
      mpi_waits_(hosts_),
      startup_(loop_, options, hosts_, host_jobs_, join_queue, environment),
      first_hosts_(static_cast<int>(plan.hosts.size())),
      inspector_(loop_.get_executor(), options, hosts_, waits_,
                 JobMetrics(job_name(identity_.number), options.settings.job.name.value_or(""),
                            generation),
                 [this](std::string_view sentence) { output_->print(sentence); }) {
  for (HostRun& host : hosts_.hosts()) receive_events(host);
  hosts_.on_added([this](HostRun& host) {
    receive_events(host);
    output_->grow();
  });
}

// Links refer to the spawners of startup_. Therefore destroy the links first.
JobLaunch::~JobLaunch() {
  if (store_.is_open()) store_.server().show_launch({});
  for (HostRun& host : hosts_.hosts()) host.release();
}

void JobLaunch::receive_events(HostRun& host) {
  host.set_events(std::make_unique<HostEvents>(*this, host));
}

bool JobLaunch::is_silent(int host) const {
  const AgentLink* const link = hosts_.host(host).link();
  return link != nullptr && link->pings().is_unanswered();
}

void JobLaunch::on_silence(int host, double seconds) {
  if (!phase_.has_started() || hosts_.host(host).is_over()) return;
  inspector_.on_silence(host, seconds);
  if (supervisor_.is_ending()) return;
  double limit = host_jobs_.host_timeout(hosts_.host(host));
  if (history_ != nullptr && seconds >= limit) {
    HostRun& run = hosts_.host(host);
    if (policy_->gives_up(run)) return give_up(run);
    limit = host_jobs_.silent_ranks_end_after();
  }
  report(HostSilent{hosts_.host(host), seconds, limit});
}

// Abandons a host. If the host's agent still runs, it has stopped its ranks by now, and ends them later.
void JobLaunch::give_up(HostRun& host) {
  const double seconds = host.link()->pings().silence_seconds();
  expect_end(host);
  host.link()->give_up([this, &host] { policy_->ranks_ended(host); });
  lose(host, deadline_exceeded(cat("the host did not answer for ", std::lround(seconds), " s")));
}

// Sets the latest time at which the host's ranks end: its agent has then had no contact for the lease time.
void JobLaunch::expect_end(HostRun& host) {
  const double left = host_jobs_.silent_ranks_end_after() - host.link()->pings().silence_seconds();
  host.may_run_until(Deadline::after_seconds(std::max(left, 0.0)).time());
}

void JobLaunch::lose(HostRun& host, const Status& why) {
  for (const RankRun* rank : host.ranks()) {
    output_->rank_ended(rank->number(), {.is_failure = true, .is_mute = true});
    output_->forget(rank->number());
  }
  act(supervisor_.on_lost(host.number(), why));
  on_gone(host.number());
}

void JobLaunch::on_answer(int host) {
  if (!phase_.has_started()) return;
  inspector_.on_answer(host);
  const auto action = supervisor_.on_answer(host);
  if (action != Supervisor::Action::kNone) {
    act(action, supervisor_.ended_by() == SIGTERM ? SIGTERM : 0);
  }
  report(HostAnswered{hosts_.host(host)});
}

void JobLaunch::on_gone(int host) {
  inspector_.on_host_gone(host);
  if (store_.is_open()) policy_->host_gone();
  report(HostGone{hosts_.host(host)});
}

JobEnd JobLaunch::run() {
  raise_descriptor_limit(64 + 8 * hosts_.hosts().size() + 4 * hosts_.ranks().size());
  if (const Status status = find_places(); !status.ok()) {
    phase_.move(JobState::kOver);
    end_cause_ = status.message();
    report_cause();
    return {.exit_code = refuse(status)};
  }
  int exit_code = 0;
  net::asio::co_spawn(loop_, run_all(), [&](std::exception_ptr failure, int code) {
    if (failure) std::rethrow_exception(failure);
    exit_code = code;
    loop_.stop();
  });
  loop_.run();
  // The loop has ended: output that is queued from now on would not be written.
  log::set_writer({});
  report_cause();
  JobEnd end{.exit_code = exit_code,
             .has_started = phase_.has_started(),
             .is_by_scheduler = is_ended_by_scheduler_};
  for (const HostRun& host : hosts_.hosts()) {
    if (!host.has_failed() && !host.is_taken_away()) continue;
    end.failed_hosts.push_back(host.number());
    end.ranks_end_by = std::max(end.ranks_end_by, host.runs_until());
  }
  const bool is_of_hosts = exit_code == kExitLauncher || exit_code == kExitBadInput;
  end.may_be_tried_again =
      !history_ && end_signal_ == 0 &&
      (supervisor_.failed_rank() >= 0 || (is_of_hosts && !end.failed_hosts.empty()));
  if (end_signal_ == 0 && exit_code != 0) end.slow_host = slow_host_;
  end.wants_restart = policy_->wants_restart() && exit_code == 0 && end_signal_ == 0;
  return end;
}

// Passes the cause to on_end, except the cause of a restart that did not start its ranks: it does not explain the end
// of the job.
void JobLaunch::report_cause() {
  if (!events_.on_end || (generation_ > 0 && !phase_.has_started())) return;
  events_.on_end(printable(end_cause_.substr(0, end_cause_.find('\n')), 1000));
}

net::Task<int> JobLaunch::run_all() {
  signals_.watch();
  signals_.around_stop([this](bool stops) {
    if (stops)
      output_->terminal().withdraw_area();
    else
      report(TerminalChanged{});
  });
  supervisor_.ask_about_silence([this](int host) { return is_silent(host); });
  choose_policy();
  inspector_.open(*policy_);
  if (const int code = co_await prepare(); code != 0) co_return code;
  start();
  while (!hosts_.is_over()) {
    changed_.expires_at(std::chrono::steady_clock::time_point::max());
    co_await changed_.async_wait(net::use_tuple);
  }
  shutdown_->cancel();
  cause_.cancel();
  co_await parts_->end();
  co_await policy_->end();
  end_cause_ = supervisor_.report();
  print_end(options_, hosts_, host_jobs_, supervisor_, has_met_, *output_);
  co_await output_->drain();
  co_await shutdown_->close_links();
  co_await output_->drain();  // writes messages that were logged during the shutdown
  phase_.move(JobState::kOver);
  co_return supervisor_.exit_code();
}

void JobLaunch::choose_policy() {
  if (history_ == nullptr) return;
  PolicyLaunch& launch = *this;
  policy_ = std::make_unique<ElasticJob>(launch, options_.settings, join_queue_, *history_);
}

void JobLaunch::end_wait(int rank, const std::vector<int>& waiting, const char* call) {
  act(supervisor_.on_awaited_rank_ended(rank, waiting, call));
}

void JobLaunch::replace(const HostRun& host, const std::string& sentence) {
  slow_host_ = host.number();
  end_job(kExitLauncher, sentence, -1);
}

// Returns the text to append to the failure of a rank that has waited for other ranks.
std::string JobLaunch::meanwhile(const RankExit& exit) const {
  const auto wait = exit.code != 0 ? waits_.of(exit.rank) : std::nullopt;
  if (!wait) return "";
  return cat(" while ", ranks_on_hosts(wait->missing, hosts_.host_names()),
             " had not called hvd.init()");
}

Status JobLaunch::find_places() {
  HVD_RETURN_IF_ERROR(host_jobs_.read());
  const LaunchSettings& settings = options_.settings;
  HVD_RETURN_IF_ERROR(store_.take_parent());
  HVD_ASSIGN_OR_RETURN(OutputStyle style,
                       output_style(settings, hosts_.size(), generation_, history_ != nullptr));
  style.log = events_.output;
  style.is_shown_by_log = settings.job.detach && style.log != nullptr;
  HVD_ASSIGN_OR_RETURN(output_, JobOutput::open(loop_.get_executor(), hosts_, std::move(style)));
  if (generation_ == 0) print_remarks(options_, host_jobs_, *output_);
  return {};
}

// Starts all agents. Returns 0, or the exit code of a job that ends before its ranks start.
net::Task<int> JobLaunch::prepare() {
  phase_.move(JobState::kReach);
  const HostStartup::Outcome hosts = co_await startup_.run(*output_);
  if (end_signal_ != 0) {
    end_cause_ = cat("ended by ", signal_name(end_signal_), " before anything was started");
    output_->print(end_cause_, Tone::kError);
  } else if (!hosts.errors.empty()) {
    end_cause_ = hosts.errors.front().message();
  }
  print_errors(hosts, options_, *output_);
  if (end_signal_ != 0 || !hosts.errors.empty()) {
    phase_.move(JobState::kOver);
    co_await output_->drain();
    co_return end_signal_ != 0 ? kExitSignal + end_signal_ : kExitBadInput;
  }
  phase_.move(JobState::kHold);
  print_start(hosts, hosts_, generation_ == 0, options_, *output_);
  co_return 0;
}

void JobLaunch::start() {
  phase_.move(JobState::kStart);
  // If the parent process that waits for the ranks' results ends, the ranks end as after SIGTERM.
  store_.open(join_queue_ ? join_queue_->take_server() : nullptr, identity_.secret,
              host_jobs_.results_secret(), [] { ::raise(SIGTERM); });
  output_->on_consumed([this](int rank, OutputStream stream, size_t size) {
    if (AgentLink* const link = hosts_.rank(rank).host().link()) link->consumed(rank, stream, size);
  });
  output_->on_broken([this](OutputStream stream, int error) {
    // The job continues without standard error, which is not essential.
    if (stream != OutputStream::kStdout) return;
    std::error_code unknown;
    const auto file = std::filesystem::read_symlink("/proc/self/fd/1", unknown);
    act(supervisor_.on_output_broken(error, file.string()));
  });
  shutdown_.emplace(loop_, hosts_, *output_, host_jobs_.grace(),
                    [this](HostRun& host) { on_late(host); });
  if (history_ != nullptr) {
    supervisor_.ask_before_end(
        [this](int rank, int host, int exit_code, const std::string& sentence) {
          return policy_->survives(rank, host, exit_code, sentence);
        });
  }
  store_.server().show_launch([this] { return inspector_.states(); });
  parts_.emplace(loop_.get_executor(), parts_of(*this));
  report(Starting{});
  // An agent may have ended while other hosts were prepared.
  if (supervisor_.is_ending()) return end_all(host_jobs_.grace());
  policy_->begin();
  inspector_.take_changes();
  for (int host = 0; host < first_hosts_; ++host) start(hosts_.host(host));
}

void JobLaunch::reach(HostRun& host) {
  host.to(HostState::kConnecting, HostCause::kReach);
  net::asio::co_spawn(
      loop_, startup_.add(host), [this, &host](std::exception_ptr error, Status status) {
        if (error) status = net::status_of(error, "cancelled");
        if (status.ok() && host.state() != HostState::kHeld)
          status = aborted("the job no longer needs it");
        // Watches the link from now on, to notice a loss before the ranks start.
        if (status.ok())
          status = host.link()->hold().with_context(cat("host ", host.name(), ": prepare"));
        if (status.ok()) return policy_->held(host);
        host.close();
        act(supervisor_.on_preparation_failed(host.number(), status));
      });
}

void JobLaunch::start(HostRun& host) {
  // The agent may have ended meanwhile. In this case, link()->start() returns the reason.
  host.advance(HostState::kHeld, HostState::kStarting, HostCause::kOrder);
  for (RankRun* rank : host.ranks()) {
    if (host.state() != HostState::kStarting) break;
    rank->advance(RankState::kPlanned, RankState::kStarting, RankCause::kOrder);
  }
  net::asio::co_spawn(loop_, host.link()->start(host.order()),
                      [this, &host](std::exception_ptr error, Status status) {
                        if (error) status = net::status_of(error, "the start was cut off");
                        started(host, status);
                      });
}

void JobLaunch::started(HostRun& host, const Status& status) {
  if (!status.ok()) {
    if (host.is_over()) return;
    host.close();
    return act(supervisor_.on_start_failed(host.number(), status));
  }
  host.started();
  for (const RankRun* rank : host.ranks()) {
    if (rank->state() == RankState::kEnding && host.state() < HostState::kEnding)
      host.link()->send(EndRank{rank->number(), host_jobs_.grace()});
  }
  const auto first = hosts_.hosts().begin();
  if (host.number() >= first_hosts_ ||
      !std::all_of(first, first + first_hosts_, std::mem_fn(&HostRun::has_started)))
    return;
  if (phase_.now() == JobState::kStart) phase_.move(JobState::kRun);
  explain("all ranks are started");
  if (!is_question(options_)) report(AllStarted{});
  if (events_.on_running) events_.on_running(hosts_.size());
}

void JobLaunch::on_end_signal(int number) {
  end_signal_ = number;
  if (!phase_.has_started()) return startup_.cancel();
  const bool is_first = !supervisor_.is_ending();
  act(supervisor_.on_signal(number), number);
  if (is_first && number == SIGINT) explain_interrupt();
}

// Explains Ctrl-C to the user, because it has no visible effect until the ranks have ended.
void JobLaunch::explain_interrupt() {
  const int living = hosts_.living_ranks();
  if (living == 0 || ::isatty(STDERR_FILENO) != 1) return;
  output_->end_typed_line();
  output_->print(cat("ending ", count_of_ranks(living), "; Ctrl-C again to kill"));
}

std::optional<Supervisor::LeftBy> JobLaunch::left_by(int rank) const {
  auto found = store_.left_by(rank);
  if (!found) return {};
  return Supervisor::LeftBy(found->first, std::move(found->second));
}

net::Task<void> JobLaunch::await_cause() {
  cause_.expires_after(kTimeToLeave);
  const auto [error] = co_await cause_.async_wait(net::use_tuple);
  if (!error) act(supervisor_.on_awaited());
}

void JobLaunch::act(Supervisor::Action action, int signal) {
  if (const auto news = supervisor_.take_news()) output_->print(*news);
  switch (action) {
    case Supervisor::Action::kNone:
      break;
    case Supervisor::Action::kAwait:
      net::asio::co_spawn(loop_, await_cause(), net::asio::detached);
      break;
    case Supervisor::Action::kEnd:
      end_all(host_jobs_.grace(), signal == SIGINT ? 0 : signal);
      break;
    case Supervisor::Action::kKill:
      output_->discard_stalled();
      end_all(0);
      break;
  }
  changed_.cancel();
}

void JobLaunch::end_all(double grace, int signal) {
  if (!phase_.has_started()) return;  // start() then ends the job
  if (phase_.now() < JobState::kEnd) phase_.move(JobState::kEnd);
  policy_->stop();
  startup_.cancel();
  report(JobEnding{});
  shutdown_->end_all(grace, signal);
}

void JobLaunch::end(HostRun& host) { shutdown_->end(host); }

// Stops waiting for this host. Its agent ends the ranks by itself after the link is closed.
void JobLaunch::on_late(HostRun& host) {
  if (supervisor_.is_ending())
    output_->print(cat("host ", host.name(), " has not confirmed that its ranks ended"));
  act(supervisor_.on_lost(host.number(), unavailable("it does not answer")));
}

void JobLaunch::end(RankRun& rank) {
  const HostRun& host = rank.host();
  if (rank.is_over() || rank.state() == RankState::kEnding || host.state() >= HostState::kEnding)
    return;
  rank.to(RankState::kEnding, RankCause::kEnd);
  if (host.state() == HostState::kRunning || host.state() == HostState::kLeaving)
    host.link()->send(EndRank{rank.number(), host_jobs_.grace()});
}

void JobLaunch::end_job(int exit_code, const std::string& sentence, int rank) {
  act(supervisor_.end_job(exit_code, sentence, rank));
}

void prepare_process(const Options& options) {
  if (log::Level level; log::parse_level(options.settings.logging.log_level, level)) {
    log::set_level(level);
  }
  if (options.settings.job.verbose) log::set_level(log::Level::kInfo);
  for (const std::string& sentence : options.shortened) explain(sentence);
  explain(cat("the command is ", printable(join(options.command, " "), 2000)));
  // A local agent starts with the environment of this process.
  const Environment all = environment();
  const Environment kept = host_environment(all, true);
  for (const auto& variable : all) {
    const bool is_kept = std::find(kept.begin(), kept.end(), variable) != kept.end();
    if (!is_kept) forget_environment_variable(variable.first);
  }
  std::signal(SIGPIPE, SIG_IGN);
}

JobEnd run_job(const Options& options, const SlotPlan& plan, uint32_t generation,
               ResolvedEnvironment& environment, JoinQueue* join_queue, const LaunchEvents& events,
               JobHistory* history, std::function<bool(int host)> has_spare) {
  return JobLaunch(options, plan, generation, environment, join_queue, events, history,
                   std::move(has_spare))
      .run();
}

}  // namespace hvd::launcher
