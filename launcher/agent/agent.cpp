#include "launcher/agent/agent.h"

#include <sys/epoll.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <memory>

#include "base/cores.h"
#include "base/machine_identity.h"
#include "base/text.h"
#include "horovod/version.h"
#include "launcher/agent/guardian.h"
#include "launcher/agent/host/host_addresses.h"
#include "launcher/agent/host/process_tree.h"
#include "launcher/agent/host/safe_folder.h"
#include "launcher/agent/ranks/rank_environment.h"
#include "launcher/protocol/binding_choice.h"
#include "rendezvous/client/host_aggregation.h"

namespace hvd::launcher {
namespace {

// The lease until Prepare sets the job's lease. A host that joins may wait long for Prepare: pings then renew this
// lease.
constexpr double kFirstLeaseSeconds = 60;
// If the loop wakes this long after its deadline, the agent was stopped.
constexpr std::chrono::seconds kOverslept{1};
// Seconds after the lease until the guardian treats the agent as hung. A slow agent has ended its ranks by then.
constexpr double kWatchdogMargin = 2;
// The time until the agent sends SIGKILL again, in case the first scan missed a process.
constexpr double kKillAgainSeconds = 0.1;
// The time after which the agent abandons processes that SIGKILL does not end: processes of another
// user, or processes blocked in the kernel.
constexpr double kGiveUpSeconds = 10;
// The same limit if all remaining processes are in state D (uninterruptible sleep).
constexpr double kStuckSeconds = 1.5;

// Returns the Ending for a SIGTERM that every process on the host got: only a scheduler signals all processes.
Ending ended_with_all(const Environment& environment) {
  for (const auto& [name, variable] :
       {std::pair("Slurm", "SLURM_JOB_ID"), std::pair("PBS", "PBS_JOBID"),
        std::pair("LSF", "LSB_JOBID")}) {
    const std::string job(value_of(environment, variable));
    if (job.empty()) continue;
    return {.sentence = cat(name, " has sent SIGTERM to every process of its job ", printable(job),
                            " there, as when the job is cancelled or has reached its time limit, "
                            "or its script has ended"),
            .is_by_scheduler = 1};
  }
  return {"every process of the job there got SIGTERM, as a scheduler or service manager sends it"};
}

std::string executable_path() {
  std::error_code error;
  return std::filesystem::read_symlink("/proc/self/exe", error).string();
}

}  // namespace

Agent::Agent(net::EventLoop loop, OpenedLink link, std::string build, Environment environment,
             std::string folder, std::string staging, Watchdog& watchdog)
    : loop_(std::move(loop)),
      link_(loop_, std::move(link), [this](ByteView received) { take(received); }),
      build_(std::move(build)),
      environment_(std::move(environment)),
      outbox_(link_),
      store_(loop_, outbox_),
      aggregator_(loop_),
      executions_(loop_, [this](const Message& message) { outbox_.put(message); }),
      ranks_(loop_, outbox_,
             [this](pid_t pid, int status) {
               host_preparation_.on_reaped(pid, status);
               executions_.on_reaped(pid, status);
               inspections_.on_reaped(pid, status);
               samples_.on_reaped(pid, status);
               pmix_.on_reaped(pid);
             }),
      inspections_(
          loop_, ranks_, [this](const Message& message) { outbox_.put(message); },
          [this] { return agent_folders(job_.agent_dir, executable_path(), environment_); }),
      samples_(loop_, ranks_, [this](const Message& message) { outbox_.put(message); }),
      host_preparation_(
          loop_, [this](const Message& message) { outbox_.put(message); },
          [this] { return transfer_network(); }),
      master_port_(loop_),
      reachability_(loop_),
      pmix_(loop_, std::move(folder),
            [this](const PmixReport& report) {
              // Ignore failures of MPI_Init while the job ends, because ranks then end one after another.
              if (report.failure.empty() || !state_.is_ending()) outbox_.put(report);
            }),
      world_reports_(loop_,
                     [this](pid_t pid, const rendezvous::WorldReport& world) {
                       if (const auto rank = ranks_.rank_of(pid)) {
                         independence_.on_sign();
                         ranks_.on_joined(*rank, pid);
                         outbox_.put(Joined{*rank, world.rank, world.size, world.start, world.ranks,
                                            static_cast<uint8_t>(world.has_met)});
                       }
                     }),
      independence_(loop_, [this](const auto& programs) { return ranks_.compare(programs); }),
      staging_(std::move(staging)),
      removal_(loop_),
      parent_(::getppid()),
      watchdog_(watchdog),
      lease_(kFirstLeaseSeconds),
      hold_([this](int number) { signal_descendants({number}, {pmix_.pid()}); }) {}

Agent::~Agent() = default;

Status Agent::open() {
  const sigset_t set = agent_signals();
  signals_.reset(::signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!signals_) return system_error("cannot make a signal descriptor", errno);
  if (!loop_.watch(signals_.get(), EPOLLIN, [this](uint32_t) { on_signal(); })) {
    return system_error("cannot watch a signal descriptor", errno);
  }
  return link_.open();
}

void Agent::send_hello() {
  char name[256] = {};
  ::gethostname(name, sizeof name - 1);
  outbox_.put(AgentHello{.version = HVD_VERSION,
                         .build = build_,
                         .pid = static_cast<uint32_t>(::getpid()),
                         .hostname = name,
                         .machine = host_identity(),
                         .uid = ::getuid(),
                         .cpus = static_cast<uint32_t>(affinity_cores())});
}

int Agent::run() {
  become_subreaper();
  const Status opened = open();
  if (!opened.ok()) {
    std::fprintf(stderr, "horovod-agent: %s\n", opened.message().c_str());
    return 1;
  }
  send_hello();
  for (;;) {
    outbox_.flush();
    if (const auto status = exit_status()) return *status;
    const Deadline next = next_deadline();
    loop_.turn(next);
    // Only time during which this process ran counts against the lease: if the whole job was stopped, the launcher
    // could not send a ping either.
    const bool was_stopped = !next.is_never() && Clock::now() - next.time() > kOverslept;
    if (was_stopped && lease_.deadline().passed()) renew_lease();
    watch_over();
  }
}

std::optional<int> Agent::exit_status() {
  if (state_.now() == AgentState::kFinished && !link_.is_closed()) {
    const bool is_delivered = outbox_.is_empty() && link_.is_delivered();
    if (is_delivered || link_.is_ended_by_launcher()) {
      link_.close();
      return 0;
    }
  }
  if (!link_.state().ok()) lose_link();
  if (!link_.is_closed()) return {};
  finish_when_over();  // without ranks, no event would call it
  return state_.now() == AgentState::kFinished ? std::optional(1) : std::nullopt;
}

Deadline Agent::next_deadline() {
  // Do not wait in the loop while ranks remain to be started.
  if (ranks_.is_starting() && !state_.is_ending()) return Deadline::after_seconds(0);
  Deadline next = Deadline::never();
  const auto consider = [&](Deadline each) {
    if (each.time() < next.time()) next = each;
  };
  std::apply([&](const auto&... timer) { (consider(timer.deadline()), ...); }, timers());
  consider(outside_signals_.deadline());
  consider(lease_.deadline());
  consider(state_.deadline());
  if (state_.now() == AgentState::kKilling) consider(kill_again_at_);
  return next;
}

void Agent::watch_over() {
  const auto wake = [](auto& timer) {
    if (timer.deadline().passed()) timer.on_deadline();
  };
  std::apply([&](auto&... timer) { (wake(timer), ...); }, timers());
  for (const OutsideSignal& signal : outside_signals_.take(Clock::now())) {
    if (!is_end_of_old_command(signal)) act(signal);
  }
  if (ranks_.is_starting() && !state_.is_ending()) conclude_start(ranks_.start_more());
  if (lease_.deadline().passed()) end_lease();
  on_state_deadline();
  finish_when_over();
}

void Agent::on_state_deadline() {
  switch (state_.now()) {
    case AgentState::kLeaving:
      if (!state_.deadline().passed()) return;
      outbox_.put(
          Ending{cat("the agent got signal ", SIGTERM, ", and the ranks have not committed within ",
                     job_.leave_grace_seconds, " s (--leave-grace)")});
      return end(job_.kill_grace_seconds);
    case AgentState::kEnding:
      if (state_.deadline().passed()) kill_what_is_left();
      return;
    case AgentState::kKilling:
      if (kill_again_at_.passed()) kill_what_is_left();
      return;
    case AgentState::kIdle:
    case AgentState::kPrepared:
    case AgentState::kRunning:
    case AgentState::kFinished:
      return;
  }
}

void Agent::finish_when_over() {
  const bool is_over = state_.runs_ranks() ? ranks_.have_ended() : state_.is_ending();
  if (!is_over || state_.now() == AgentState::kFinished) return;
  const bool is_given_up = state_.now() == AgentState::kKilling && state_.deadline().passed();
  samples_.stop();  // a running query would look like a process that a rank has left behind
  if (!is_given_up && samples_.is_asking()) return;
  if (!is_given_up && pmix_.is_alone()) return pmix_.end();
  if (!is_given_up && !is_childless()) {
    has_run_to_its_end_ |= !state_.is_ending();
    if (!state_.is_ending()) end(job_.kill_grace_seconds);  // end the ranks' remaining processes
    return;
  }
  ranks_.expect_no_more_output();
  if (ranks_.is_output_ended() && !is_removing_staged_code()) finish(is_given_up);
}

// Removes staged code on a thread, because it may have many files. Returns whether the removal still runs.
bool Agent::is_removing_staged_code() {
  if (removal_.is_running() || host_preparation_.is_removing()) return true;
  const std::string folder = staging_.release();
  if (folder.empty()) return false;
  const auto written = std::make_shared<std::string>();
  const auto remove = [folder, written, since = staging_.whole_since()] {
    if (since) *written = describe_written_files(folder, *since);
    remove_staging(folder);
  };
  return removal_.start(remove, [this, written] { written_files_ = *written; });
}

void Agent::finish(bool is_given_up) {
  store_.close();
  aggregator_.close();
  world_reports_.close();
  const bool may_be_alone = (!state_.is_ending() || has_run_to_its_end_) && !pmix_.was_used();
  const uint8_t is_independent = may_be_alone ? independence_.verdict() : uint8_t{0};
  // Send with the urgency of output, so that this message does not overtake output.
  std::string left_behind = written_files_;
  if (is_given_up && !is_childless()) {
    left_behind =
        cat("could not end ", describe_descendants([&](pid_t pid) { return ranks_.rank_of(pid); }),
            are_stuck_in_kernel({pmix_.pid()})
                ? "; SIGKILL takes effect when the disk, file system or device answers"
                : "",
            left_behind.empty() ? "" : "; ", left_behind);
  }
  outbox_.put(Finished{.left_behind = std::move(left_behind), .is_independent = is_independent},
              net::Urgency::kOutput);
  state_.move(AgentState::kFinished);
}

void Agent::on_signal() {
  signalfd_siginfo info{};
  while (::read(signals_.get(), &info, sizeof info) == sizeof info) {
    if (info.ssi_signo == SIGCHLD) {
      reap();
    } else if (::getppid() != parent_) {
      fail("the watchdog above the agent was killed");
    } else {
      using enum OutsideSignals::Target;
      const int number = static_cast<int>(info.ssi_signo);
      const bool is_guardians = number >= SIGRTMIN && static_cast<int>(info.ssi_pid) == parent_;
      outside_signals_.add(is_guardians ? info.ssi_int : number, is_guardians ? kGuardian : kAgent,
                           Clock::now());
    }
  }
}

// Returns whether the signal is the SIGHUP that the group got when the launcher ended an older connection's command.
bool Agent::is_end_of_old_command(const OutsideSignal& signal) const {
  const bool is_lone = !signal.is_launchers && !signal.has_reached_ranks;
  return signal.number == SIGHUP && is_lone && link_.has_moved();
}

void Agent::act(const OutsideSignal& signal) {
  const auto [number, is_launchers, has_reached_ranks] = signal;
  if (number == SIGUSR1 || number == SIGUSR2) {
    if (!has_reached_ranks) ranks_.signal(number);
    if (!is_launchers) outbox_.put(Signalled{number});
    return;
  }
  // SIGHUP from the launcher means that it has ordered the end. Send it to the ranks before the end signal, because
  // some handle it.
  if (is_launchers && number == SIGHUP && !has_reached_ranks) ranks_.signal(number);
  // If ranks got this signal directly, only SIGTERM ends the job: ranks may handle other signals and continue.
  if (has_reached_ranks && number != SIGTERM && !is_launchers) return;
  if (!is_launchers && !state_.is_ending() && !announce_end(signal)) return;
  end(job_.kill_grace_seconds, has_reached_ranks && number == SIGTERM);
}

// Notifies the launcher that a signal ends the job. Returns false if end() must not follow: the ranks are leaving, or
// fail() has ended the job.
bool Agent::announce_end(const OutsideSignal& signal) {
  const Ending end = signal.has_reached_ranks
                         ? ended_with_all(environment_)
                         : Ending{cat("the agent was ended by signal ", signal.number)};
  if (!state_.runs_ranks()) {
    fail(end.sentence);
    return false;
  }
  if (signal.number == SIGTERM && !signal.has_reached_ranks && leave()) return false;
  outbox_.put(end);  // not Failed, which would drop the ranks' last lines
  return true;
}

// Lets the ranks of an elastic job run until their next commit, after which the launcher ends them. Returns false if
// the job allows no time for it, or the ranks have already begun to leave.
bool Agent::leave() {
  if (state_.now() == AgentState::kLeaving || job_.leave_grace_seconds == 0) return false;
  state_.move(AgentState::kLeaving, Deadline::after_seconds(job_.leave_grace_seconds));
  outbox_.put(Leaving{cat("its agent got signal ", SIGTERM)});
  return true;
}

void Agent::reap_ranks() { ranks_.reap(state_.is_ending(), state_.now() == AgentState::kKilling); }

void Agent::reap() {
  independence_.look_at_master_port();
  reap_ranks();
  // This process may now be the parent of an ended process's children, so kill again.
  if (state_.now() == AgentState::kKilling) kill_what_is_left();
}

void Agent::end(double grace_seconds, bool has_signal_already) {
  reap_ranks();  // first, so that earlier exits are not reported as effects of this order
  const Deadline kill_at = Deadline::after_seconds(grace_seconds);
  if (state_.now() == AgentState::kEnding) state_.hasten(kill_at);
  if (state_.is_ending()) return;
  state_.move(AgentState::kEnding, kill_at);
  host_preparation_.stop();
  const bool is_held = hold_.is_holding();
  if (grace_seconds > 0) hold_.let_go();
  hold_.end();
  // Stopped ranks must not run again.
  if (is_held && grace_seconds == 0) return kill_what_is_left();
  // SIGCONT lets stopped processes handle the end signal.
  if (has_signal_already)
    signal_descendants({SIGCONT});
  else
    ranks_.end_all(job_.end_signal);
}

void Agent::kill_what_is_left() {
  if (state_.now() == AgentState::kEnding) {
    state_.move(AgentState::kKilling, Deadline::after_seconds(kGiveUpSeconds));
  }
  signal_descendants({SIGKILL}, {pmix_.pid()});
  // Finish early if the remaining processes are stuck: the launcher waits little longer, and must get their names.
  const bool is_long = state_.deadline().seconds_left() < kGiveUpSeconds - kStuckSeconds;
  if (is_long && are_stuck_in_kernel({pmix_.pid()})) state_.hasten(Deadline::after_seconds(0));
  kill_again_at_ = Deadline::after_seconds(kKillAgainSeconds);
}

void Agent::end_lease() {
  outbox_.put(Pong{.silent_seconds = std::max(lease_.seconds(), hold_.silent_seconds())});
  fail(cat("the launcher sent nothing for ", lease_.seconds(), " s"));
}

void Agent::fail(const std::string& sentence) {
  if (!link_.is_closed()) {
    // While the connection is broken, the launcher cannot print the sentence, so print it here.
    if (link_.input() < 0) std::fprintf(stderr, "horovod-agent: %s\n", sentence.c_str());
    outbox_.put(Failed{sentence});
    outbox_.flush();
  }
  lose_link(true);
}

void Agent::lose_link(bool is_given_up) {
  if (link_.is_closed()) return;
  outbox_.abandon();
  const bool is_noteworthy = !link_.state().ok() && link_.state().code() != Code::kAborted;
  if (is_noteworthy) {
    std::fprintf(stderr, "horovod-agent: %s\n", link_.state().message().c_str());
  }
  // A launcher that has abandoned this host may have replaced its ranks, so ranks on this host must not save files now.
  is_given_up |= lease_.deadline().passed() || hold_.is_holding() ||
                 link_.state().code() == Code::kFailedPrecondition;
  link_.close();
  store_.close();
  aggregator_.close();
  world_reports_.close();
  ranks_.discard_output();
  lease_.suspend();
  end(hold_.is_used() && is_given_up ? 0 : job_.kill_grace_seconds);
  watchdog_.expect_within(job_.kill_grace_seconds + kGiveUpSeconds + kWatchdogMargin);
}

void Agent::renew_lease() {
  hold_.received();
  if (lease_.is_suspended()) return;
  lease_.renew();
  if (state_.now() == AgentState::kIdle) return;
  watchdog_.expect_within(lease_.seconds() > 0 ? lease_.seconds() + kWatchdogMargin : 0);
}

void Agent::take(ByteView received) {
  parser_.feed(received);
  while (!link_.is_closed()) {
    auto frame = parser_.next();
    if (!frame.ok()) return fail(frame.error().message());
    if (!*frame) return;
    handle(**frame);
  }
}

void Agent::handle(const net::Frame& frame) {
  const net::FrameHeader& header = frame.header;
  if (state_.now() != AgentState::kIdle && (header.job != job_.job || header.host != job_.host ||
                                            header.generation != job_.generation)) {
    return fail(cat("a frame for job ", header.job, ", generation ", header.generation, ", host ",
                    header.host, " arrived at the agent of another one"));
  }
  renew_lease();
  if (header.type == net::FrameType::kControl) {
    const auto message = decode(frame.payload);
    if (!message.ok()) return fail(message.error().message());
    return std::visit(
        [this]<typename T>(const T& each) {
          if constexpr (T::kType.sender == Sender::kLauncher)
            execute(each);
          else
            fail("the launcher sent a message that only an agent sends");
        },
        *message);
  }
  Status status;
  if (header.stream >= kFirstStoreStream) {
    status = store_.handle(header, frame.payload);
  } else if (header.type == net::FrameType::kCredit) {
    status = ranks_.grant(header.stream, header.credit);
  } else {
    status = internal_error("the launcher sent a frame that is not for the output of a rank");
  }
  if (!status.ok()) fail(status.message());
}

void Agent::execute(const StagePart& part) {
  if (state_.is_ending()) return;
  const auto take = [&](auto& receiver) {
    const Status status = receiver.take(part);
    renew_lease();  // take() may have needed a long time
    outbox_.put(Staged{receiver.taken(), status});
  };
  if (host_preparation_.transfer().wants_part()) return take(host_preparation_.transfer());
  if (host_preparation_.wants_part()) return take(host_preparation_);
  if (inspections_.wants_part()) return take(inspections_);
  if (state_.now() != AgentState::kIdle) {
    return fail("the launcher sent code to a job that has begun");
  }
  take(staging_);
}

void Agent::execute(const EnvironmentOffer& offer) {
  if (state_.is_ending()) return;
  if (!host_preparation_.take(offer)) fail("the launcher sent an environment that nobody wants");
}

void Agent::execute(const EnvironmentSource& source) {
  if (state_.is_ending()) return;
  if (!host_preparation_.transfer().take(source)) {
    fail("the launcher named the source of an environment that was not asked for");
  }
}

void Agent::execute(const TestReachability& order) {
  reachability_.begin(order.candidates, [this](ReachabilityTested tested) { outbox_.put(tested); });
}

void Agent::execute(const Signal& order) {
  const bool may_come_twice = order.number == SIGUSR1 || order.number == SIGUSR2;
  if (!may_come_twice) return ranks_.signal(order.number);
  outside_signals_.add(order.number, OutsideSignals::Target::kLauncher, Clock::now());
}

void Agent::execute(const StackToolOffer& offer) { inspections_.offer(offer); }

void Agent::execute(const Run& order) {
  const RankCommand* like = state_.is_ending() ? nullptr : ranks_.command_of(order.rank);
  if (like != nullptr) return executions_.start(order, *like);
  outbox_.put(ExecResult{
      .number = order.number, .rank = order.rank, .code = 1, .why = "the rank has ended\n"});
}

void Agent::execute(const OutputCredit& taken) { executions_.on_taken(taken); }

void Agent::execute(const StopRun& order) { executions_.stop(order, job_.kill_grace_seconds); }

void Agent::execute(const Input& input) {
  const Status status = ranks_.give_input(input.rank, input.bytes);
  if (!status.ok()) fail(status.message());
}

void Agent::execute(const End& order) {
  if (order.signal == 0) return end(order.grace_seconds);
  outside_signals_.add(order.signal, OutsideSignals::Target::kLauncher, Clock::now());
}

void Agent::execute(const EndRank& order) {
  reap();  // first, so that earlier exits are not reported as effects of this order
  if (!state_.is_ending()) ranks_.end(order.rank, job_.end_signal, order.grace_seconds);
}

void Agent::execute(const Ping& ping) {
  lease_.resume();
  renew_lease();
  if (ping.continues_ranks != 0 && !state_.is_ending()) hold_.let_go();
  independence_.look_at_master_port();
  if (state_.now() != AgentState::kFinished) {
    outbox_.put(Pong{ping.number, hold_.silent_seconds()});
  }
}

void Agent::execute(const Suspend&) {
  lease_.suspend();
  hold_.suspend();
  link_.expect_silence();
  watchdog_.expect_within(0);
  outbox_.put(Suspended{});
}

void Agent::execute(const Prepare& order) {
  if (state_.is_ending()) return;
  if (state_.now() != AgentState::kIdle) {
    return fail("the launcher prepared this agent a second time");
  }
  job_ = order.job;
  outbox_.address(job_.job, job_.generation, job_.host);
  state_.move(AgentState::kPrepared);
  lease_.set(job_.lease_seconds);
  renew_lease();
  if (!sees_its_processes()) {
    return outbox_.put(Prepared{
        failed_precondition(
            "/proc is missing there, or belongs to another PID namespace; the agent needs it to "
            "find and end the processes of a job; mount it: mount -t proc proc /proc"),
        {},
        {}});
  }
  if (job_.has_environment) {
    // In a Slurm step or on the launcher's machine, the environment contains pip's settings, with passwords of indexes.
    std::erase_if(environment_, [](const auto& variable) {
      return variable.first.starts_with("PIP_") || variable.first.starts_with("UV_");
    });
  }
  if (const Status status = staging_.enter(job_, environment_); !status.ok()) {
    return outbox_.put(Prepared{status, {}, {}});
  }
  host_preparation_.begin(job_, environment_, [this, order](const HostPreparationOutcome& found) {
    Status status = found.status;
    if (status.ok()) job_.command = found.command;
    if (status.ok()) status = open_listeners(order.store_credit);
    HostShare share = share_host(job_, found.environment, environment_);
    if (status.ok()) status = share.status;
    Prepared prepared{status, master_port_.candidates(), overlay(found.versions, share.facts),
                      share.threads};
    if (status.ok())
      ranks_.prepare(job_, order.output_credit, found.program, without_binding(found.environment),
                     found.limits, std::move(share));
    if (status.ok() && pmix_.open(job_, environment_)) prepared.versions.emplace_back(kPmix, "");
    outbox_.put(prepared);
  });
}

Status Agent::open_listeners(uint32_t store_credit) {
  // The kernel shows the names of bound sockets to all users. This name does not reveal the store's name, which is
  // bound next.
  HVD_RETURN_IF_ERROR(aggregator_.listen(rendezvous::aggregation_socket_name(store_.name()), job_));
  HVD_RETURN_IF_ERROR(store_.listen(store_credit));
  HVD_RETURN_IF_ERROR(world_reports_.listen());
  HVD_ASSIGN_OR_RETURN(ports_,
                       net::parse_port_range(value_of(job_.environment, "HOROVOD_PORT_RANGE")));
  HVD_ASSIGN_OR_RETURN(interfaces_, net::InterfaceChoice::parse(
                                        value_of(job_.environment, "HOROVOD_NETWORK_INTERFACES")));
  if (job_.hosts > 1 && !interfaces_.allows_all() && interface_names(interfaces_).empty()) {
    return invalid_argument(
        cat("--network-interfaces selects none of the interfaces here: ", interface_names({})));
  }
  if (job_.insecure_compat) HVD_RETURN_IF_ERROR(store_.listen_on_loopback(ports_));
  return reserve_master_port();
}

// Returns no addresses if no other host can need the environment, or if settings are invalid, which open_listeners()
// reports.
EnvironmentTransfer::Network Agent::transfer_network() const {
  if (job_.hosts < 2) return {};
  const auto ports = net::parse_port_range(value_of(job_.environment, "HOROVOD_PORT_RANGE"));
  const auto interfaces =
      net::InterfaceChoice::parse(value_of(job_.environment, "HOROVOD_NETWORK_INTERFACES"));
  if (!ports.ok() || !interfaces.ok()) return {};
  return {.addresses = host_addresses(link_.input(), environment_, *interfaces), .ports = *ports};
}

Status Agent::reserve_master_port() {
  const auto is_first = [](const RankSpec& spec) { return spec.rank == 0; };
  if (std::none_of(job_.ranks.begin(), job_.ranks.end(), is_first)) return {};
  return master_port_.open(ports_, host_addresses(link_.input(), environment_, interfaces_));
}

void Agent::execute(const Start& start) {
  if (state_.is_ending()) return;
  if (state_.now() != AgentState::kPrepared) {
    return fail("the launcher started ranks that it had not prepared");
  }
  state_.move(AgentState::kRunning);
  host_preparation_.end_transfer();
  master_port_.release();
  if (job_.hosts > 1 || job_.ranks.size() > 1)
    independence_.begin(job_.command, job_.working_directory, master_port_.candidates().port);
  const RankNetwork network{.order = start.order,
                            .store = cat(rendezvous::kAgentScheme, "@", store_.name()),
                            .master_port = master_port_.candidates().port,
                            .ports = ports_,
                            .interfaces = interfaces_};
  pmix_.serve(job_, start.order, cat("unix:@", store_.name()));
  conclude_start(ranks_.start(network.master_port, [this, network](const Environment& rank) {
    const Environment more =
        overlay(pmix_.environment_of(rank, network.order), rank_environment(network, rank));
    if (!job_.insecure_compat) return more;
    return overlay(
        original_worker_environment(store_.loopback_port(), link_.input(), rank, environment_),
        more);
  }));
}

// Reports the result of the start to the launcher, once the last rank has started or a rank has failed to start.
void Agent::conclude_start(const Status& status) {
  if (status.ok() && ranks_.is_starting()) return;
  if (status.ok()) {
    link_.survive(job_.lease_seconds, shortest_silence(job_));
    hold_.begin(job_.hold_after_seconds);
  }
  outbox_.put(Started{status});
  if (!status.ok()) end(job_.kill_grace_seconds);
}

}  // namespace hvd::launcher
