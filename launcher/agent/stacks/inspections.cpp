#include "launcher/agent/stacks/inspections.h"

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string_view>
#include <utility>

#include "base/proc_file.h"
#include "base/text.h"
#include "launcher/agent/host/process_connections.h"
#include "launcher/agent/host/process_tree.h"
#include "launcher/agent/stacks/named_wait.h"

namespace hvd::launcher {
namespace {

constexpr std::string_view kNoStack = "no Python stack: ";

// Time limit for an answer: less than the 5 s for which the launcher waits.
constexpr double kAnswerSeconds = 4;
// Time limit for a sample, which usually takes 20 ms.
constexpr double kSampleSeconds = 1.5;
// Time limit for native stacks, which need the symbols of all libraries: 0.2 s for a process with PyTorch.
constexpr double kNativeSeconds = 3;
constexpr double kLineSeconds = 0.5;
// The time from the start of py-spy until it has read the stack.
constexpr std::chrono::milliseconds kUntilRead{15};
// If the rank is next late only after this time, the answer is empty, and the launcher asks again.
constexpr std::chrono::seconds kLongestWait{2};
constexpr size_t kAtOnce = 4;
// Half of the maximum size of a message.
constexpr size_t kMostText = 8 << 20;

bool wants_stacks(InspectDetail detail) {
  return detail == InspectDetail::kStacks || detail == InspectDetail::kNativeStacks;
}

RankCommand helper_command(std::string program) {
  RankCommand command;
  command.path = std::move(program);
  command.working_directory = "/";
  command.environment = {{"PATH", "/usr/bin:/bin"}, {"LC_ALL", "C.UTF-8"}, {"RUST_BACKTRACE", "0"}};
  ::getrlimit(RLIMIT_NOFILE, &command.descriptor_limit);
  return command;
}

RankCommand line_command(const PythonFrame& frame) {
  RankCommand command = helper_command("/bin/sh");
  command.arguments = {
      "sh",      "-c", R"(exec sed -n "$1{p;q}" <"$2" | head -c 1000)", "sh", cat(frame.line),
      frame.file};
  return command;
}

RankCommand py_spy_command(const std::string& program, pid_t pid, bool is_native) {
  RankCommand command = helper_command(program);
  // Without --nonblocking, py-spy stops the process, and a blocking C call may then return EINTR.
  command.arguments = {kPySpy,   "dump",  is_native ? "--native" : "--nonblocking",
                       "--json", "--pid", cat(pid)};
  return command;
}

namespace fs = std::filesystem;

// Maximum number of threads examined per process.
constexpr size_t kMaxThreads = 1000;

std::string variable_of(pid_t pid, std::string_view name) {
  const std::string environment = read_proc_file(cat("/proc/", pid, "/environ"));
  const std::string beginning = cat(name, "=");
  for (const std::string& variable : split(environment, '\0')) {
    if (variable.starts_with(beginning)) return variable.substr(beginning.size());
  }
  return {};
}

// Returns whether a process has a TCP connection with this port at either end.
bool is_connected_at(pid_t pid, uint16_t port) {
  std::array<char, 24> end_text{};
  std::snprintf(end_text.data(), end_text.size(), ":%04X", static_cast<unsigned>(port));
  const std::string_view end(end_text.data());
  return std::ranges::any_of(connections_of(pid), [&](const auto& connection) {
    return connection.first.ends_with(end) || connection.second.ends_with(end);
  });
}

// Returns WaitSigns without `stack`, `no_stack` and `line`, which /proc does not show.
WaitSigns wait_signs(pid_t pid) {
  WaitSigns signs;
  std::error_code error;
  size_t count = 0;
  for (fs::directory_iterator at(cat("/proc/", pid, "/task"), error), end;
       !error && at != end && ++count <= kMaxThreads; at.increment(error)) {
    signs.threads.emplace(trim(read_proc_file((at->path() / "comm").string())));
  }
  signs.channel = trim(read_proc_file(cat("/proc/", pid, "/wchan")));
  signs.is_in_io = is_io(read_proc_file(cat("/proc/", pid, "/syscall")));
  std::ifstream maps(cat("/proc/", pid, "/maps"));
  bool has_jax = false, has_torch = false;
  for (std::string line; std::getline(maps, line);) {
    signs.has_mpi |= line.find("/libmpi.so") != std::string::npos ||
                     line.find("/libmpich.so") != std::string::npos;
    has_torch |= line.find("/libtorch_cpu.so") != std::string::npos;
    has_jax |= line.find("/jaxlib/") != std::string::npos;
  }
  // jax.distributed communicates with its coordinator by gRPC.
  signs.has_jax = has_jax && std::ranges::any_of(signs.threads, [](const std::string& name) {
                    return name.starts_with("grpc_");
                  });
  // Each rank of a process group is connected to the group's store. Since PyTorch 2, thread names identify a group.
  const auto is_of_group = [](const std::string& name) {
    return name.starts_with("pt_gloo") || name.starts_with("pt_nccl");
  };
  if (has_torch && std::ranges::none_of(signs.threads, is_of_group)) {
    const auto port = parse_int(variable_of(pid, "MASTER_PORT"));
    signs.has_torch_store = port && *port > 0 && *port <= UINT16_MAX &&
                            is_connected_at(pid, static_cast<uint16_t>(*port));
  }
  return signs;
}

// `first`: the rank's first process, which the agent started.
ReadAccess read_access(pid_t pid, pid_t first) {
  ReadAccess access;
  access.own_uid = ::geteuid();
  access.uid = access.own_uid;
  access.is_first_process = pid == first;
  const std::string status = read_proc_file(cat("/proc/", pid, "/status"));
  if (const auto uid = line_count(status, "Uid:")) access.uid = static_cast<int64_t>(*uid);
  const std::string scope = read_proc_file("/proc/sys/kernel/yama/ptrace_scope");
  access.yama_scope = parse_int(trim(scope)).value_or(-1);
  return access;
}

}  // namespace

// A process whose stack py-spy reads.
struct Inspections::Sample {
  Sample(size_t of_rank, pid_t process) : rank(of_rank), pid(process) {}
  size_t rank;  // index in Inquiry::ranks
  pid_t pid;
  std::unique_ptr<HelperCommand> helper;  // null unless py-spy runs
  Deadline deadline = Deadline::never();
  bool is_over = false;
  WaitSigns signs;    // includes the stack once py-spy has read the stack
  std::string lines;  // text below the process in the answer; each line has a newline
};

struct Inspections::Inquiry {
  Inspect question;
  std::vector<Ranks::Snapshot> ranks;
  std::list<Sample> samples;
  std::string note;  // why this host has no py-spy; or empty
  Deadline deadline = Deadline::never();
  Deadline start_at = Deadline::never();  // never: immediately

  InspectDetail detail() const { return question.detail; }
  bool is_native() const { return detail() == InspectDetail::kNativeStacks; }
  // Returns ", at " and the place in the program of the rank with this index; or an empty text.
  std::string place_of(size_t rank) const {
    std::string place;
    for (const Sample& sample : samples) {
      if (sample.rank == rank && !sample.lines.starts_with("no ")) place = sample.lines;
    }
    return place.empty() ? place : cat(", ", place);
  }
};

Inspections::Inspections(net::EventLoop& loop, Ranks& ranks,
                         std::function<void(const Message&)> send,
                         std::function<std::vector<std::string>()> folders)
    : loop_(loop),
      ranks_(ranks),
      send_(std::move(send)),
      folders_(std::move(folders)),
      py_spy_(
          loop, [this] { send_(StackToolWanted{}); }, [this] { advance_all(); }) {}

Inspections::~Inspections() = default;

void Inspections::begin(const Inspect& question) {
  auto inquiry = std::make_unique<Inquiry>();
  inquiry->question = question;
  // Set before the snapshots, because processes that do not provide their stack in time use part of this limit.
  inquiry->deadline = Deadline::after_seconds(kAnswerSeconds);
  inquiry->ranks = ranks_.snapshots(inquiry->detail());
  for (size_t rank = 0; rank < inquiry->ranks.size(); ++rank) choose(*inquiry, rank);
  inquiries_.push_back(std::move(inquiry));
  advance_all();
}

void Inspections::begin(const InspectLate& question) {
  const std::chrono::microseconds late(question.late_microseconds);
  const auto moment = ranks_.late_moment(question.rank, late);
  auto inquiry = std::make_unique<Inquiry>();
  inquiry->question = {question.number, InspectDetail::kPlaces};
  inquiry->deadline = Deadline::after_seconds(kAnswerSeconds);
  if (moment && *moment < Clock::now() + kLongestWait) {
    inquiry->start_at = Deadline::at(*moment - kUntilRead);
    inquiry->ranks = ranks_.snapshots(InspectDetail::kPlaces);
    std::erase_if(inquiry->ranks, [&](const auto& each) { return each.rank != question.rank; });
    if (!inquiry->ranks.empty()) choose(*inquiry, 0);
    if (inquiry->samples.empty()) inquiry->ranks.clear();
  }
  inquiries_.push_back(std::move(inquiry));
  advance_all();
}

// Chooses the process of a rank that py-spy reads, if any. A process that provides its own stack needs no py-spy.
void Inspections::choose(Inquiry& inquiry, size_t index) {
  Ranks::Snapshot& rank = inquiry.ranks[index];
  const bool is_activity = inquiry.detail() == InspectDetail::kActivity;
  if (is_activity || inquiry.detail() == InspectDetail::kPlaces) {
    // For kActivity, the launcher needs the place of only one rank: the first that has not called hvd.init().
    if (is_activity && (rank.has_joined || !inquiry.samples.empty())) return;
    const std::vector<pid_t> pythons = topmost_pythons(descendants_of(rank.pid));
    if (pythons.size() == 1) inquiry.samples.emplace_back(index, pythons.front());
    return;
  }
  if (!wants_stacks(inquiry.detail())) return;
  const bool has_offer = std::ranges::any_of(
      rank.processes, [](const ProcessSnapshot& each) { return !each.stack.empty(); });
  if (has_offer && !inquiry.is_native()) return;
  std::vector<pid_t> processes;
  for (const ProcessSnapshot& process : rank.processes) processes.push_back(process.pid);
  const std::vector<pid_t> pythons = topmost_pythons(processes);
  if (pythons.empty()) return;
  if (pythons.size() == 1) {
    inquiry.samples.emplace_back(index, pythons.front());
    return;
  }
  Sample& sample = inquiry.samples.emplace_back(index, rank.processes.front().pid);
  give_up(sample, several_pythons(pythons.size()));
}

void Inspections::advance_all() {
  for (auto at = inquiries_.begin(); at != inquiries_.end();) {
    Inquiry& inquiry = **at;
    if (inquiry.start_at.passed()) inquiry.start_at = Deadline::never();
    if (inquiry.start_at.is_never()) advance(inquiry);
    const bool is_over =
        std::ranges::all_of(inquiry.samples, [](const Sample& each) { return each.is_over; });
    if (is_over && inquiry.detail() == InspectDetail::kPlaces)
      send_(Sampled{inquiry.question.number, {.places = places(inquiry)}});
    else if (is_over)
      answer(inquiry);
    at = is_over ? inquiries_.erase(at) : std::next(at);
  }
}

void Inspections::advance(Inquiry& inquiry) {
  size_t running = 0;
  for (const Sample& sample : inquiry.samples) running += sample.helper ? 1 : 0;
  for (Sample& sample : inquiry.samples) {
    if (sample.is_over || sample.helper) continue;
    if (running == kAtOnce) return;
    const std::string program = py_spy_.find(*inquiry.ranks[sample.rank].command);
    if (!program.empty()) {
      start(inquiry, sample, program);
      running += sample.helper ? 1 : 0;
      continue;
    }
    if (py_spy_.fetch(folders_())) return;
    const std::string found = py_spy_.find(*inquiry.ranks[sample.rank].command);  // a stored copy
    if (!found.empty()) {
      start(inquiry, sample, found);
      running += sample.helper ? 1 : 0;
    } else {
      sample.is_over = true;
      sample.signs.no_stack = inquiry.note = py_spy_.why();
    }
  }
}

void Inspections::start(Inquiry& inquiry, Sample& sample, const std::string& program) {
  auto helper =
      HelperCommand::start(loop_, py_spy_command(program, sample.pid, inquiry.is_native()),
                           [this, &inquiry, &sample](const HelperCommandOutcome& outcome) {
                             take_outcome(inquiry, sample, outcome);
                           });
  if (!helper.ok()) return give_up(sample, helper.status().message());
  sample.helper = *std::move(helper);
  sample.deadline = Deadline::after_seconds(inquiry.is_native() ? kNativeSeconds : kSampleSeconds);
}

void Inspections::take_outcome(Inquiry& inquiry, Sample& sample,
                               const HelperCommandOutcome& outcome) {
  ended_.push_back(std::move(sample.helper));
  sample.deadline = Deadline::never();
  if (outcome.status != 0) {
    const pid_t first = inquiry.ranks[sample.rank].pid;
    give_up(sample, why_no_stack(outcome.errors, read_access(sample.pid, first)));
  } else if (const auto stack = read_py_spy(outcome.output, sample.pid); !stack.ok()) {
    give_up(sample, stack.status().message());
  } else {
    add_stack(inquiry, sample, *stack);
  }
  advance_all();
}

void Inspections::give_up(Sample& sample, const std::string& why) {
  sample.is_over = true;
  sample.signs.no_stack = why;
  sample.lines = cat(kNoStack, why, "\n");
}

// Another process reads the source file, because the file system may hang.
void Inspections::add_stack(Inquiry& inquiry, Sample& sample, PythonStack stack) {
  sample.signs = wait_signs(sample.pid);
  sample.signs.stack = std::move(stack);
  if (const PythonFrame* const frame = source_to_read(sample.signs)) {
    auto helper =
        HelperCommand::start(loop_, line_command(*frame),
                             [this, &inquiry, &sample](const HelperCommandOutcome& outcome) {
                               ended_.push_back(std::move(sample.helper));
                               sample.deadline = Deadline::never();
                               sample.signs.line = outcome.output;
                               describe(inquiry, sample);
                               advance_all();
                             });
    if (helper.ok()) {
      sample.helper = *std::move(helper);
      sample.deadline = Deadline::after_seconds(kLineSeconds);
      return;
    }
  }
  describe(inquiry, sample);
}

void Inspections::describe(const Inquiry& inquiry, Sample& sample) {
  sample.is_over = true;
  const PythonStack& stack = sample.signs.stack;
  const std::string wait = describe_wait(named_wait(sample.signs));
  if (inquiry.detail() == InspectDetail::kActivity) {
    sample.lines = wait.empty() ? cat("at ", place_of(stack)) : wait;
    if (stack.empty()) sample.lines.clear();
    return;
  }
  for (const PythonFrame& frame : stack) sample.lines += describe_frame(frame) + "\n";
  if (stack.empty()) sample.lines += "no Python runs in its main thread\n";
  if (!wait.empty()) sample.lines += wait + "\n";
}

std::vector<RankPlace> Inspections::places(const Inquiry& inquiry) {
  std::vector<RankPlace> places;
  for (size_t index = 0; index < inquiry.ranks.size(); ++index) {
    const Ranks::Snapshot& rank = inquiry.ranks[index];
    const auto sample = std::ranges::find_if(
        inquiry.samples, [&](const Sample& each) { return each.rank == index; });
    WaitSigns signs = sample == inquiry.samples.end() ? WaitSigns{} : sample->signs;
    std::string state = rank.activity;
    if (!signs.no_stack.empty()) {
      const std::string why = std::exchange(signs.no_stack, {});
      signs = wait_signs(sample->pid);
      signs.no_stack = why;
      state = process_activity_line(sample->pid);
    }
    places.push_back(place_of_rank(signs, state));
    places.back().rank = rank.rank;
  }
  return places;
}

void Inspections::answer(Inquiry& inquiry) {
  std::string text;
  const auto add = [&](const char* indent, std::string_view lines) {
    while (!lines.empty() && text.size() < kMostText) {
      text += cat(indent, take_line(lines), "\n");
    }
  };
  const auto sample_of = [&](size_t rank, pid_t pid) -> const Sample* {
    const auto found = std::ranges::find_if(
        inquiry.samples, [&](const Sample& each) { return each.rank == rank && each.pid == pid; });
    return found == inquiry.samples.end() ? nullptr : &*found;
  };
  for (size_t index = 0; index < inquiry.ranks.size(); ++index) {
    const Ranks::Snapshot& rank = inquiry.ranks[index];
    text += cat("rank ", rank.rank, "\n");
    if (inquiry.detail() == InspectDetail::kActivity) {
      text += cat("  ", rank.activity, inquiry.place_of(index), "\n");
      continue;
    }
    for (const ProcessSnapshot& process : rank.processes) {
      add("  ", process.line);
      const Sample* const sample = sample_of(index, process.pid);
      const bool has_frames = sample != nullptr && !sample->lines.starts_with("no ");
      if (!process.stack.empty() && !has_frames) {
        std::string_view left = process.stack;
        while (!left.empty()) add("    ", printable(trim(take_line(left))));
        WaitSigns signs = wait_signs(process.pid);
        signs.stack = read_faulthandler(process.stack);
        add("    ", describe_wait(named_wait(signs)));
      }
      if (sample != nullptr) add("    ", sample->lines);
    }
  }
  if (wants_stacks(inquiry.detail()) && !inquiry.note.empty()) add("  ", inquiry.note);
  send_(Inspected{inquiry.question.number, text});
}

void Inspections::on_reaped(pid_t pid, int status) {
  py_spy_.on_reaped(pid, status);
  std::vector<HelperCommand*> helpers;
  for (const auto& inquiry : inquiries_) {
    for (const Sample& sample : inquiry->samples) {
      if (sample.helper) helpers.push_back(sample.helper.get());
    }
  }
  for (HelperCommand* const helper : helpers) helper->on_reaped(pid, status);
  ended_.clear();
}

Deadline Inspections::deadline() const {
  Deadline next = Deadline::never();
  const auto consider = [&next](Deadline each) {
    if (each.time() < next.time()) next = each;
  };
  for (const auto& inquiry : inquiries_) {
    consider(inquiry->deadline);
    consider(inquiry->start_at);
    for (const Sample& sample : inquiry->samples) consider(sample.deadline);
  }
  return next;
}

void Inspections::on_deadline() {
  for (const auto& inquiry : inquiries_) {
    const bool is_over = inquiry->deadline.passed();
    if (is_over) inquiry->deadline = Deadline::never();
    for (Sample& sample : inquiry->samples) {
      if (sample.helper && (is_over || sample.deadline.passed())) {
        sample.helper->kill();
        sample.helper.reset();
        sample.deadline = Deadline::never();
        if (sample.signs.stack.empty())
          give_up(sample, "py-spy did not end in time and was killed");
        else
          describe(*inquiry, sample);
      } else if (is_over && !sample.is_over) {
        give_up(sample, py_spy_.is_expected()
                            ? "py-spy is being copied to this host: ask again in a moment"
                            : "there was no time for it after the other ranks of this host");
      }
    }
  }
  advance_all();
}

}  // namespace hvd::launcher
