#include "launcher/inspect/look_inside.h"

#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <optional>
#include <vector>

#include "base/check.h"
#include "base/secrets/secret.h"
#include "base/text.h"
#include "launcher/detach/attach.h"
#include "launcher/inspect/inspection.h"
#include "launcher/inspect/job_metrics.h"
#include "launcher/output/report.h"
#include "launcher/plan/hosts.h"
#include "launcher/protocol/protocol.h"
#include "launcher/protocol/record.h"
#include "launcher/state/job_choice.h"
#include "launcher/state/job_commands.h"
#include "net/abstract_names.h"
#include "net/packet_socket.h"

namespace hvd::launcher {
namespace {

constexpr time_t kMetricsSeconds = 2;
constexpr char kNoJob[] = "no horovodrun of yours is running on this machine";

struct RunningLauncher {
  std::string pid;
  UniqueFd socket;  // connected
};

std::vector<RunningLauncher> running_launchers() {
  const std::string prefix = inspection_prefix();
  std::vector<RunningLauncher> launchers;
  for (const std::string& name : net::listening_names(prefix)) {
    auto found = net::connect_to_listener(name, SOCK_STREAM);
    // Every user can bind such a name.
    if (!found || !net::is_trusted_peer(found->socket.get())) continue;
    const std::string rest = name.substr(prefix.size());
    launchers.push_back({rest.substr(0, rest.find('/')), std::move(found->socket)});
  }
  return launchers;
}

// The running launchers, or that of this job: a pid, a name or an id.
Result<std::vector<RunningLauncher>> choose(const std::string& job, const std::string& command) {
  HVD_ASSIGN_OR_RETURN(const std::string pid, launcher_here(job, command, true));
  std::vector<RunningLauncher> launchers = running_launchers();
  if (!pid.empty())
    std::erase_if(launchers, [&](const RunningLauncher& one) { return one.pid != pid; });
  if (!launchers.empty()) return launchers;
  if (pid.empty()) return not_found(kNoJob);
  return not_found(
      cat("no horovodrun of yours runs with pid ", printable(pid), "; horovodrun ps lists them"));
}

// The launcher ended after it had been found.
Status has_ended(const RunningLauncher& launcher) {
  return unavailable(cat("horovodrun with pid ", launcher.pid, " has ended"));
}

bool means_end(int error_number) { return error_number == EPIPE || error_number == ECONNRESET; }

Status no_answer(const RunningLauncher& launcher, int error_number) {
  if (means_end(error_number)) return has_ended(launcher);
  return system_error(cat("horovodrun with pid ", launcher.pid, " does not answer"), error_number);
}

Status send_question(const RunningLauncher& launcher, const std::string& question) {
  const std::string request = question + "\n";
  for (size_t sent = 0; sent < request.size();) {
    const ssize_t size =
        ::send(launcher.socket.get(), request.data() + sent, request.size() - sent, MSG_NOSIGNAL);
    if (size < 0 && errno == EINTR) continue;
    if (size < 0) return no_answer(launcher, errno);
    sent += static_cast<size_t>(size);
  }
  return {};
}

// False at the end.
Result<bool> read_more(const RunningLauncher& launcher, std::string& text) {
  std::array<char, 64 << 10> buffer;
  ssize_t size = 0;
  do {
    size = ::read(launcher.socket.get(), buffer.data(), buffer.size());
  } while (size < 0 && errno == EINTR);
  if (size < 0) return no_answer(launcher, errno);
  text.append(buffer.data(), static_cast<size_t>(size));
  return size > 0;
}

Result<std::string> ask(const RunningLauncher& launcher, const std::string& question) {
  HVD_RETURN_IF_ERROR(send_question(launcher, question));
  std::string text;
  for (;;) {
    HVD_ASSIGN_OR_RETURN(const bool is_more, read_more(launcher, text));
    if (is_more) continue;
    if (text.empty()) return has_ended(launcher);
    return text;
  }
}

// Until the command has ended: what it says, as it comes.
int show_records(const RunningLauncher& launcher) {
  std::string bytes;
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

// `more`: what stands behind the pid.
Status several(const std::string& question, const std::vector<RunningLauncher>& launchers,
               const std::string& more = "") {
  std::vector<std::string> pids;
  pids.reserve(launchers.size());
  for (const RunningLauncher& one : launchers) pids.push_back(one.pid);
  return invalid_argument(cat("several are running; write horovodrun ", question, " ID", more,
                              ", with one of ", join(pids, ", ")));
}

struct ExecWords {
  std::string job;  // empty: none is given
  Run order;
};

// Whether the first word of `exec` is a job, and not the command: a number, or the name of a job that runs.
bool means_job(const std::string& word, std::span<const std::string> rest) {
  return parse_int(word) || (!rest.empty() && names_running_job(word));
}

Result<ExecWords> read_exec(std::span<const std::string> words) {
  ExecWords read;
  while (!words.empty() && read.order.command.empty()) {
    const std::string word = words[0];
    words = words.subspan(1);
    constexpr std::string_view kRank = "--rank";
    if (read.job.empty() && means_job(word, words)) {
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
      if (word != "--") read.order.command.push_back(word);
      read.order.command.insert(read.order.command.end(), words.begin(), words.end());
      break;
    }
  }
  if (!read.order.command.empty()) return read;
  return invalid_argument(
      "write horovodrun exec [NAME or id of a job] [--rank 0,3-5] COMMAND; "
      "to run a program that is called exec, put flags before it");
}

int run_beside_ranks(std::span<const std::string> words) {
  const auto read = read_exec(words);
  if (!read.ok()) return refuse(read.status());
  const auto launchers = choose(read->job, "exec");
  if (!launchers.ok()) return refuse(launchers.status());
  if (launchers->size() > 1) return refuse(several("exec", *launchers));
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

// `horovodrun resize [NAME] N` and `horovodrun remove [NAME] HOST|RANK`.
int change_ranks(std::span<const std::string> arguments) {
  const std::string& order = arguments[0];
  const auto words = arguments.subspan(1);
  const bool has_job = words.size() == 2 && may_be_job(words[0]);
  const std::string change = words.size() == 1 || has_job ? words.back() : "";
  const Status complete = order == "remove" ? check_removal(change) : check_number(order, change);
  if (!complete.ok()) return refuse(complete);
  const auto launchers = choose(has_job ? words[0] : "", order);
  if (!launchers.ok()) return refuse(launchers.status());
  if (launchers->size() > 1)
    return refuse(several(order, *launchers, order == "remove" ? " HOST" : " N"));
  const RunningLauncher& launcher = launchers->front();
  const Status sent = send_question(launcher, cat(order, " ", change));
  return sent.ok() ? show_records(launcher) : refuse(sent);
}

// Prints the answers of the launchers. `wants_all`: leaves out those whose job has ended.
int show_answers(const std::vector<RunningLauncher>& launchers, const std::string& question,
                 bool wants_all) {
  size_t ended = 0;
  for (const RunningLauncher& launcher : launchers) {
    const auto text = ask(launcher, question);
    if (wants_all && text.status().code() == Code::kUnavailable) {
      ++ended;
      continue;
    }
    if (!text.ok()) return refuse(text.status());
    if (std::fputs(text->c_str(), stdout) < 0) return kExitLauncher;
  }
  if (ended == launchers.size()) return refuse(not_found(kNoJob));
  return std::fflush(stdout) == 0 ? 0 : kExitLauncher;
}

// `horovodrun ps -a [--json]`: whether as JSON.
std::optional<bool> asks_for_all(const std::string& command, std::span<const std::string> words) {
  const auto has = [&](std::string_view word) {
    return std::find(words.begin(), words.end(), word) != words.end();
  };
  const bool asks = command == "ps" && (has("-a") || has("--all"));
  const bool is_known = std::ranges::all_of(words, [](const std::string& word) {
    return word == "-a" || word == "--all" || word == "--json";
  });
  return asks && is_known ? std::optional(has("--json")) : std::nullopt;
}

// `horovodrun ps [--json] [NAME]` and `horovodrun stack [--native] [NAME]`.
int show_jobs(const std::string& command, std::span<const std::string> words) {
  remove_old_spools();
  if (const auto wants_json = asks_for_all(command, words)) return list_all_jobs(*wants_json);
  const std::string flag = command == "ps" ? "--json" : "--native";
  const bool has_flag = !words.empty() && words[0] == flag;
  if (has_flag) words = words.subspan(1);
  if (words.size() > 1 || (words.size() == 1 && !may_be_job(words[0]))) {
    return refuse(invalid_argument(cat("write horovodrun ", command,
                                       " [NAME or id of a job]; to run the program ", command,
                                       ", put flags before it")));
  }
  const auto launchers = choose(words.empty() ? "" : words[0], command);
  if (!launchers.ok()) return refuse(launchers.status());
  if (launchers->size() > 1 && command == "stack") return refuse(several(command, *launchers));
  return show_answers(*launchers, has_flag ? cat(command, " ", flag) : command, words.empty());
}

// `horovodrun metrics [--level LEVEL] [NAME]`.
int show_metrics(std::span<const std::string> words) {
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
  const auto launchers = choose(job, "metrics");
  if (!launchers.ok()) return refuse(launchers.status());
  if (launchers->size() > 1) return refuse(several("metrics", *launchers));
  // A launcher that is stopped does not answer.
  const timeval limit{.tv_sec = kMetricsSeconds, .tv_usec = 0};
  ::setsockopt(launchers->front().socket.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  return show_answers(*launchers, cat("metrics ", level), false);
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
  if (question == "exec") return run_beside_ranks(words);
  if (question == "resize" || question == "remove") return change_ranks(arguments);
  if (question == "metrics") return show_metrics(words);
  if (question == "attach") return attach(words);
  if (question == "stop") return stop_job(words);
  if (question == "wait") return wait_for_job(words);
  if (question == "logs") return show_log(words);
  return show_jobs(question, words);
}

}  // namespace hvd::launcher
