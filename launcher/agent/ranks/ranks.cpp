#include "launcher/agent/ranks/ranks.h"

#include <sys/epoll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <span>

#include "base/check.h"
#include "base/limits/descriptor_limit.h"
#include "base/proc_file.h"
#include "base/text.h"
#include "launcher/agent/host/process_connections.h"
#include "launcher/agent/host/process_tree.h"
#include "launcher/agent/ranks/rank_pressure.h"

namespace hvd::launcher {
namespace {

// If a start takes 50 ms, as on a slow file system, starting this many ranks takes about one second.
constexpr size_t kRanksAtOnce = 64;

}  // namespace

Ranks::~Ranks() {
  for (const auto& rank : ranks_) {
    if (rank->input) loop_.unwatch(rank->input.get());
    for (const Output& output : rank->outputs) {
      if (output.pipe) loop_.unwatch(output.pipe.get());
    }
  }
}

void Ranks::prepare(const HostJob& job, uint32_t output_credit, const std::string& program,
                    const Environment& environment, const ProcessLimits& limits, HostShare share) {
  const rlimit limit = raise_descriptor_limit();  // ranks get the former limit
  output_credit_ = output_credit;
  share_ = std::move(share);
  for (const RankSpec& spec : job.ranks) {
    const RankShare& own = share_.ranks[ranks_.size()];
    auto rank = std::make_unique<Rank>();
    rank->number = spec.rank;
    for (const OutputStream stream : {OutputStream::kStdout, OutputStream::kStderr}) {
      rank->outputs[stream == OutputStream::kStdout ? 0 : 1].stream =
          output_stream(ranks_.size(), stream);
    }
    ranks_.push_back(std::move(rank));
    commands_.push_back({program, job.command, job.working_directory,
                         overlay(overlay(environment, own.environment), spec.environment), limit,
                         spec.has_input, limits, own});
  }
  std::vector<int> numbers;
  for (const RankSpec& spec : job.ranks) numbers.push_back(spec.rank);
  meters_.prepare(numbers);
}

Status Ranks::start(uint16_t master_port, MoreEnvironment more) {
  master_port_ = master_port;
  oom_kills_ = out_of_memory_kills();
  more_ = std::move(more);
  return start_more();
}

Status Ranks::start_more() {
  const size_t first = next_;
  next_ = std::min(commands_.size(), first + kRanksAtOnce);
  const std::span<RankCommand> commands = std::span(commands_).subspan(first, next_ - first);
  for (size_t i = 0; i < commands.size(); ++i) {
    Environment& environment = commands[i].environment;
    environment = overlay(environment, more_(environment));
    const std::string place = meters_.place_of(first + i);
    if (!place.empty()) environment = overlay(environment, {{"HOROVOD_METRICS_PAGE", place}});
  }
  auto started = start_ranks(commands, threads_);
  Status status;
  for (size_t i = 0; i < started.size(); ++i) {
    if (started[i].ok())
      adopt(*ranks_[first + i], *std::move(started[i]));
    else if (status.ok())
      status = started[i].status();
  }
  is_started_ = status.ok() && next_ == commands_.size();
  if (is_started_ || !status.ok()) more_ = nullptr;
  return status;
}

void Ranks::adopt(Rank& rank, RankProcess process) {
  rank.pid = process.pid;
  rank.group = process.pid;
  rank.input = std::move(process.input);
  ++running_;
  for (size_t i = 0; i < rank.outputs.size(); ++i) {
    rank.outputs[i].pipe = std::move(process.output[i]);
    rank.outputs[i].credit = net::Credit(output_credit_);
    ++open_outputs_;
  }
  watch(rank);
}

void Ranks::watch(Rank& rank) {
  if (rank.input) {
    loop_.watch(rank.input.get(), EPOLLOUT, [this, &rank](uint32_t) { feed(rank); });
  }
  for (Output& output : rank.outputs) {
    loop_.watch(output.pipe.get(), EPOLLIN, [this, &output](uint32_t) { pump(output); });
  }
}

void Ranks::pump(Output& output) {
  do {
    std::array<std::byte, net::kMaxChunk> buffer;
    const size_t room =
        is_discarding_ ? buffer.size() : std::min(buffer.size(), output.credit.left());
    if (room == 0) break;
    const ssize_t size = ::read(output.pipe.get(), buffer.data(), room);
    if (size > 0 && is_discarding_) continue;
    if (size > 0) {
      output.credit.use(static_cast<size_t>(size));
      outbox_.put(net::FrameType::kData, output.stream, 0,
                  ByteView(buffer).first(static_cast<size_t>(size)), net::Urgency::kOutput);
    } else if (size == 0 || (errno != EAGAIN && errno != EINTR) ||
               (errno == EAGAIN && is_last_output_)) {
      return finish(output);
    }
    // At the end of the job, read until the pipe is empty, and then stop: only a process outside of the job may still
    // hold the pipe, so that it may never be readable again.
  } while (is_last_output_);
  const bool is_wanted = is_discarding_ || output.credit.left() > 0;
  loop_.change(output.pipe.get(), is_wanted ? EPOLLIN : EPOLL_EVENTS{});
}

void Ranks::finish(Output& output) {
  loop_.unwatch(output.pipe.get());
  output.pipe.reset();
  --open_outputs_;
  outbox_.put(net::FrameType::kEnd, output.stream, 0, {}, net::Urgency::kOutput);
}

Status Ranks::grant(uint32_t stream, uint32_t credit) {
  const size_t index = (stream - kFirstOutputStream) / 2;
  if (stream < kFirstOutputStream || index >= ranks_.size()) {
    return internal_error(cat("the launcher named the unknown stream ", stream));
  }
  Output& output = ranks_[index]->outputs[(stream - kFirstOutputStream) % 2];
  if (!output.pipe) return {};
  if (!output.credit.grant(credit)) {
    return internal_error("the launcher granted too much credit for a rank's output");
  }
  pump(output);
  return {};
}

void Ranks::on_joined(int number, pid_t pid) {
  end_signals_.on_joined(pid);
  meters_.on_joined(number);
  for (const auto& rank : ranks_) rank->has_joined |= rank->number == number;
}

std::vector<Ranks::Snapshot> Ranks::snapshots(InspectDetail detail) {
  // Read /proc once for all ranks, because a scan lists every process of the host.
  std::vector<ProcessEntry> all;
  if (detail != InspectDetail::kProcess) all = processes_below(::getpid());
  std::vector<Snapshot> snapshots;
  for (size_t i = 0; i < ranks_.size(); ++i) {
    const Rank& rank = *ranks_[i];
    if (rank.pid <= 0) continue;
    Snapshot& snapshot = snapshots.emplace_back(
        Snapshot{rank.number, rank.pid, &commands_[i], rank.has_joined, {}, {}});
    if (detail == InspectDetail::kActivity) {
      snapshot.activity = activity_.describe(rank.pid, all);
    } else if (detail == InspectDetail::kPlaces) {
      snapshot.activity = process_activity_line(rank.pid);
    } else if (detail == InspectDetail::kProcess) {
      snapshot.processes.push_back(process_snapshot(rank.pid, false));
    } else {
      for (const ProcessEntry& process : tree_of(rank.pid, all))
        snapshot.processes.push_back(process_snapshot(process.pid, true));
    }
    std::erase_if(snapshot.processes, [](const auto& each) { return each.line.empty(); });
  }
  return snapshots;
}

HostSample Ranks::sample(SampleGroups groups, const GpuUse& gpus) {
  std::vector<pid_t> pids;
  for (const auto& rank : ranks_) pids.push_back(rank->pid);
  HostSample sample = meters_.read(groups, pids, gpus);
  for (RankSigns& signs : sample.signs) {
    const Rank& rank =
        **std::ranges::find(ranks_, signs.rank, [](auto& each) { return each->number; });
    rank.program.add_to(signs);
  }
  return sample;
}

bool Ranks::compare(const std::map<pid_t, LibraryUsers::Program>& programs) {
  const auto now = Clock::now();
  bool may_search = false, have_torch = false, lack_libraries = false;
  for (size_t i = 0; i < ranks_.size(); ++i) {
    const auto found = programs.find(ranks_[i]->pid);
    if (found == programs.end()) continue;
    RankProgram& program = ranks_[i]->program;
    program.see(found->second, commands_[i].environment, now);
    may_search |= program.may_search();
    have_torch |= program.has_torch();
    lack_libraries |= !program.has_library();
  }
  return may_search || (have_torch && lack_libraries);
}

const RankCommand* Ranks::any_command() const {
  for (size_t i = 0; i < ranks_.size(); ++i) {
    if (ranks_[i]->pid > 0) return &commands_[i];
  }
  return nullptr;
}

std::optional<Clock::time_point> Ranks::late_moment(int rank,
                                                    std::chrono::microseconds late) const {
  for (size_t i = 0; i < ranks_.size(); ++i) {
    if (ranks_[i]->number == rank && ranks_[i]->pid > 0) return meters_.late_moment(i, late);
  }
  return {};
}

const RankCommand* Ranks::command_of(int rank) const {
  for (size_t i = 0; i < ranks_.size(); ++i) {
    if (ranks_[i]->number == rank && ranks_[i]->pid > 0) return &commands_[i];
  }
  return nullptr;
}

std::optional<int> Ranks::rank_of(pid_t pid) const {
  const pid_t group = pid > 0 ? ::getpgid(pid) : -1;
  for (; pid > 1; pid = parent_of(pid)) {
    for (const auto& rank : ranks_) {
      if (rank->pid > 0 && (rank->pid == pid || rank->pid == group)) return rank->number;
    }
  }
  return {};
}

Status Ranks::give_input(int number, std::string_view bytes) {
  const auto found = std::find_if(ranks_.begin(), ranks_.end(),
                                  [&](const auto& rank) { return rank->number == number; });
  if (found == ranks_.end()) {
    return internal_error(cat("the launcher gave input to rank ", number, ", which is not here"));
  }
  Rank& rank = **found;
  rank.unread += bytes;
  rank.input_ends |= bytes.empty();
  if (rank.unread.size() > kInputWindow) {
    return internal_error("the launcher sent a rank more input than its credit");
  }
  if (rank.input)
    feed(rank);
  else if (is_started_)
    stop_feeding(rank);  // else the rank has not started: keep its input
  return {};
}

void Ranks::feed(Rank& rank) {
  while (!rank.unread.empty()) {
    const ssize_t size = ::write(rank.input.get(), rank.unread.data(), rank.unread.size());
    if (size < 0 && errno == EINTR) continue;
    if (size < 0 && errno == EAGAIN) return loop_.change(rank.input.get(), EPOLLOUT);
    if (size < 0) return stop_feeding(rank);
    rank.unread.erase(0, static_cast<size_t>(size));
    outbox_.put(InputTaken{rank.number, static_cast<uint32_t>(size)});
  }
  if (rank.input_ends)
    stop_feeding(rank);
  else
    loop_.change(rank.input.get(), EPOLL_EVENTS{});
}

// Closes a rank's input: no process reads it, or it has ended and all bytes are in the pipe. Later input is
// acknowledged to the launcher as read.
void Ranks::stop_feeding(Rank& rank) {
  if (rank.input) loop_.unwatch(rank.input.get());
  rank.input.reset();
  if (!rank.unread.empty()) {
    outbox_.put(InputTaken{rank.number, static_cast<uint32_t>(rank.unread.size())});
  }
  rank.unread.clear();
}

void Ranks::expect_no_more_output() {
  if (is_last_output_) return;
  is_last_output_ = true;
  for (const auto& rank : ranks_) {
    for (Output& output : rank->outputs) {
      if (!output.pipe) continue;
      if (is_discarding_)
        finish(output);
      else
        pump(output);
    }
  }
}

void Ranks::discard_output() {
  is_discarding_ = true;
  for (const auto& rank : ranks_) {
    for (Output& output : rank->outputs) {
      if (output.pipe && is_last_output_)
        finish(output);
      else if (output.pipe)
        loop_.change(output.pipe.get(), EPOLLIN);
    }
  }
}

void Ranks::signal(int number) {
  for (const auto& rank : ranks_) {
    if (rank->pid > 0) ::kill(-rank->pid, number);
  }
}

void Ranks::end(int number, int signal, double grace_seconds) {
  for (const auto& rank : ranks_) {
    if (rank->number != number || rank->pid <= 0 || std::exchange(rank->is_ended_alone, true)) {
      continue;
    }
    rank->kill_at = Deadline::after_seconds(grace_seconds);
    end_signals_.end_one(rank->group, signal);
  }
}

void Ranks::end_all(int signal) { end_signals_.end_all(first_processes(), signal); }

std::vector<pid_t> Ranks::first_processes() const {
  std::vector<pid_t> pids;
  for (const auto& rank : ranks_) {
    if (rank->pid > 0) pids.push_back(rank->pid);
  }
  return pids;
}

Deadline Ranks::deadline() const {
  Deadline next = Deadline::never();
  for (const auto& rank : ranks_) {
    if (rank->kill_at.time() < next.time()) next = rank->kill_at;
  }
  return next;
}

void Ranks::on_deadline() {
  for (const auto& rank : ranks_) {
    if (!rank->kill_at.passed()) continue;
    rank->kill_at = Deadline::never();
    signal_group(rank->group, {SIGKILL});  // including processes that the rank has left behind
  }
}

// Adds causes of a failure that only this host knows. `used`: the resource usage of the rank and its children.
void Ranks::add_causes(RankExit& exit, const rusage& used) {
  const auto kills = out_of_memory_kills();
  exit.out_of_memory = kills && oom_kills_ && *kills > *oom_kills_;
  oom_kills_ = kills;
  if (exit.rank == 0 && master_port_ != 0 && !exit.by_agent) {
    exit.master_port_user = other_user_at(master_port_);
  }
  // The kernel sends SIGXCPU at a rank's soft limit, and SIGKILL at its hard limit.
  if (exit.signal != SIGKILL && exit.signal != SIGXCPU) return;
  const rlimit limit = limit_of(commands_.front().limits, RLIMIT_CPU);
  const rlim_t most = exit.signal == SIGKILL ? limit.rlim_max : limit.rlim_cur;
  const auto seconds = static_cast<rlim_t>(used.ru_utime.tv_sec + used.ru_stime.tv_sec + 1);
  if (most != RLIM_INFINITY && seconds >= most) exit.cpu_seconds = most;
}

void Ranks::reap(bool by_agent, bool is_killing) {
  int status = 0;
  rusage used{};
  for (;;) {
    const pid_t pid = ::wait4(-1, &status, WNOHANG, &used);
    if (pid < 0 && errno == EINTR) continue;
    if (pid <= 0) break;
    const auto found = std::find_if(ranks_.begin(), ranks_.end(),
                                    [&](const auto& rank) { return rank->pid == pid; });
    if (found == ranks_.end()) {
      on_other_(pid, status);
      continue;
    }
    Rank& rank = **found;
    rank.pid = -1;
    share_.locks[static_cast<size_t>(found - ranks_.begin())].clear();
    --running_;
    RankExit exit{.rank = rank.number, .by_agent = by_agent || rank.is_ended_alone};
    exit.changes = rank.program.changes();
    if (WIFSIGNALED(status))
      exit.signal = WTERMSIG(status);
    else
      exit.code = WEXITSTATUS(status);
    exit.after_grace = is_killing && exit.signal == SIGKILL;
    if (exit.signal != 0 || exit.code != 0) add_causes(exit, used);
    outbox_.put(Exited{exit});
  }
  if (!is_killing) end_signals_.on_reaped(first_processes());
}

}  // namespace hvd::launcher
