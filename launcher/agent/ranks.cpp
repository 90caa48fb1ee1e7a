#include "launcher/agent/ranks.h"

#include <sys/epoll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>

#include "base/check.h"
#include "base/text.h"

namespace hvd::launcher {

namespace {

// Where the environment names none: what a login without any profile has.
constexpr std::string_view kDefaultPath = "/usr/local/bin:/usr/bin:/bin";

}  // namespace

Ranks::~Ranks() {
  for (const auto& rank : ranks_) {
    if (rank->pidfd) loop_.forget(rank->pidfd.get());
    for (const Output& output : rank->outputs) {
      if (output.pipe) loop_.forget(output.pipe.get());
    }
  }
}

Status Ranks::prepare(const HostJob& job, uint32_t output_credit, const Environment& environment) {
  HVD_RETURN_IF_ERROR(check_working_directory(job.working_directory));
  const Environment shared = merged(environment, job.environment);
  const std::string_view path = value_of(shared, "PATH");
  HVD_ASSIGN_OR_RETURN(const std::string program,
                       find_program(job.command[0], job.working_directory,
                                    path.empty() ? kDefaultPath : path));
  const rlimit limit = raise_descriptor_limit();
  output_credit_ = output_credit;
  for (const RankSpec& spec : job.ranks) {
    auto rank = std::make_unique<Rank>();
    rank->number = spec.rank;
    for (const OutputStream stream : {OutputStream::kStdout, OutputStream::kStderr}) {
      rank->outputs[stream == OutputStream::kStdout ? 0 : 1].stream =
          output_stream(ranks_.size(), stream);
    }
    ranks_.push_back(std::move(rank));
    commands_.push_back({program, job.command, job.working_directory,
                         merged(shared, spec.environment), limit});
  }
  return {};
}

Status Ranks::start(const MoreEnvironment& more) {
  for (size_t i = 0; i < ranks_.size(); ++i) {
    Rank& rank = *ranks_[i];
    Environment& environment = commands_[i].environment;
    environment = merged(environment, more(environment));
    auto process = start_rank(commands_[i]);
    if (!process.ok()) return process.status();
    rank.pid = process->pid;
    rank.pidfd = std::move(process->pidfd);
    ++running_;
    for (size_t j = 0; j < rank.outputs.size(); ++j) {
      rank.outputs[j].pipe = std::move(process->output[j]);
      rank.outputs[j].credit = net::Credit(output_credit_);
      ++open_outputs_;
    }
    watch(rank);
  }
  commands_.clear();
  return {};
}

void Ranks::watch(Rank& rank) {
  // Where the kernel has no process descriptors, SIGCHLD alone tells.
  if (rank.pidfd) {
    loop_.watch(rank.pidfd.get(), EPOLLIN, [this, &rank](uint32_t) {
      // Once: a debugger may keep an ended rank from being waited for.
      loop_.forget(rank.pidfd.get());
      rank.pidfd.reset();
      on_end_();
    });
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
    // At the end nothing may ever make the pipe ready again: whoever still holds it is not of the
    // job.
  } while (is_last_output_);
  const bool is_wanted = is_discarding_ || output.credit.left() > 0;
  loop_.change(output.pipe.get(), is_wanted ? EPOLLIN : EPOLL_EVENTS{});
}

void Ranks::finish(Output& output) {
  loop_.forget(output.pipe.get());
  output.pipe.reset();
  --open_outputs_;
  outbox_.put(net::FrameType::kEnd, output.stream, 0, {}, net::Urgency::kOutput);
}

Status Ranks::grant(uint32_t stream, uint32_t credit) {
  const size_t index = (stream - kFirstOutputStream) / 2;
  if (stream < kFirstOutputStream || index >= ranks_.size()) {
    return internal_error(cat("the launcher speaks of the unknown stream ", stream));
  }
  Output& output = ranks_[index]->outputs[(stream - kFirstOutputStream) % 2];
  if (!output.pipe) return {};
  if (!output.credit.grant(credit)) {
    return internal_error("the launcher granted a rank's output more than can be");
  }
  pump(output);
  return {};
}

void Ranks::expect_no_more_output() {
  if (is_last_output_) return;
  is_last_output_ = true;
  for (const auto& rank : ranks_) {
    for (Output& output : rank->outputs) {
      if (!output.pipe) continue;
      if (is_discarding_) finish(output);
      else pump(output);
    }
  }
}

void Ranks::discard_output() {
  is_discarding_ = true;
  for (const auto& rank : ranks_) {
    for (Output& output : rank->outputs) {
      if (output.pipe && is_last_output_) finish(output);
      else if (output.pipe) loop_.change(output.pipe.get(), EPOLLIN);
    }
  }
}

void Ranks::signal(int number) {
  for (const auto& rank : ranks_) {
    if (rank->pid > 0) ::kill(-rank->pid, number);
  }
}

void Ranks::reap(bool by_agent) {
  int status = 0;
  for (;;) {
    const pid_t pid = ::waitpid(-1, &status, WNOHANG);
    if (pid < 0 && errno == EINTR) continue;
    if (pid <= 0) return;
    const auto found = std::find_if(ranks_.begin(), ranks_.end(),
                                    [&](const auto& rank) { return rank->pid == pid; });
    if (found == ranks_.end()) continue;
    Rank& rank = **found;
    rank.pid = -1;
    if (rank.pidfd) loop_.forget(rank.pidfd.get());
    rank.pidfd.reset();
    --running_;
    RankExit exit{.rank = rank.number, .by_agent = by_agent};
    if (WIFSIGNALED(status)) exit.signal = WTERMSIG(status);
    else exit.code = WEXITSTATUS(status);
    outbox_.put(Exited{exit});
  }
}

}  // namespace hvd::launcher
