#include "launcher/observe/views/top.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <optional>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/proc_file.h"
#include "base/settings.h"
#include "base/text.h"
#include "base/unique_fd.h"
#include "launcher/observe/views/full_screen.h"
#include "launcher/observe/views/job_view.h"
#include "launcher/observe/views/running_launchers.h"
#include "launcher/observe/views/top_frame.h"
#include "launcher/output/report.h"
#include "launcher/output/terminal_text.h"
#include "launcher/state/job_choice.h"
#include "launcher/state/job_record.h"

namespace hvd::launcher {
namespace {

constexpr std::chrono::milliseconds kAskEvery{1000};
// The frame has a notice if the launcher has not answered for this time.
constexpr std::chrono::seconds kNotice{2};
// The bytes of one key arrive together, or almost together over a slow link.
constexpr std::chrono::milliseconds kKeyTime{50};
constexpr char kQuestion[] = "ps --json";

struct TopWords {
  std::string job;
  bool is_once = false, is_json = false;
};

Result<TopWords> read_top_words(std::span<const std::string> words) {
  TopWords read;
  for (const std::string& word : words) {
    if (word == "--once")
      read.is_once = true;
    else if (word == "--json")
      read.is_json = true;
    else if (read.job.empty() && may_be_job(word))
      read.job = word;
    else
      return invalid_argument(
          "write horovodrun top [--once] [--json] [NAME or id of a job]; to run the program top, "
          "put flags before it");
  }
  return read;
}

// Queries a launcher once a second, and never blocks on it.
class Questions {
 public:
  explicit Questions(RunningLauncher launcher)
      : pid_(launcher.pid), start_(start()), launcher_(std::move(launcher)) {
    begin();
  }

  const std::string& pid() const { return pid_; }
  // Returns the descriptor to wait for, or -1.
  int fd() const { return launcher_ ? launcher_->socket.get() : -1; }
  // Returns the time after which a launcher without an answer is considered silent.
  Clock::time_point limit() const {
    const std::chrono::duration<double> limit(kAnswerSeconds);
    return launcher_ ? asked_at_ + std::chrono::duration_cast<Clock::duration>(limit)
                     : Clock::time_point::max();
  }
  Clock::time_point next() const {
    return launcher_ ? Clock::time_point::max() : asked_at_ + kAskEvery;
  }
  std::chrono::duration<double> silence() const { return Clock::now() - answered_at_; }
  bool has_ended() const { return has_ended_; }

  // Call at the time next().
  void ask() {
    std::vector<RunningLauncher> launchers = running_launchers(pid_);
    asked_at_ = Clock::now();
    if (!launchers.empty()) {
      launcher_ = std::move(launchers.front());
      return begin();
    }
    // The launcher has no socket between two launches of a job (--max-restarts), which may take long.
    has_ended_ = has_process_ended();
  }

  // Call when fd() is readable. Returns a complete answer.
  std::optional<std::string> read() {
    const auto is_more = read_more(*launcher_, text_);
    if (is_more.ok() && *is_more) return {};
    launcher_.reset();
    std::string text = std::exchange(text_, {});
    if (!is_more.ok() || text.empty()) {
      has_ended_ = has_process_ended();
      return {};
    }
    answered_at_ = Clock::now();
    return text;
  }

 private:
  void begin() {
    asked_at_ = Clock::now();
    if (!send_question(*launcher_, kQuestion).ok()) launcher_.reset();
  }

  int64_t start() const { return start_of(parse_int(pid_).value_or(0)); }
  // Compares the start time, since another process may have the launcher's pid now.
  bool has_process_ended() const { return start() == 0 || start() != start_; }

  const std::string pid_;
  const int64_t start_;                      // start of the process
  std::optional<RunningLauncher> launcher_;  // while an answer is pending
  std::string text_;
  Clock::time_point asked_at_{};
  Clock::time_point answered_at_ = Clock::now();
  bool has_ended_ = false;
};

// Waits for a descriptor, until `deadline` at most.
bool is_readable(int fd, Clock::time_point deadline) {
  pollfd entry{.fd = fd, .events = POLLIN, .revents = 0};
  return ::poll(&entry, fd >= 0 ? 1 : 0, Deadline::at(deadline).poll_timeout()) > 0;
}

std::string end_sentence(const Questions& questions) {
  return cat("the job of horovodrun with pid ", questions.pid(), " has ended");
}

// Returns the next answer. Code::kUnavailable: the job has ended; Code::kDeadlineExceeded: the launcher does not
// answer.
Result<std::string> next_answer(Questions& questions) {
  for (;;) {
    if (questions.has_ended()) return unavailable(end_sentence(questions));
    if (is_readable(questions.fd(), std::min(questions.next(), questions.limit()))) {
      if (auto text = questions.read()) return *std::move(text);
    } else if (questions.fd() < 0) {
      questions.ask();
    } else if (Clock::now() >= questions.limit()) {
      return silence_of(questions.pid());
    }
  }
}

// Handles `--json`, and `--once`. A frame has rates, so `--once` needs two answers.
int print_answers(Questions& questions, const TopWords& words) {
  JobRates rates;
  for (bool is_first = true;; is_first = false) {
    const auto text = next_answer(questions);
    if (!text.ok()) {
      const bool has_ended = text.status().code() == Code::kUnavailable;
      return has_ended && !is_first ? 0 : refuse(text.status());
    }
    if (words.is_json) {
      const int code = print_answer(*text);
      if (code != 0 || words.is_once) return code;
      continue;
    }
    const auto job = read_job(*text);
    if (!job.ok()) return refuse(job.status());
    rates.add(*job);
    if (is_first) continue;
    TopChoice choice;
    const TopLook look{.size = {.columns = ::isatty(STDOUT_FILENO) == 1 ? text_width(STDOUT_FILENO)
                                                                        : size_t{1} << 20,
                                .rows = 0},
                       .has_color = color_rule().holds_for(STDOUT_FILENO),
                       .is_utf8 = is_utf8_locale()};
    return print_answer(top_frame(*job, rates, choice, look));
  }
}

// Runs the command on a terminal.
class Top {
 public:
  explicit Top(Questions& questions) : questions_(questions) {
    sigset_t set;
    sigemptyset(&set);
    for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGTSTP, SIGWINCH, SIGPIPE})
      sigaddset(&set, number);
    ::sigprocmask(SIG_BLOCK, &set, nullptr);
    signals_.reset(::signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC));
  }

  int run() {
    screen_.emplace();
    draw();
    while (!is_over_) wait();
    screen_.reset();
    if (questions_.has_ended()) print_message(end_sentence(questions_));
    if (signal_ != 0) {
      std::signal(signal_, SIG_DFL);
      sigset_t set;
      sigemptyset(&set);
      sigaddset(&set, signal_);
      ::raise(signal_);
      ::sigprocmask(SIG_UNBLOCK, &set, nullptr);
    }
    return 0;
  }

 private:
  void wait() {
    std::array<pollfd, 3> entries = {pollfd{STDIN_FILENO, POLLIN, 0},
                                     pollfd{signals_.get(), POLLIN, 0},
                                     pollfd{questions_.fd(), POLLIN, 0}};
    // Wake at least once a second: a notice about silence counts seconds.
    const auto next = std::min({questions_.next(), Clock::now() + kAskEvery, key_until_});
    const int ready = ::poll(entries.data(), entries.size(), Deadline::at(next).poll_timeout());
    if (ready < 0 && errno != EINTR) is_over_ = true;
    if (ready > 0 && entries[1].revents != 0) take_signals();
    if (ready > 0 && entries[0].revents != 0) take_input(entries[0].revents);
    if (Clock::now() >= key_until_) take_keys_so_far(keys_.give_up());
    if (ready > 0 && entries[2].revents != 0) take_answer();
    if (Clock::now() >= questions_.next()) questions_.ask();
    if (questions_.has_ended()) is_over_ = true;
    if (!is_over_) draw();
  }

  void take_input(short events) {
    std::array<char, 256> keys;
    const ssize_t size = ::read(STDIN_FILENO, keys.data(), keys.size());
    // The terminal is closed. (Without these events, a flush may have removed the keys that poll() reported.)
    const bool is_gone = size == 0 && (events & (POLLHUP | POLLERR)) != 0;
    if (is_gone || (size < 0 && errno != EINTR && errno != EAGAIN)) is_over_ = true;
    if (size <= 0) return;
    take_keys_so_far(keys_.take({keys.data(), static_cast<size_t>(size)}));
  }

  void take_keys_so_far(const std::vector<Key>& keys) {
    if (!take_keys(choice_, keys, terminal_size(STDOUT_FILENO).rows)) is_over_ = true;
    key_until_ = keys_.is_waiting() ? Clock::now() + kKeyTime : Clock::time_point::max();
  }

  void take_answer() {
    const auto text = questions_.read();
    if (!text || choice_.is_paused) return;
    auto job = read_job(*text);
    if (!job.ok()) {
      notice_ = job.status().message();
      return;
    }
    job_ = *std::move(job);
    rates_.add(*job_);
  }

  // Stops this process by SIGTSTP. The system ignores SIGTSTP if no shell could continue it, as under `ssh -t`.
  static void stop_here() {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGTSTP);
    ::raise(SIGTSTP);
    ::sigprocmask(SIG_UNBLOCK, &set, nullptr);
    ::sigprocmask(SIG_BLOCK, &set, nullptr);
  }

  void take_signals() {
    signalfd_siginfo info{};
    while (::read(signals_.get(), &info, sizeof info) == sizeof info) {
      const int number = static_cast<int>(info.ssi_signo);
      if (number == SIGTSTP) {
        screen_->leave();
        stop_here();
        screen_->enter();
      } else if (number == SIGINT) {
        is_over_ = true;
      } else if (number != SIGWINCH) {
        is_over_ = true;
        signal_ = number;
      }
    }
  }

  void draw() {
    TopLook look{.size = terminal_size(STDOUT_FILENO),
                 .has_color = color_rule().holds_for(STDOUT_FILENO),
                 .is_utf8 = is_utf8_locale(),
                 .notice = notice_};
    if (questions_.silence() > kNotice)
      look.notice = cat("no answer for ", static_cast<int64_t>(questions_.silence().count()), " s");
    if (choice_.is_paused) look.notice = "stopped by p";
    if (!job_) {
      const std::string notice = look.notice.empty() ? "" : cat(": ", look.notice);
      return screen_->show(cat("waiting for the launcher", notice, "\n"));
    }
    screen_->show(top_frame(*job_, rates_, choice_, look));
  }

  Questions& questions_;
  UniqueFd signals_;
  std::optional<FullScreen> screen_;
  TopChoice choice_;
  KeyReader keys_;
  // The time at which a partial key is interpreted without further bytes.
  Clock::time_point key_until_ = Clock::time_point::max();
  JobRates rates_;
  std::optional<JobView> job_;
  std::string notice_;
  int signal_ = 0;
  bool is_over_ = false;
};

bool is_full_terminal() {
  return ::isatty(STDIN_FILENO) == 1 && ::isatty(STDOUT_FILENO) == 1 &&
         environment_variable("TERM").value_or("dumb") != "dumb";
}

}  // namespace

bool asks_for_top(std::span<const std::string> arguments) {
  return !arguments.empty() && arguments[0] == "top";
}

int show_top(std::span<const std::string> arguments) {
  auto read = read_top_words(arguments.subspan(1));
  if (!read.ok()) return refuse(read.status());
  auto launchers = choose_launchers(read->job, arguments);
  if (!launchers.ok()) return refuse(launchers.status());
  if (launchers->size() > 1) return refuse(several_run("top", *launchers));
  Questions questions(std::move(launchers->front()));
  if (!read->is_json && !is_full_terminal()) read->is_once = true;
  if (read->is_json || read->is_once) return print_answers(questions, *read);
  return Top(questions).run();
}

}  // namespace hvd::launcher
