#include "launcher/agent/agent.h"

#include <sys/epoll.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <optional>

#include "base/cores.h"
#include "base/machine_identity.h"
#include "base/text.h"
#include "horovod/version.h"
#include "launcher/agent/guardian.h"
#include "launcher/agent/host/host_addresses.h"
#include "launcher/agent/host/non_mpi_program.h"
#include "launcher/agent/host/process_tree.h"
#include "launcher/agent/ranks/rank_environment.h"
#include "launcher/agent/ranks/thread_share.h"
#include "launcher/agent/store/original_workers.h"
#include "launcher/program/command_file.h"
#include "rendezvous/client/host_aggregation.h"

namespace hvd::launcher {
namespace {

// The lease until the job sets its own: at once, or after some pings when hosts join.
constexpr double kFirstLeaseSeconds = 60;
// An agent that wakes so late has been stopped.
constexpr std::chrono::seconds kOverslept{1};
// Beyond the lease, the guardian takes the agent for hung: one that is only slow has ended its ranks by then.
constexpr double kWatchdogMargin = 2;
// The time until the agent sends SIGKILL again, in case it missed a process.
constexpr double kKillAgainSeconds = 0.1;
// The time after which the agent leaves processes that SIGKILL does not end: those of another user,
// or those that hang in the kernel.
constexpr double kGiveUpSeconds = 10;

// The reason after SIGTERM to every process of the host, which a scheduler sends, and no user by hand.
std::string scheduler_ended(const Environment& environment) {
  for (const auto& [name, variable] :
       {std::pair("Slurm", "SLURM_JOB_ID"), std::pair("PBS", "PBS_JOBID"),
        std::pair("LSF", "LSB_JOBID")}) {
    const std::string job(value_of(environment, variable));
    if (job.empty()) continue;
    return cat(name, " has sent SIGTERM to every process of its job ", printable(job),
               " there, as when the job is cancelled or has reached its time limit");
  }
  return "every process of the job there has got SIGTERM, as from a scheduler or service manager";
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
             }),
      host_preparation_(loop_),
      master_port_(loop_),
      reachability_(loop_),
      pmix_(loop_, std::move(folder)),
      world_reports_(loop_,
                     [this](pid_t pid, const rendezvous::WorldReport& world) {
                       if (const auto rank = ranks_.rank_of(pid)) {
                         independence_.on_sign();
                         ranks_.on_joined(pid);
                         outbox_.put(Joined{*rank, world.rank, world.size, world.start, world.ranks,
                                            static_cast<uint8_t>(world.has_met)});
                       }
                     }),
      staging_(std::move(staging)),
      parent_(::getppid()),
      watchdog_(watchdog),
      lease_(Deadline::after_seconds(kFirstLeaseSeconds)) {}

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

void Agent::greet() {
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
  greet();
  for (;;) {
    outbox_.flush();
    const bool is_delivered = outbox_.is_empty() && link_.is_delivered();
    if (is_finished_ && is_linked_ && (is_delivered || link_.is_ended_by_launcher())) {
      link_.close();
      return 0;
    }
    if (is_linked_ && !link_.state().ok()) lose_link();
    if (is_finished_ && !is_linked_) return 1;
    const Deadline next = next_deadline();
    loop_.turn(next);
    was_stopped_ = !next.is_never() && Clock::now() - next.time() > kOverslept;
    watch_over();
  }
}

Deadline Agent::next_deadline() const {
  Deadline next = Deadline::never();
  const auto consider = [&](Deadline each) {
    if (each.time() < next.time()) next = each;
  };
  consider(master_port_.deadline());
  consider(reachability_.deadline());
  consider(pmix_.deadline());
  consider(executions_.deadline());
  consider(ranks_.deadline());
  consider(outside_signals_.deadline());
  consider(link_.deadline());
  if (ranks_.is_starting() && !is_ending_) consider(Deadline::after_seconds(0));
  if (is_linked_ && !is_suspended_) consider(lease_);
  if (!is_ending_) consider(leave_by_);
  if (is_ending_ && !is_finished_) {
    consider(kill_at_);
    consider(kill_again_at_);
    consider(give_up_at_);
  }
  return next;
}

void Agent::watch_over() {
  if (master_port_.deadline().passed()) master_port_.on_deadline();
  if (reachability_.deadline().passed()) reachability_.on_deadline();
  if (pmix_.deadline().passed()) pmix_.on_deadline();
  if (executions_.deadline().passed()) executions_.on_deadline();
  if (ranks_.deadline().passed()) ranks_.on_deadline();
  for (const OutsideSignal& signal : outside_signals_.take(Clock::now())) act(signal);
  if (link_.deadline().passed()) link_.on_deadline();
  if (ranks_.is_starting() && !is_ending_) conclude_start(ranks_.start_more());
  // The lease counts only time in which this process ran: the launcher of a job that was stopped as a whole
  // cannot have sent a ping.
  if (was_stopped_ && is_linked_ && !is_suspended_ && lease_.passed()) renew_lease();
  if (is_linked_ && !is_suspended_ && lease_.passed()) {
    const double lease = phase_ == Phase::kIdle ? kFirstLeaseSeconds : job_.lease_seconds;
    fail(cat("the launcher gave no sign of life for ", lease, " s"));
  }
  if (leave_by_.passed() && !is_ending_) {
    outbox_.put(
        Ending{cat("the agent got signal ", SIGTERM, ", and the ranks have not committed within ",
                   job_.leave_grace_seconds, " s (--leave-grace)")});
    end(job_.kill_grace_seconds);
  }
  if (is_ending_ && !is_finished_ && (kill_at_.passed() || kill_again_at_.passed())) {
    kill_what_is_left();
  }
  const bool is_over = is_ending_ || (phase_ == Phase::kStarted && ranks_.have_ended());
  if (!is_over || is_finished_) return;
  const bool is_given_up = give_up_at_.passed();
  if (!is_given_up && pmix_.is_alone()) return pmix_.end();
  if (!is_given_up && !is_childless()) {
    if (!is_ending_) end(job_.kill_grace_seconds);  // end the ranks' remaining processes
    return;
  }
  ranks_.expect_no_more_output();
  if (!ranks_.is_output_ended()) return;
  store_.close();
  aggregator_.close();
  world_reports_.close();
  const bool is_independent =
      !is_ending_ && !pmix_.was_used() && independence_.holds(job_.command, job_.working_directory);
  staging_.remove();
  // The message must not overtake output, so it has the same urgency.
  outbox_.put(Finished{.left_behind = is_given_up && !is_childless()
                                          ? cat("could not end ", describe_descendants())
                                          : std::string(),
                       .is_independent = is_independent},
              net::Urgency::kOutput);
  is_finished_ = true;
}

void Agent::on_signal() {
  signalfd_siginfo info{};
  while (::read(signals_.get(), &info, sizeof info) == sizeof info) {
    if (info.ssi_signo == SIGCHLD) {
      reap();
    } else if (::getppid() != parent_) {
      fail("the guardian above the agent was killed");
    } else {
      using enum OutsideSignals::Target;
      const int number = static_cast<int>(info.ssi_signo);
      const bool is_guardians = number >= SIGRTMIN && static_cast<int>(info.ssi_pid) == parent_;
      outside_signals_.add(is_guardians ? info.ssi_int : number, is_guardians ? kGuardian : kAgent,
                           Clock::now());
    }
  }
}

void Agent::act(const OutsideSignal& signal) {
  const auto [number, is_launchers, has_reached_ranks] = signal;
  if (number == SIGUSR1 || number == SIGUSR2) {
    if (!has_reached_ranks) ranks_.signal(number);
    if (!is_launchers) outbox_.put(Signalled{number});
    return;
  }
  // The launcher has ordered the end. A rank that handles SIGHUP gets this signal first.
  if (is_launchers && number == SIGHUP && !has_reached_ranks) ranks_.signal(number);
  // Ranks that already got another signal than SIGTERM may handle it and continue.
  if (has_reached_ranks && number != SIGTERM && !is_launchers) return;
  if (!is_launchers && !is_ending_) {
    const std::string why = has_reached_ranks ? scheduler_ended(environment_)
                                              : cat("the agent was ended by signal ", number);
    if (phase_ != Phase::kStarted) return fail(why);
    if (number == SIGTERM && !has_reached_ranks && leave()) return;
    outbox_.put(Ending{why});  // not Failed: the last lines of the ranks follow
  }
  end(job_.kill_grace_seconds, has_reached_ranks && number == SIGTERM);
}

// The ranks of an elastic job go on until their next commit; the launcher ends them then. False when they
// have had the time for that.
bool Agent::leave() {
  const bool is_leaving = leave_by_.time() != Deadline::never().time();
  if (is_leaving || job_.leave_grace_seconds == 0 || !is_linked_) return false;
  leave_by_ = Deadline::after_seconds(job_.leave_grace_seconds);
  outbox_.put(Leaving{cat("its agent got signal ", SIGTERM)});
  return true;
}

void Agent::reap() {
  independence_.look_at_master_port();
  ranks_.reap(is_ending_, is_killing_);
  // This process may now be the parent of the ended processes' children.
  if (is_killing_) kill_what_is_left();
}

void Agent::end(double grace_seconds, bool has_signal_already) {
  // A rank that has already ended ended by itself.
  ranks_.reap(is_ending_, is_killing_);
  const Deadline kill_at = Deadline::after_seconds(grace_seconds);
  if (is_ending_) {
    if (!is_killing_ && kill_at.time() < kill_at_.time()) kill_at_ = kill_at;
    return;
  }
  is_ending_ = true;
  kill_at_ = kill_at;
  // SIGCONT lets stopped processes end.
  if (has_signal_already)
    signal_descendants({SIGCONT});
  else
    ranks_.end_all(job_.end_signal);
}

void Agent::kill_what_is_left() {
  if (!is_killing_) give_up_at_ = Deadline::after_seconds(kGiveUpSeconds);
  is_killing_ = true;
  kill_at_ = Deadline::never();
  signal_descendants({SIGKILL}, {pmix_.pid()});
  kill_again_at_ = Deadline::after_seconds(kKillAgainSeconds);
}

void Agent::fail(const std::string& sentence) {
  if (is_linked_) {
    // While the connection is broken, only this process can report the sentence.
    if (link_.input() < 0) std::fprintf(stderr, "horovod-agent: %s\n", sentence.c_str());
    outbox_.put(Failed{sentence});
    outbox_.flush();
  }
  lose_link();
}

void Agent::lose_link() {
  if (!is_linked_) return;
  is_linked_ = false;
  outbox_.abandon();
  const bool is_noteworthy = !link_.state().ok() && link_.state().code() != Code::kAborted;
  if (is_noteworthy) {
    std::fprintf(stderr, "horovod-agent: %s\n", link_.state().message().c_str());
  }
  link_.close();
  store_.close();
  aggregator_.close();
  world_reports_.close();
  ranks_.discard_output();
  end(job_.kill_grace_seconds);
  watchdog_.expect_within(job_.kill_grace_seconds + kGiveUpSeconds + kWatchdogMargin);
}

void Agent::renew_lease() {
  lease_ = job_.lease_seconds > 0 ? Deadline::after_seconds(job_.lease_seconds) : Deadline::never();
  if (phase_ == Phase::kIdle) {
    lease_ = Deadline::after_seconds(kFirstLeaseSeconds);
  } else {
    watchdog_.expect_within(job_.lease_seconds > 0 ? job_.lease_seconds + kWatchdogMargin : 0);
  }
}

// Executes the orders of the launcher.

void Agent::take(ByteView received) {
  parser_.feed(received);
  while (is_linked_) {
    auto frame = parser_.next();
    if (!frame.ok()) return fail(frame.error().message());
    if (!*frame) return;
    handle(**frame);
  }
}

void Agent::handle(const net::Frame& frame) {
  const net::FrameHeader& header = frame.header;
  if (phase_ != Phase::kIdle && (header.job != job_.job || header.host != job_.host ||
                                 header.generation != job_.generation)) {
    return fail(cat("a frame for job ", header.job, ", generation ", header.generation, ", host ",
                    header.host, " came to the agent of another"));
  }
  if (!is_suspended_) renew_lease();
  if (header.type == net::FrameType::kControl) {
    const auto message = decode(frame.payload);
    if (!message.ok()) return fail(message.error().message());
    return obey(*message);
  }
  Status status;
  if (header.stream >= kFirstStoreStream) {
    status = store_.handle(header, frame.payload);
  } else if (header.type == net::FrameType::kCredit) {
    status = ranks_.grant(header.stream, header.credit);
  } else {
    status = internal_error("the launcher sent a frame that no rank's output takes");
  }
  if (!status.ok()) fail(status.message());
}

void Agent::obey(const Message& message) {
  if (const auto* prepare = std::get_if<Prepare>(&message)) {
    handle(*prepare);
  } else if (const auto* part = std::get_if<StagePart>(&message)) {
    if (phase_ != Phase::kIdle) return fail("the launcher sent code to a job that has begun");
    renew_lease();
    const Status status = staging_.take(*part);
    outbox_.put(Staged{staging_.taken(), status});
  } else if (const auto* start = std::get_if<Start>(&message)) {
    handle(*start);
  } else if (const auto* test = std::get_if<TestReachability>(&message)) {
    reachability_.begin(test->candidates,
                        [this](ReachabilityTested tested) { outbox_.put(tested); });
  } else if (const auto* signal = std::get_if<Signal>(&message)) {
    const bool may_come_twice = signal->number == SIGUSR1 || signal->number == SIGUSR2;
    if (!may_come_twice) return ranks_.signal(signal->number);
    outside_signals_.add(signal->number, OutsideSignals::Target::kLauncher, Clock::now());
  } else if (const auto* question = std::get_if<Inspect>(&message)) {
    outbox_.put(Inspected{question->number, ranks_.snapshots(InspectDetail{question->detail})});
  } else if (const auto* run = std::get_if<Run>(&message)) {
    const RankCommand* like = is_ending_ ? nullptr : ranks_.command_of(run->rank);
    if (like != nullptr)
      executions_.start(*run, *like);
    else
      outbox_.put(
          Ran{.number = run->number, .rank = run->rank, .code = 1, .why = "the rank has ended\n"});
  } else if (const auto* taken = std::get_if<SaidTaken>(&message)) {
    executions_.on_taken(*taken);
  } else if (const auto* stop = std::get_if<StopRun>(&message)) {
    executions_.stop(*stop, job_.kill_grace_seconds);
  } else if (const auto* input = std::get_if<Input>(&message)) {
    const Status status = ranks_.give_input(input->rank, input->bytes);
    if (!status.ok()) fail(status.message());
  } else if (const auto* order = std::get_if<End>(&message)) {
    if (order->signal == 0) return end(order->grace_seconds);
    outside_signals_.add(order->signal, OutsideSignals::Target::kLauncher, Clock::now());
  } else if (const auto* one = std::get_if<EndRank>(&message)) {
    reap();  // a rank that has already ended ended by itself
    if (!is_ending_) ranks_.end(one->rank, job_.end_signal, one->grace_seconds);
  } else if (const auto* ping = std::get_if<Ping>(&message)) {
    is_suspended_ = false;
    renew_lease();
    independence_.look_at_master_port();
    if (!is_finished_) outbox_.put(Pong{ping->number});
  } else if (std::holds_alternative<Suspend>(message)) {
    is_suspended_ = true;
    watchdog_.expect_within(0);
    outbox_.put(Suspended{});
  } else {
    fail("the launcher sent a message that only an agent sends");
  }
}

void Agent::handle(const Prepare& order) {
  if (phase_ != Phase::kIdle) return fail("the launcher prepared this agent a second time");
  job_ = order.job;
  outbox_.address(job_.job, job_.generation, job_.host);
  phase_ = Phase::kPrepared;
  renew_lease();
  if (const Status status = staging_.enter(job_, environment_); !status.ok()) {
    return outbox_.put(Prepared{status, {}, {}});
  }
  if (!is_non_mpi()) pmix_.begin(job_, environment_, [this] { announce(); });
  host_preparation_.begin(job_, environment_, [this, order](const HostPreparationOutcome& found) {
    Status status = found.status;
    if (status.ok()) job_.command = found.command;
    if (status.ok()) status = open_listeners(order.store_credit);
    const uint32_t threads = thread_share(job_, found.environment, available_cores());
    Environment environment = found.environment;
    if (threads != 0) environment.emplace_back(kThreadsVariable, cat(threads));
    if (status.ok()) ranks_.prepare(job_, order.output_credit, found.program, environment);
    prepared_ = Prepared{status, master_port_.candidates(), found.versions, threads};
    const auto visible =
        std::ranges::find(environment_, "CUDA_VISIBLE_DEVICES", &Environment::value_type::first);
    const int gpus =
        visible_gpus(count_gpus(),
                     visible == environment_.end() ? std::nullopt : std::optional(visible->second));
    prepared_->versions.emplace_back(kGpus, cat(gpus));
    prepared_->versions.emplace_back(kCores, cat(available_cores()));
    announce();
  });
}

// Returns false with --remote-init, since its command may still change PATH.
bool Agent::is_non_mpi() const {
  if (!job_.remote_init.empty()) return false;
  const Environment environment = merged(environment_, job_.environment);
  const auto found = find_command(
      job_.command, {job_.working_directory, std::string(value_of(environment, "PATH")),
                     environment, job_.python});
  return found.ok() && is_non_mpi_program(found->path, found->command);
}

void Agent::announce() {
  if (!prepared_ || (prepared_->status.ok() && !pmix_.has_answered())) return;
  if (!pmix_.version().empty()) prepared_->versions.emplace_back("PMIx", pmix_.version());
  outbox_.put(*prepared_);
  prepared_.reset();
}

Status Agent::open_listeners(uint32_t store_credit) {
  // The kernel shows a name to all users once it is bound. This one does not reveal the store's.
  HVD_RETURN_IF_ERROR(aggregator_.listen(rendezvous::aggregation_socket_name(store_.name()), job_));
  HVD_RETURN_IF_ERROR(store_.listen(store_credit));
  HVD_RETURN_IF_ERROR(world_reports_.listen());
  HVD_ASSIGN_OR_RETURN(ports_,
                       net::parse_port_range(value_of(job_.environment, "HOROVOD_PORT_RANGE")));
  HVD_ASSIGN_OR_RETURN(interfaces_, net::InterfaceChoice::parse(
                                        value_of(job_.environment, "HOROVOD_NETWORK_INTERFACES")));
  if (job_.hosts > 1 && !interfaces_.allows_all() && interface_names(interfaces_).empty()) {
    return invalid_argument(
        cat("--network-interfaces leaves none of the interfaces here: ", interface_names({})));
  }
  if (job_.insecure_compat) HVD_RETURN_IF_ERROR(store_.listen_on_loopback(ports_));
  return reserve_master_port();
}

Status Agent::reserve_master_port() {
  const auto is_first = [](const RankSpec& spec) { return spec.rank == 0; };
  if (std::none_of(job_.ranks.begin(), job_.ranks.end(), is_first)) return {};
  return master_port_.open(ports_, host_addresses(link_.input(), environment_, interfaces_));
}

void Agent::handle(const Start& start) {
  if (phase_ != Phase::kPrepared) return fail("the launcher started what it had not prepared");
  if (is_ending_) return;
  phase_ = Phase::kStarted;
  master_port_.release();
  independence_.begin(master_port_.candidates().port);
  const RankNetwork network{.order = start.order,
                            .store = cat(rendezvous::kAgentScheme, "@", store_.name()),
                            .master_port = master_port_.candidates().port,
                            .ports = ports_,
                            .interfaces = interfaces_};
  const auto served = pmix_.serve(job_, start.order, cat("unix:@", store_.name()));
  conclude_start(
      ranks_.start(network.master_port, [this, network, served](const Environment& rank) {
        const Environment more = merged(pmix_rank_environment(served, rank, network.order),
                                        rank_environment(network, rank));
        if (!job_.insecure_compat) return more;
        return merged(
            original_worker_environment(store_.loopback_port(), link_.input(), rank, environment_),
            more);
      }));
}

// Reports the result of the start to the launcher once the last rank has started, or one has failed.
void Agent::conclude_start(const Status& status) {
  if (status.ok() && ranks_.is_starting()) return;
  if (status.ok()) link_.survive(job_.lease_seconds);
  outbox_.put(Started{status});
  if (!status.ok()) end(job_.kill_grace_seconds);
}

}  // namespace hvd::launcher
