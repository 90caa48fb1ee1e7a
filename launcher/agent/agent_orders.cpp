// What the launcher asks of an agent, and what the agent does about it.
#include <sys/epoll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdio>

#include "base/cores.h"
#include "base/text.h"
#include "launcher/agent/agent.h"
#include "launcher/agent/host/host_addresses.h"
#include "launcher/agent/host/non_mpi_program.h"
#include "launcher/agent/ranks/rank_environment.h"
#include "launcher/agent/ranks/thread_share.h"
#include "launcher/agent/store/original_workers.h"
#include "rendezvous/client/host_aggregation.h"

namespace hvd::launcher {

namespace {

constexpr size_t kLongestSentence = 1000;

}  // namespace

void Agent::read_link() {
  std::array<std::byte, 64 << 10> buffer;
  const ssize_t size = ::read(link_.input.get(), buffer.data(), buffer.size());
  if (size < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (size <= 0) return lose_link();
  const ByteView received = ByteView(buffer).first(static_cast<size_t>(size));
  if (!link_.cipher) return take(received);
  link_.cipher->feed(received);
  take_deciphered();
}

void Agent::take_deciphered() {
  std::array<std::byte, 16 << 10> buffer;
  while (is_linked_) {
    const auto size = link_.cipher->read(buffer);
    if (!size.ok()) return fail(size.error().message());
    if (!*size) return;
    if (**size == 0) return lose_link();
    take(ByteView(buffer).first(**size));
  }
}

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
    outbox_.put(Inspected{question->number, ranks_.snapshots(question->with_stacks != 0)});
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
  } else if (const auto* ping = std::get_if<Ping>(&message)) {
    is_suspended_ = false;
    renew_lease();
    outbox_.put(Pong{ping->number});
  } else if (std::holds_alternative<Suspend>(message)) {
    is_suspended_ = true;
    outbox_.put(Suspended{});
  } else if (const auto* dismissal = std::get_if<Failed>(&message)) {
    std::fprintf(stderr, "horovod-agent: the launcher does not take this host: %s\n",
                 printable(dismissal->sentence, kLongestSentence).c_str());
    lose_link();
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
    if (status.ok()) status = open_listeners(order.store_credit);
    const uint32_t threads = thread_share(job_, found.environment, available_cores());
    Environment environment = found.environment;
    if (threads != 0) environment.emplace_back(kThreadsVariable, cat(threads));
    if (status.ok()) ranks_.prepare(job_, order.output_credit, found.program, environment);
    prepared_ = Prepared{status, master_port_.candidates(), found.versions, threads};
    announce();
  });
}

// What a command of --remote-init makes of PATH is not known yet.
bool Agent::is_non_mpi() const {
  if (!job_.remote_init.empty()) return false;
  const Environment environment = merged(environment_, job_.environment);
  const auto program =
      find_program(job_.command[0], job_.working_directory, value_of(environment, "PATH"));
  return program.ok() && is_non_mpi_program(*program, job_.command);
}

void Agent::announce() {
  if (!prepared_ || (prepared_->status.ok() && !pmix_.has_answered())) return;
  if (!pmix_.version().empty()) prepared_->versions.emplace_back("PMIx", pmix_.version());
  outbox_.put(*prepared_);
  prepared_.reset();
}

Status Agent::open_listeners(uint32_t store_credit) {
  HVD_RETURN_IF_ERROR(store_.listen(store_credit));
  HVD_RETURN_IF_ERROR(aggregator_.listen(rendezvous::aggregation_socket_name(store_.name()), job_));
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
  return master_port_.open(ports_, host_addresses(link_.input.get(), environment_, interfaces_));
}

void Agent::handle(const Start& start) {
  if (phase_ != Phase::kPrepared) return fail("the launcher started what it had not prepared");
  if (is_ending_) return;
  phase_ = Phase::kStarted;
  master_port_.release();
  const RankNetwork network{.order = start.order,
                            .store = cat(rendezvous::kAgentScheme, "@", store_.name()),
                            .master_port = master_port_.candidates().port,
                            .ports = ports_,
                            .interfaces = interfaces_};
  const auto served = pmix_.serve(job_, start.order, cat("unix:@", store_.name()));
  const Status status = ranks_.start([&](const Environment& rank) {
    Environment more =
        merged(pmix_rank_environment(served, rank, start.order), rank_environment(network, rank));
    if (!job_.insecure_compat) return more;
    return merged(
        original_worker_environment(store_.loopback_port(), link_.input.get(), rank, environment_),
        more);
  });
  outbox_.put(Started{status});
  if (!status.ok()) end(job_.kill_grace_seconds);
}

}  // namespace hvd::launcher
