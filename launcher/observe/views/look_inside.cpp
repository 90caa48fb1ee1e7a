#include "launcher/observe/views/look_inside.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <vector>

#include "base/check.h"
#include "base/secrets/secret.h"
#include "base/settings.h"
#include "base/text.h"
#include "launcher/observe/views/inspection.h"
#include "launcher/observe/views/job_metrics.h"
#include "launcher/observe/views/job_view.h"
#include "launcher/observe/views/running_launchers.h"
#include "launcher/output/report.h"
#include "launcher/output/terminal_text.h"
#include "launcher/plan/hosts.h"
#include "launcher/protocol/program.h"
#include "launcher/protocol/protocol.h"
#include "launcher/protocol/record.h"
#include "launcher/state/job_choice.h"
#include "launcher/state/job_commands.h"

namespace hvd::launcher {
namespace {

// The time limit for stacks. It includes the launcher's own wait for the agents.
constexpr double kStackSeconds = kAnswerSeconds + 1e-3 * kInspectionTime.count();

// Prints the output of the command as it arrives, until the command ends.
int show_records(const RunningLauncher& launcher) {
  std::string bytes;
  await_answer(launcher);
  for (;;) {
    std::string_view rest = bytes;
    const auto message = take_record(rest);
    bytes.erase(0, bytes.size() - rest.size());
    if (!message.ok()) return refuse(message.status());
    if (!*message) {
      const auto is_more = read_more(launcher, bytes);
      if (!is_more.ok() || !*is_more) {
        return refuse(aborted(cat("the job of horovodrun with pid ", launcher.pid,
                                  " has ended before the command did")));
      }
    } else if (const auto* chunk = std::get_if<OutputChunk>(&**message)) {
      if (const int code = show(*chunk); code != 0) return code;
    } else if (const auto* ran = std::get_if<ExecResult>(&**message)) {
      std::fputs(ran->why.c_str(), stderr);
      return ran->code;
    }
  }
}

struct ExecWords {
  std::string job;  // empty: no job is given
  Run order;
};

// Returns whether the first word of `exec` names a job, and not the command: a number, or the name of a running job.
bool means_job(const std::string& word) { return parse_int(word) || means_running_job(word); }

// Refuses a word that is neither the name of a running job nor a program of this machine if the next word is a program:
// the word is probably a misspelt job. Other unknown words may be programs that only the hosts have, such as
// nvidia-smi.
Status check_program(const std::string& word, std::span<const std::string> more) {
  const std::string path = environment_variable("PATH").value_or("");
  const auto is_here = [&](const std::string& program) {
    return find_program(program, "/", path).ok();
  };
  if (!check_job_name(word).ok() || is_here(word) || more.empty() || !is_here(more[0])) return {};
  return not_found(cat("no job '", word, "' runs, and there is no program of that name here; ",
                       "horovodrun ps lists jobs, and horovodrun exec -- ", word,
                       " ... runs a program that only the hosts have"));
}

Result<ExecWords> read_exec(std::span<const std::string> words) {
  ExecWords read;
  while (!words.empty() && read.order.command.empty()) {
    const std::string word = words[0];
    words = words.subspan(1);
    constexpr std::string_view kRank = "--rank";
    if (read.job.empty() && means_job(word)) {
      read.job = word;
    } else if (word == kRank && !words.empty()) {
      read.order.ranks = words[0];
      words = words.subspan(1);
    } else if (word == kRank) {
      return invalid_argument("--rank needs a value, as in --rank 0,3-5");
    } else if (word.starts_with(cat(kRank, "="))) {
      read.order.ranks = word.substr(kRank.size() + 1);
    } else if (word.starts_with('-') && word != "--") {
      return invalid_argument(
          cat("horovodrun exec has no flag '", printable(word), "'; it has --rank LIST"));
    } else {
      if (word != "--") {
        if (read.job.empty()) HVD_RETURN_IF_ERROR(check_program(word, words));
        read.order.command.push_back(word);
      }
      read.order.command.insert(read.order.command.end(), words.begin(), words.end());
      break;
    }
  }
  if (!read.order.command.empty()) return read;
  return invalid_argument(
      "write horovodrun exec [NAME or id of a job] [--rank 0,3-5] COMMAND; "
      "to run a program that is called exec, put flags before it");
}

int run_beside_ranks(std::span<const std::string> arguments) {
  const auto read = read_exec(arguments.subspan(1));
  if (!read.ok()) return refuse(read.status());
  const auto launchers = choose_launchers(read->job, arguments);
  if (!launchers.ok()) return refuse(launchers.status());
  if (launchers->size() > 1) return refuse(several_run("exec", *launchers));
  const RunningLauncher& launcher = launchers->front();
  const Status sent = send_question(launcher, cat("exec ", to_hex(encode(read->order))));
  return sent.ok() ? show_records(launcher) : refuse(sent);
}

// `target`: a host, or the number of a rank.
Status check_removal(const std::string& target) {
  if (!target.empty() && target.find_first_of(" \n") == std::string::npos) return {};
  return invalid_argument(
      "write horovodrun remove [NAME or id of a job] HOST, or the number of a rank; to run the "
      "program remove, put flags before it");
}

Status check_number(const std::string& order, const std::string& ranks) {
  const auto number = parse_int(ranks);
  if (number && *number >= 1 && *number <= kMaxSlots) return {};
  return invalid_argument(cat("write horovodrun ", order,
                              " [NAME or id of a job] N, where N is the new number of ranks; to "
                              "run the program ",
                              order, ", put flags before it"));
}

// Runs `horovodrun resize [NAME] N` and `horovodrun remove [NAME] HOST|RANK`.
int change_ranks(std::span<const std::string> arguments) {
  const std::string& order = arguments[0];
  const auto words = arguments.subspan(1);
  const bool has_job = words.size() == 2 && may_be_job(words[0]);
  const std::string change = words.size() == 1 || has_job ? words.back() : "";
  const Status complete = order == "remove" ? check_removal(change) : check_number(order, change);
  if (!complete.ok()) return refuse(complete);
  const auto launchers = choose_launchers(has_job ? words[0] : "", arguments);
  if (!launchers.ok()) return refuse(launchers.status());
  if (launchers->size() > 1)
    return refuse(several_run(order, *launchers, order == "remove" ? " HOST" : " N"));
  const RunningLauncher& launcher = launchers->front();
  const Status sent = send_question(launcher, cat(order, " ", change));
  return sent.ok() ? show_records(launcher) : refuse(sent);
}

int show_answer(const std::vector<RunningLauncher>& launchers, const std::string& question,
                double seconds = kAnswerSeconds) {
  const auto answer = std::move(ask_each(launchers, question, seconds).front());
  return answer.ok() ? print_answer(*answer) : refuse(answer.status());
}

struct PsWords {
  std::string job;  // empty: all running jobs
  bool has_all = false, is_json = false, is_wide = false;
};

Result<PsWords> read_ps(std::span<const std::string> words) {
  PsWords read;
  for (const std::string& word : words) {
    if (word == "-a" || word == "--all")
      read.has_all = true;
    else if (word == "--json")
      read.is_json = true;
    else if (word == "-w" || word == "--wide")
      read.is_wide = true;
    else if (read.job.empty() && may_be_job(word))
      read.job = word;
    else
      return invalid_argument(
          "write horovodrun ps [-a] [-w] [--json] [NAME or id of a job]; to run the program ps, "
          "put flags before it");
  }
  if (read.has_all && !read.job.empty())
    return invalid_argument("horovodrun ps -a lists all jobs; leave -a out, or the name");
  return read;
}

struct PsAnswers {
  std::vector<std::string> jobs;    // lines of JSON
  std::vector<std::string> silent;  // pids of launchers that do not answer
};

// Queries the launchers. Omits launchers whose job has ended, unless the user has named the job.
Result<PsAnswers> ask_for_jobs(const std::vector<RunningLauncher>& launchers, bool is_named) {
  PsAnswers found;
  for (size_t i = 0; auto& answer : ask_each(launchers, "ps --json")) {
    const std::string& pid = launchers[i++].pid;
    const Code code = answer.status().code();
    if (answer.ok())
      found.jobs.push_back(*std::move(answer));
    else if (code == Code::kDeadlineExceeded)
      found.silent.push_back(pid);
    else if (is_named || code != Code::kUnavailable)
      return answer.status();
  }
  if (found.jobs.empty() && found.silent.empty()) return not_found(kNoJob);
  return found;
}

int print_json(const PsAnswers& answers) {
  for (const std::string& pid : answers.silent) print_message(silence_of(pid).message());
  if (answers.jobs.empty()) return kExitBadInput;
  return print_answer(join(answers.jobs, ""));
}

int print_tables(const PsAnswers& answers, size_t columns) {
  std::vector<std::string> tables;
  for (const std::string& line : answers.jobs) {
    const auto job = read_job(line);
    if (!job.ok()) return refuse(job.status());
    tables.push_back(job_as_table(*job, columns, color_rule().holds_for(STDOUT_FILENO)));
  }
  for (const std::string& pid : answers.silent) tables.push_back(silent_row(pid));
  return print_answer(join(tables, "\n"));
}

// Runs `horovodrun ps [-a] [-w] [--json] [NAME]`.
int list_jobs(std::span<const std::string> arguments) {
  const auto read = read_ps(arguments.subspan(1));
  if (!read.ok()) return refuse(read.status());
  if (read->has_all) return list_all_jobs(read->is_json);
  const auto launchers = choose_launchers(read->job, arguments);
  if (!launchers.ok()) return refuse(launchers.status());
  const auto answers = ask_for_jobs(*launchers, !read->job.empty());
  if (!answers.ok()) return refuse(answers.status());
  if (read->is_json) return print_json(*answers);
  const bool is_cut = !read->is_wide && ::isatty(STDOUT_FILENO) == 1;
  return print_tables(*answers, is_cut ? text_width(STDOUT_FILENO) : 0);
}

// Runs `horovodrun stack [--native] [NAME]`.
int show_stacks(std::span<const std::string> arguments) {
  auto words = arguments.subspan(1);
  const bool is_native = !words.empty() && words[0] == "--native";
  if (is_native) words = words.subspan(1);
  if (words.size() > 1 || (words.size() == 1 && !may_be_job(words[0]))) {
    return refuse(
        invalid_argument("write horovodrun stack [--native] [NAME or id of a job]; to run the "
                         "program stack, put flags before it"));
  }
  const auto launchers = choose_launchers(words.empty() ? "" : words[0], arguments);
  if (!launchers.ok()) return refuse(launchers.status());
  if (launchers->size() > 1) return refuse(several_run("stack", *launchers));
  return show_answer(*launchers, is_native ? "stack --native" : "stack", kStackSeconds);
}

// Runs `horovodrun metrics [--level LEVEL] [NAME]`.
int show_metrics(std::span<const std::string> arguments) {
  auto words = arguments.subspan(1);
  std::string level = "summary";
  std::string job;
  bool is_right = true;
  while (is_right && !words.empty()) {
    constexpr std::string_view kLevel = "--level";
    const std::string& word = words[0];
    if (word == kLevel && words.size() > 1) {
      level = words[1];
      words = words.subspan(1);
    } else if (word.starts_with(cat(kLevel, "="))) {
      level = word.substr(kLevel.size() + 1);
    } else {
      is_right = job.empty() && may_be_job(word);
      job = word;
    }
    words = words.subspan(1);
  }
  if (!is_right || !parse_metrics_level(level)) {
    return refuse(invalid_argument(
        "write horovodrun metrics [--level summary|host|rank] [NAME or id of a job]; to run the "
        "program metrics, put flags before it"));
  }
  const auto launchers = choose_launchers(job, arguments);
  if (!launchers.ok()) return refuse(launchers.status());
  if (launchers->size() > 1) return refuse(several_run("metrics", *launchers));
  return show_answer(*launchers, cat("metrics ", level));
}

}  // namespace

bool asks_about_jobs(std::span<const std::string> arguments) {
  constexpr std::array<std::string_view, 10> kOrders = {
      "ps", "stack", "metrics", "exec", "attach", "resize", "remove", "stop", "wait", "logs"};
  return !arguments.empty() &&
         std::find(kOrders.begin(), kOrders.end(), arguments[0]) != kOrders.end();
}

int answer_about_jobs(std::span<const std::string> arguments) {
  const std::string& question = arguments[0];
  const auto words = arguments.subspan(1);
  if (question == "exec") return run_beside_ranks(arguments);
  if (question == "resize" || question == "remove") return change_ranks(arguments);
  if (question == "metrics") return show_metrics(arguments);
  if (question == "attach") return attach(words);
  if (question == "stop") return stop_job(words);
  if (question == "wait") return wait_for_job(words);
  if (question == "logs") return show_log(words);
  if (question == "stack") return show_stacks(arguments);
  return list_jobs(arguments);
}

}  // namespace hvd::launcher
