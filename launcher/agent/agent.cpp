#include "launcher/agent/agent.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/epoll.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>

#include "base/text.h"
#include "horovod/version.h"
#include "launcher/agent/plain_workers.h"
#include "launcher/agent/process_tree.h"

namespace hvd::launcher {

namespace {

// Until a job brings its own lease: long enough for the slowest host of a large job.
constexpr double kFirstLeaseSeconds = 600;
// Killed processes are looked for again after this, should one have been missed.
constexpr double kKillAgainSeconds = 0.1;
// After that long, what SIGKILL does not end (another user's, or stuck in the kernel) is left.
constexpr double kGiveUpSeconds = 10;

std::string boot_id() {
  const UniqueFd file(::open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC));
  char buffer[64];
  const ssize_t size = file ? ::read(file.get(), buffer, sizeof buffer) : -1;
  return std::string(trim({buffer, size > 0 ? static_cast<size_t>(size) : 0}));
}

uint32_t usable_cpus() {
  cpu_set_t set;
  if (::sched_getaffinity(0, sizeof set, &set) == 0) return static_cast<uint32_t>(CPU_COUNT(&set));
  return static_cast<uint32_t>(std::max(1L, ::sysconf(_SC_NPROCESSORS_ONLN)));
}

}  // namespace

Agent::Agent(PollLoop loop, Link link, std::string build, Environment environment)
    : loop_(std::move(loop)),
      link_(std::move(link)),
      build_(std::move(build)),
      environment_(std::move(environment)),
      outbox_(loop_, link_.output.get()),
      store_(loop_, outbox_),
      ranks_(loop_, outbox_, [this] { reap(); }),
      parent_(::getppid()),
      lease_(Deadline::after_seconds(kFirstLeaseSeconds)) {}

Agent::~Agent() = default;

Status Agent::open() {
  sigset_t set;
  sigemptyset(&set);
  for (const int number : {SIGCHLD, SIGTERM, SIGINT, SIGHUP, SIGQUIT}) sigaddset(&set, number);
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
  outbox_.put(Greeting{.version = HVD_VERSION,
                       .build = build_,
                       .pid = static_cast<uint32_t>(::getpid()),
                       .hostname = name,
                       .boot_id = boot_id(),
                       .uid = ::getuid(),
                       .cpus = usable_cpus()});
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
  if (is_linked_ && !is_suspended_ && !is_finished_) consider(lease_);
  if (is_ending_ && !is_finished_) {
    consider(kill_at_);
    consider(kill_again_at_);
    consider(give_up_at_);
  }
  return next;
}

void Agent::watch_over() {
  if (is_linked_ && !is_suspended_ && !is_finished_ && lease_.passed()) {
    return fail(cat("the launcher gave no sign of life for ", job_.lease_seconds, " s"));
  }
  if (is_ending_ && !is_finished_ && (kill_at_.passed() || kill_again_at_.passed())) {
    kill_what_is_left();
  }
  const bool is_over = is_ending_ || (phase_ == Phase::kStarted && ranks_.have_ended());
  if (!is_over || is_finished_) return;
  const bool is_given_up = give_up_at_.passed();
  if (!is_given_up && !is_childless()) {
    if (!is_ending_) end(job_.kill_grace_seconds);  // what the ranks left belongs to the job
    return;
  }
  ranks_.expect_no_more_output();
  if (!ranks_.is_output_ended()) return;
  store_.close();
  // Behind all output, which it must not overtake.
  outbox_.put(Finished{is_given_up && !is_childless()
                           ? cat("could not end ", describe_descendants())
                           : std::string()},
              net::Urgency::kOutput);
  is_finished_ = true;
}

void Agent::read_link() {
  std::array<std::byte, 64 << 10> buffer;
  const ssize_t size = ::read(link_.input.get(), buffer.data(), buffer.size());
  if (size < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (size <= 0) return lose_link();
  parser_.feed(ByteView(buffer).first(static_cast<size_t>(size)));
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
  } else if (const auto* start = std::get_if<Start>(&message)) {
    handle(*start);
  } else if (const auto* signal = std::get_if<Signal>(&message)) {
    ranks_.signal(signal->number);
  } else if (const auto* order = std::get_if<End>(&message)) {
    end(order->grace_seconds);
  } else if (const auto* ping = std::get_if<Ping>(&message)) {
    is_suspended_ = false;
    renew_lease();
    outbox_.put(Pong{ping->number});
  } else if (std::holds_alternative<Suspend>(message)) {
    is_suspended_ = true;
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
  Status status = ranks_.prepare(job_, order.output_credit, environment_);
  if (status.ok()) status = store_.listen(order.store_credit);
  if (status.ok() && job_.insecure_compat) status = store_.listen_on_loopback();
  outbox_.put(Prepared{status});
}

void Agent::handle(const Start&) {
  if (phase_ != Phase::kPrepared) return fail("the launcher started what it had not prepared");
  if (is_ending_) return;
  phase_ = Phase::kStarted;
  const Status status = ranks_.start([this](const Environment& rank) {
    Environment more;
    if (job_.insecure_compat) {
      more = plain_worker_environment(store_.loopback_port(), link_.input.get(), rank,
                                      environment_);
    }
    more.emplace_back("HOROVOD_STORE", store_.address());
    return more;
  });
  outbox_.put(Started{status});
  if (!status.ok()) end(job_.kill_grace_seconds);
}

void Agent::on_signal() {
  signalfd_siginfo info{};
  while (::read(signals_.get(), &info, sizeof info) == sizeof info) {
    if (info.ssi_signo == SIGCHLD) {
      reap();
    } else if (::getppid() != parent_) {
      fail("the guardian above the agent was killed");
    } else {
      fail(cat("the agent was ended by signal ", info.ssi_signo));
    }
  }
}

void Agent::reap() {
  ranks_.reap(is_ending_);
  // The dead may have handed their children to us.
  if (is_killing_) kill_what_is_left();
}

void Agent::end(double grace_seconds) {
  // Who has ended by now has not been ended by us.
  ranks_.reap(is_ending_);
  const Deadline kill_at = Deadline::after_seconds(grace_seconds);
  if (is_ending_) {
    if (!is_killing_ && kill_at.time() < kill_at_.time()) kill_at_ = kill_at;
    return;
  }
  is_ending_ = true;
  kill_at_ = kill_at;
  signal_descendants({SIGTERM, SIGCONT});  // a stopped one could not end
}

void Agent::kill_what_is_left() {
  if (!is_killing_) give_up_at_ = Deadline::after_seconds(kGiveUpSeconds);
  is_killing_ = true;
  kill_at_ = Deadline::never();
  signal_descendants({SIGKILL});
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
  ranks_.discard_output();
  end(job_.kill_grace_seconds);
}

void Agent::renew_lease() {
  lease_ = job_.lease_seconds > 0 ? Deadline::after_seconds(job_.lease_seconds) : Deadline::never();
  if (phase_ == Phase::kIdle) lease_ = Deadline::after_seconds(kFirstLeaseSeconds);
}

}  // namespace hvd::launcher
