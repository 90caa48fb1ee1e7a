#include "launcher/agent/agent.h"

#include <sys/epoll.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>

#include "base/cores.h"
#include "base/proc_file.h"
#include "base/text.h"
#include "horovod/version.h"
#include "launcher/agent/guardian.h"
#include "launcher/agent/host/process_tree.h"
#include "launcher/agent/ranks/rank_environment.h"
#include "launcher/agent/store/original_workers.h"
#include "rendezvous/client/host_aggregation.h"

namespace hvd::launcher {

namespace {

// Until a job brings its own lease, which comes at once, or after pings where hosts join.
constexpr double kFirstLeaseSeconds = 60;
// Killed processes are looked for again after this, should one have been missed.
constexpr double kKillAgainSeconds = 0.1;
// After that long, what SIGKILL does not end (another user's, or stuck in the kernel) is left.
constexpr double kGiveUpSeconds = 10;

std::string boot_id() {
  return std::string(trim(read_proc_file("/proc/sys/kernel/random/boot_id")));
}

}  // namespace

Agent::Agent(PollLoop loop, Link link, std::string build, Environment environment,
             std::string folder, std::string staging)
    : loop_(std::move(loop)),
      link_(std::move(link)),
      build_(std::move(build)),
      environment_(std::move(environment)),
      outbox_(loop_, link_.output.get(), link_.cipher.get()),
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
                         outbox_.put(Joined{*rank, world.rank, world.size});
                       }
                     }),
      staging_(std::move(staging)),
      parent_(::getppid()),
      lease_(Deadline::after_seconds(kFirstLeaseSeconds)) {}

Agent::~Agent() = default;

Status Agent::open() {
  const sigset_t set = agent_signals();
  signals_.reset(::signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!signals_) return system_error("cannot make a signal descriptor", errno);
  if (!loop_.watch(signals_.get(), EPOLLIN, [this](uint32_t) { on_signal(); }) ||
      !loop_.watch(link_.input.get(), EPOLLIN, [this](uint32_t) { read_link(); })) {
    return system_error("the agent's input is not a pipe, socket or terminal", errno);
  }
  return {};
}

void Agent::greet() {
  char name[256] = {};
  ::gethostname(name, sizeof name - 1);
  outbox_.put(AgentHello{.version = HVD_VERSION,
                         .build = build_,
                         .pid = static_cast<uint32_t>(::getpid()),
                         .hostname = name,
                         .boot_id = boot_id(),
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
  if (link_.cipher) take_deciphered();  // what came along with the launcher's admission
  for (;;) {
    outbox_.flush();
    if (outbox_.is_broken() && is_linked_) lose_link();
    const bool is_delivered = outbox_.is_empty() || !is_linked_;
    if (is_finished_ && is_delivered) return is_linked_ ? 0 : 1;
    loop_.turn(next_deadline());
    watch_over();
  }
}

Deadline Agent::next_deadline() const {
  Deadline next = Deadline::never();
  const auto consider = [&](Deadline each) {
    if (each.time() < next.time()) next = each;
  };
  consider(reachability_.deadline());
  consider(pmix_.deadline());
  consider(executions_.deadline());
  consider(outside_signals_.deadline());
  if (is_linked_ && !is_suspended_ && !is_finished_) consider(lease_);
  if (is_ending_ && !is_finished_) {
    consider(kill_at_);
    consider(kill_again_at_);
    consider(give_up_at_);
  }
  return next;
}

void Agent::watch_over() {
  if (reachability_.deadline().passed()) reachability_.on_deadline();
  if (pmix_.deadline().passed()) pmix_.on_deadline();
  if (executions_.deadline().passed()) executions_.on_deadline();
  for (const OutsideSignal& signal : outside_signals_.take(Clock::now())) act(signal);
  if (is_linked_ && !is_suspended_ && !is_finished_ && lease_.passed()) {
    const double lease = phase_ == Phase::kIdle ? kFirstLeaseSeconds : job_.lease_seconds;
    fail(cat("the launcher gave no sign of life for ", lease, " s"));
  }
  if (is_ending_ && !is_finished_ && (kill_at_.passed() || kill_again_at_.passed())) {
    kill_what_is_left();
  }
  const bool is_over = is_ending_ || (phase_ == Phase::kStarted && ranks_.have_ended());
  if (!is_over || is_finished_) return;
  const bool is_given_up = give_up_at_.passed();
  if (!is_given_up && pmix_.is_alone()) return pmix_.end();
  if (!is_given_up && !is_childless()) {
    if (!is_ending_) end(job_.kill_grace_seconds);  // what the ranks left belongs to the job
    return;
  }
  ranks_.expect_no_more_output();
  if (!ranks_.is_output_ended()) return;
  store_.close();
  aggregator_.close();
  world_reports_.close();
  staging_.remove();
  // Behind all output, which it must not overtake.
  outbox_.put(
      Finished{is_given_up && !is_childless() ? cat("could not end ", describe_descendants())
                                              : std::string()},
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
  // The launcher has ordered the end. A rank that handles SIGHUP may do more then than at a SIGTERM.
  if (is_launchers && number == SIGHUP && !has_reached_ranks) ranks_.signal(number);
  // The ranks show what they make of any other signal than SIGTERM.
  if (has_reached_ranks && number != SIGTERM && !is_launchers) return;
  if (!is_launchers && !is_ending_) {
    const std::string why = cat("the agent was ended by signal ", number);
    if (phase_ != Phase::kStarted) return fail(why);
    outbox_.put(Ending{why});  // and not Failed: the ranks' last lines follow
  }
  end(job_.kill_grace_seconds, has_reached_ranks && number == SIGTERM);
}

void Agent::reap() {
  ranks_.reap(is_ending_, is_killing_);
  // The dead may have handed their children to us.
  if (is_killing_) kill_what_is_left();
}

void Agent::end(double grace_seconds, bool has_signal_already) {
  // Who has ended by now has not been ended by us.
  ranks_.reap(is_ending_, is_killing_);
  const Deadline kill_at = Deadline::after_seconds(grace_seconds);
  if (is_ending_) {
    if (!is_killing_ && kill_at.time() < kill_at_.time()) kill_at_ = kill_at;
    return;
  }
  is_ending_ = true;
  kill_at_ = kill_at;
  // A stopped one could not end.
  if (has_signal_already)
    signal_descendants({SIGCONT});
  else
    signal_descendants({job_.end_signal, SIGCONT});
}

void Agent::kill_what_is_left() {
  if (!is_killing_) give_up_at_ = Deadline::after_seconds(kGiveUpSeconds);
  is_killing_ = true;
  kill_at_ = Deadline::never();
  signal_descendants({SIGKILL}, pmix_.pid());
  kill_again_at_ = Deadline::after_seconds(kKillAgainSeconds);
}

void Agent::fail(const std::string& sentence) {
  if (is_linked_) {
    outbox_.put(Failed{sentence});
    outbox_.flush();
  }
  lose_link();
}

void Agent::lose_link() {
  if (!is_linked_) return;
  is_linked_ = false;
  outbox_.abandon();
  loop_.forget(link_.input.get());
  link_.input.reset();
  link_.output.reset();
  store_.close();
  aggregator_.close();
  world_reports_.close();
  ranks_.discard_output();
  end(job_.kill_grace_seconds);
}

void Agent::renew_lease() {
  lease_ = job_.lease_seconds > 0 ? Deadline::after_seconds(job_.lease_seconds) : Deadline::never();
  if (phase_ == Phase::kIdle) lease_ = Deadline::after_seconds(kFirstLeaseSeconds);
}

}  // namespace hvd::launcher
