#include "launcher/state/job_commands.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/log/log.h"
#include "base/proc_file.h"
#include "base/text.h"
#include "base/unique_fd.h"
#include "launcher/output/report.h"
#include "launcher/plan/rank_set.h"
#include "launcher/state/log_files.h"
#include "launcher/state/state_folder.h"

namespace hvd::launcher {
namespace {

// The interval between two reads of the record of a launcher on another machine.
constexpr int kPollMilliseconds = 1000;
constexpr int kFollowMilliseconds = 200;
// The time after a launcher's end until its record must show the end.
constexpr std::chrono::seconds kRecordedWithin{3};
// The time for which reads of a record may fail, for example while a server of NFS restarts.
constexpr std::chrono::seconds kReadWithin{10};
constexpr int kMostRanks = 1 << 20;
// The number of log lines that attach shows at its start.
constexpr size_t kLinesBefore = 1000;
// Seconds after --kill-grace within which a launcher must end. It waits for the lease of an unreachable host, and for
// the log.
constexpr int kSecondsToEnd = 75;

std::string duration_text(int64_t seconds) {
  seconds = std::max<int64_t>(seconds, 0);
  if (seconds < 60) return cat(seconds, " s");
  if (seconds < 3600) return cat(seconds / 60, " min");
  if (seconds < 48 * 3600) return fmt::format("{}:{:02} h", seconds / 3600, seconds / 60 % 60);
  return cat(seconds / 86400, " days");
}

std::string minute_text(int64_t seconds) {
  return time_text("%Y-%m-%d %H:%M", TimeZone::kLocal,
                   std::chrono::system_clock::from_time_t(seconds));
}

std::string state_text(const StateView& view, const JobRecord& record) {
  switch (view.life_of(record)) {
    case JobLife::kRuns:
      return record.state;
    case JobLife::kUnknown:
      return cat("unknown since ", minute_text(record.written));
    case JobLife::kEnded:
      break;
  }
  std::string text = cat("ended, exit code ", record.exit_code);
  if (!record.cause.empty()) text += cat(": ", printable(record.cause));
  return text;
}

// Returns the duration of the job in seconds.
int64_t lasted(const StateView& view, const JobRecord& record) {
  switch (view.life_of(record)) {
    case JobLife::kRuns:
      return view.now - record.began;
    case JobLife::kUnknown:
      return record.written - record.began;
    case JobLife::kEnded:
      break;
  }
  return record.ended - record.began;
}

Result<std::string> one_word(std::span<const std::string> words, const std::string& command) {
  if (words.size() <= 1 && (words.empty() || !words[0].starts_with('-')))
    return words.empty() ? "" : words[0];
  return invalid_argument(cat("write horovodrun ", command,
                              " [NAME], with the name or the id of a job; to run the program ",
                              command, ", put flags before it"));
}

// Returns a pidfd of a running launcher on this machine: a signal cannot reach a process that reuses the pid.
UniqueFd open_launcher(const JobRecord& record) {
  UniqueFd launcher(
      static_cast<int>(::syscall(SYS_pidfd_open, static_cast<pid_t>(record.launcher.pid), 0)));
  if (launcher && start_of(record.launcher.pid) != record.launcher.start) launcher.reset();
  return launcher;
}

// Sends a signal. Returns true also if the launcher has just ended. After false, errno has the error.
bool send_signal(const JobRecord& record, int number) {
  const UniqueFd launcher = open_launcher(record);
  if (launcher)
    return ::syscall(SYS_pidfd_send_signal, launcher.get(), number, nullptr, 0) == 0 ||
           errno == ESRCH;
  // Linux before 5.3 has no pidfds.
  if (start_of(record.launcher.pid) != record.launcher.start) return true;
  return ::kill(static_cast<pid_t>(record.launcher.pid), number) == 0 || errno == ESRCH;
}

// Returns whether the launcher has ended before the deadline.
bool wait_for_end(const UniqueFd& launcher, Deadline deadline = Deadline::never()) {
  pollfd ended{.fd = launcher.get(), .events = POLLIN, .revents = 0};
  for (;;) {
    const int ready = ::poll(&ended, 1, deadline.poll_timeout());
    if (ready > 0) return true;
    if (ready == 0 && deadline.passed()) return false;
  }
}

// Waits until a launcher that has received SIGTERM has ended, and kills it after the time limit.
void kill_if_it_hangs(const JobRecord& record, const std::string& job) {
  const UniqueFd launcher = open_launcher(record);
  const int seconds = record.kill_grace + kSecondsToEnd;
  if (!launcher || wait_for_end(launcher, Deadline::after_seconds(seconds))) return;
  print_message(cat("the launcher of ", job, " has not ended within ", seconds,
                    " s of SIGTERM, and is killed; its agents end the ranks"));
  send_signal(record, SIGKILL);
}

// Reads the record again. Returns an error if its folder was removed, or was unreadable for kReadWithin.
Result<JobRecord> read_again(const JobRecord& record) {
  const auto read = [&]() -> Result<JobRecord> {
    HVD_ASSIGN_OR_RETURN(const UniqueFd folder, open_job_folder(record.place, record.launcher));
    auto read = read_record(folder);
    if (read.ok()) read->place = record.place;
    return read;
  };
  const auto deadline = Deadline::after(kReadWithin);
  for (;;) {
    auto now = read();
    if (now.ok() || now.status().code() == Code::kNotFound || deadline.passed()) return now;
    ::poll(nullptr, 0, kFollowMilliseconds);
  }
}

// Returns whether the process that writes the record still runs, and may record the end.
bool is_being_written(const JobRecord& record, const StateView& view) {
  return record.launcher.is_beside(view.observer) && record.writer > 0 &&
         start_of(record.writer) == record.writer_start;
}

// Waits until the job has ended, or until its launcher has given no sign of life for some minutes. Returns the last
// record.
Result<JobRecord> await_end(const StateView& view, JobRecord record) {
  if (record.launcher.is_beside(view.observer)) {
    if (const UniqueFd launcher = open_launcher(record)) wait_for_end(launcher);
  }
  Deadline recorded_by = Deadline::never();
  for (;;) {
    HVD_ASSIGN_OR_RETURN(record, read_again(record));
    const JobLife life = life_of(record, view.observer, std::time(nullptr));
    if (life == JobLife::kEnded) return record;
    if (life == JobLife::kRuns || is_being_written(record, view)) {
      recorded_by = Deadline::never();
    } else {
      if (recorded_by.is_never()) recorded_by = Deadline::after(kRecordedWithin);
      if (recorded_by.passed()) return record;
    }
    ::poll(nullptr, 0, life == JobLife::kUnknown ? 20 : kPollMilliseconds);
  }
}

}  // namespace

std::string jobs_as_table(const StateView& view) {
  // cli/manual.cpp uses the first three columns for completion.
  constexpr size_t kSlurm = 2;
  const auto or_dash = [](const std::string& text) { return text.empty() ? "-" : printable(text); };
  std::vector<std::array<std::string, 7>> rows = {
      {"ID", "NAME", "SLURM", "BEGAN", "TOOK", "RANKS", "COMMAND"}};
  for (const JobRecord& record : view.records) {
    rows.push_back({id_of(record, view.observer), or_dash(record.name), or_dash(record.allocation),
                    minute_text(record.began), duration_text(lasted(view, record)),
                    record.ranks == 0 ? "-" : cat(record.ranks),
                    printable(join(record.command, " "))});
  }
  const bool has_slurm = std::ranges::any_of(
      view.records, [](const JobRecord& record) { return !record.allocation.empty(); });
  std::array<size_t, 6> widths{};
  for (const auto& row : rows) {
    for (size_t column = 0; column < widths.size(); ++column)
      widths[column] = std::max(widths[column], row[column].size());
  }
  std::string text;
  for (size_t i = 0; i < rows.size(); ++i) {
    for (size_t column = 0; column < widths.size(); ++column) {
      if (column != kSlurm || has_slurm)
        text += fmt::format("{:<{}}  ", rows[i][column], widths[column]);
    }
    text += rows[i].back() + "\n";
    if (i > 0) text += cat("  ", state_text(view, view.records[i - 1]), "\n");
  }
  return text;
}

std::string jobs_as_json(const StateView& view) {
  using Json = nlohmann::ordered_json;
  std::string text;
  for (const JobRecord& record : view.records) {
    const JobLife life = view.life_of(record);
    Json object = {{"id", id_of(record, view.observer)},
                   {"name", record.name},
                   {"host", record.launcher.host},
                   {"pid", record.launcher.pid},
                   {"state", life == JobLife::kUnknown ? "unknown" : record.state},
                   {"began", record.began},
                   {"written", record.written},
                   {"ranks", record.ranks},
                   {"launches", record.launches}};
    if (life == JobLife::kEnded) {
      object["ended"] = record.ended;
      object["exit_code"] = record.exit_code;
      object["cause"] = record.cause;
    }
    if (!record.metrics.empty() && life == JobLife::kRuns) object["metrics"] = record.metrics;
    if (!record.allocation.empty()) object["slurm_job"] = record.allocation;
    object["command"] = record.command;
    object["directory"] = record.directory;
    text += object.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
  }
  return text;
}

namespace {

struct LogWords {
  std::string job;  // empty: the running job, or the newest job
  bool follows = false;
  std::string ranks;  // empty: lines of all ranks, and of the launcher
  // The command is attach: begins with the last lines, and returns the job's exit code.
  bool is_attach = false;
};

Result<LogWords> read_log_words(std::span<const std::string> words) {
  constexpr std::string_view kRank = "--rank";
  LogWords read;
  for (size_t i = 0; i < words.size(); ++i) {
    const std::string& word = words[i];
    if (word == "-f" || word == "--follow") {
      read.follows = true;
    } else if (word == kRank && i + 1 < words.size()) {
      read.ranks = words[++i];
    } else if (word.starts_with(cat(kRank, "="))) {
      read.ranks = word.substr(kRank.size() + 1);
    } else if (!word.starts_with('-') && read.job.empty()) {
      read.job = word;
    } else {
      return invalid_argument(
          "write horovodrun logs [-f] [--rank 0,3-5] [NAME], with the name or the id of a job; to "
          "run the program logs, put flags before it");
    }
  }
  return read;
}

bool is_wanted(const OutputChunk& lines, const std::vector<bool>& ranks) {
  const auto rank = static_cast<size_t>(lines.rank);
  return ranks.empty() || (lines.rank >= 0 && rank < ranks.size() && ranks[rank]);
}

// Prints all lines of the log so far. Returns an exit code if it cannot write them.
int show_lines(LogReader& reader, const std::vector<bool>& ranks) {
  while (const auto lines = reader.next()) {
    if (!is_wanted(*lines, ranks)) continue;
    if (const int code = show(*lines); code != 0) return code;
  }
  return 0;
}

// Returns the ranks whose lines are shown. An empty set selects all ranks.
Result<std::vector<bool>> wanted_ranks(const JobRecord& record, const LogWords& words) {
  if (words.ranks.empty()) return std::vector<bool>{};
  // An elastic job may have had more ranks than its record shows.
  const bool is_known = record.is_constant && record.ranks > 0;
  auto ranks = parse_ranks(words.ranks, is_known ? record.ranks : kMostRanks);
  if (!ranks.ok()) return ranks.status().with_context("--rank");
  return ranks;
}

// Returns the folder with the log of a job.
Result<UniqueFd> open_log(const StateView& view, const JobRecord& record) {
  if (!record.has_output) {
    return not_found(cat(described(record, view),
                         " has no log: only jobs with --name, --detach or --output-filename have "
                         "one"));
  }
  return open_job_folder(record.log.empty() ? record.place : record.log, record.launcher);
}

// Prints the last lines of the log so far. Returns an exit code if it cannot write them.
int show_last_lines(LogReader& reader) {
  TailLines before(kLinesBefore);
  while (auto lines = reader.next()) before.add(*std::move(lines));
  if (const size_t dropped = before.dropped(); dropped > 0) {
    print_message(cat(dropped, dropped == 1 ? " older line is" : " older lines are",
                      " not shown; attach shows the last ", kLinesBefore));
  }
  for (const OutputChunk& lines : before.take()) {
    if (const int code = show(lines); code != 0) return code;
  }
  return 0;
}

// Returns whether more output may be added to the log.
bool may_grow(const JobRecord& record, const StateView& view) {
  return !record.has_ended() &&
         (is_being_written(record, view) ||
          life_of(record, view.observer, std::time(nullptr)) == JobLife::kRuns);
}

Result<int> print_log(const StateView& view, const JobRecord& record, const LogWords& words) {
  HVD_ASSIGN_OR_RETURN(const std::vector<bool> ranks, wanted_ranks(record, words));
  HVD_ASSIGN_OR_RETURN(const UniqueFd folder, open_log(view, record));
  if (words.follows && record.launcher.is_beside(view.observer) && open_launcher(record))
    notify_if_stopped(cat(record.launcher.pid));
  LogReader reader(folder);
  int code = words.is_attach ? show_last_lines(reader) : 0;
  for (bool is_noticed = false; code == 0;) {
    const auto now = words.follows ? read_again(record) : Result<JobRecord>(record);
    const bool goes_on = words.follows && now.ok() && may_grow(*now, view);
    code = show_lines(reader, ranks);
    if (reader.begins_late() && !std::exchange(is_noticed, true))
      print_message(
          "the oldest output is gone: a log has room for the last 64 MiB, and for less on a full "
          "disk");
    if (code != 0) return code;
    if (goes_on) {
      ::poll(nullptr, 0, kFollowMilliseconds);  // a network file system sends no notice of changes
      continue;
    }
    HVD_RETURN_IF_ERROR(now.status());
    if (!words.is_attach) return 0;
    if (now->has_ended()) return now->exit_code;
    print_message(cat(described(*now, view), ": ", state_text(view, *now)));
    return kExitSignal + SIGKILL;
  }
  return code;
}

// `arguments`: the complete command, for the machine of the log. `view` may lack jobs that the words cannot mean.
int show_log(const StateView& view, const LogWords& words, std::vector<std::string> arguments) {
  const auto record = choose_job(view, words.job, arguments[0]);
  if (!record.ok()) return refuse(record.status());
  if (!record->log.empty() && !record->launcher.is_beside(view.observer))
    return refuse(run_there(*record, view, std::move(arguments)));
  const auto code = print_log(view, *record, words);
  return code.ok() ? *code : refuse(code.status());
}

}  // namespace

int show_log(std::span<const std::string> words) {
  const auto read = read_log_words(words);
  if (!read.ok()) return refuse(read.status());
  const auto view = view_state();
  if (!view.ok()) return refuse(view.status());
  std::vector<std::string> arguments = {"logs"};
  arguments.insert(arguments.end(), words.begin(), words.end());
  return show_log(*view, *read, std::move(arguments));
}

int attach(std::span<const std::string> words) {
  const auto word = one_word(words, "attach");
  if (!word.ok()) return refuse(word.status());
  auto view = view_state();
  if (!view.ok()) return refuse(view.status());
  const Status local = check_local_state(view->local);
  if (!local.ok() && local.code() != Code::kNotFound) return refuse(local);
  if (word->empty()) {
    std::erase_if(view->records,
                  [&](const JobRecord& record) { return record.place != view->local; });
    if (view->records.empty())
      return refuse(not_found(
          "there is no detached job of yours on this machine; horovodrun --detach starts one"));
  }
  return show_log(*view, {.job = *word, .follows = true, .ranks = "", .is_attach = true},
                  {"attach", *word});
}

int list_all_jobs(bool is_json) {
  const auto view = view_state();
  if (!view.ok()) return refuse(view.status());
  if (view->unreadable > 0) {
    print_message(cat(view->unreadable, view->unreadable == 1 ? " record" : " records",
                      " of jobs in ", printable(view->path), " cannot be read"));
  }
  return print_answer(is_json ? jobs_as_json(*view) : jobs_as_table(*view));
}

int stop_job(std::span<const std::string> words) {
  const auto word = one_word(words, "stop");
  if (!word.ok()) return refuse(word.status());
  const auto view = view_state();
  if (!view.ok()) return refuse(view.status());
  const auto record = choose_job(*view, *word, "stop");
  if (!record.ok()) return refuse(record.status());
  const JobLife life = view->life_of(*record);
  const bool is_here = record->launcher.is_beside(view->observer);
  // A launcher on another machine may still run without a recent sign of life: its clock or its disk may be late.
  if (life == JobLife::kEnded || (life == JobLife::kUnknown && is_here)) {
    print_message(cat(described(*record, *view), " does not run: ", state_text(*view, *record)));
    return 0;
  }
  if (!is_here) return refuse(run_there(*record, *view, {"stop", id_of(*record, view->observer)}));
  if (!send_signal(*record, SIGTERM))
    return refuse(system_error(cat("cannot stop ", described(*record, *view)), errno));
  send_signal(*record, SIGCONT);  // a job stopped by Ctrl-Z handles SIGTERM only after SIGCONT
  kill_if_it_hangs(*record, described(*record, *view));
  const auto end = await_end(*view, *record);
  if (!end.ok()) return refuse(end.status());
  print_message(cat(described(*end, *view), ": ", state_text(*view, *end)));
  return 0;
}

int wait_for_job(std::span<const std::string> words) {
  const auto word = one_word(words, "wait");
  if (!word.ok()) return refuse(word.status());
  const auto view = view_state();
  if (!view.ok()) return refuse(view.status());
  const auto record = choose_job(*view, *word, "wait");
  if (!record.ok()) return refuse(record.status());
  if (record->launcher.is_beside(view->observer) && open_launcher(*record))
    notify_if_stopped(cat(record->launcher.pid));
  const auto end = await_end(*view, *record);
  if (!end.ok()) return refuse(end.status());
  if (end->has_ended()) return end->exit_code;
  print_message(cat(described(*end, *view), ": ", state_text(*view, *end)));
  return kExitSignal + SIGKILL;
}

}  // namespace hvd::launcher
