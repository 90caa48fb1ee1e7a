// What changes the course of a running job: signals, failures, time; and how it ends.
#include <unistd.h>

#include <algorithm>
#include <csignal>

#include "base/check.h"
#include "base/text.h"
#include "launcher/job/job_state.h"
#include "launcher/output/report.h"
#include "launcher/plan/installation.h"
#include "launcher/protocol/outside_signals.h"
#include "rendezvous/wire/job_keys.h"

namespace hvd::launcher {
namespace {

// How long agents may take beyond that before the launcher drops their links.
constexpr double kBeyondGrace = 2;
constexpr int kForwarded[] = {SIGUSR1, SIGUSR2, SIGWINCH};
// How long a rank that made others fail by leaving may take to end itself.
constexpr std::chrono::seconds kTimeToLeave{2};
// How long a suspended launcher may take to say so.
constexpr std::chrono::seconds kTimeToSuspend{1};

bool is_ignored(int signal) {
  struct sigaction action {};
  return ::sigaction(signal, nullptr, &action) == 0 && action.sa_handler == SIG_IGN;
}

}  // namespace

void JobLaunch::watch_signals() {
  for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGTSTP}) {
    // nohup's wish; an ignored SIGINT is only the mark of a shell's background job.
    if ((number == SIGHUP || number == SIGTSTP) && is_ignored(number)) continue;
    signals_.add(number);
  }
  for (const int number : kForwarded) signals_.add(number);
  signals_.async_wait([this](const net::error_code& error, int number) {
    if (error) return;
    on_signal(number);
    watch_signals();
  });
}

void JobLaunch::on_signal(int number) {
  if (std::find(std::begin(kForwarded), std::end(kForwarded), number) != std::end(kForwarded)) {
    return pass_on(number);
  }
  if (number == SIGTSTP) {
    if (!std::exchange(suspending_, true)) {
      net::asio::co_spawn(loop_, suspend(), net::asio::detached);
    }
    return;
  }
  is_ended_by_user_ = true;
  if (links_.empty()) {
    interrupt_ = number;
    if (preflight_) preflight_->cancel();
    return;
  }
  act(supervisor_.on_signal(number), number);
}

void JobLaunch::pass_on(int number, int from_host) {
  const auto now = Clock::now();
  const auto last = passed_on_.find(number);
  // A scheduler signals the processes of a job at about one moment. A window may change often.
  if (number != SIGWINCH && last != passed_on_.end() && now - last->second < kSameSignalFor) return;
  passed_on_[number] = now;
  for (size_t host = 0; host < links_.size(); ++host) {
    if (static_cast<int>(host) != from_host) links_[host]->signal(number);
  }
}

// Tells the agents that silence is no loss, and stops the ranks and this process until it is
// continued.
net::Task<void> JobLaunch::suspend() {
  struct Telling {
    size_t left;
    net::asio::steady_timer done;
  };
  const auto telling = std::make_shared<Telling>(
      Telling{links_.size(), net::asio::steady_timer(loop_, kTimeToSuspend)});
  for (const auto& link : links_) {
    link->signal(SIGTSTP);
    net::asio::co_spawn(loop_, link->suspend(), [telling](std::exception_ptr, Status) {
      if (--telling->left == 0) telling->done.cancel();
    });
  }
  if (telling->left > 0) co_await telling->done.async_wait(net::use_tuple);
  ::raise(SIGSTOP);
  for (const auto& link : links_) link->signal(SIGCONT);
  // The links' next pings end the suspension.
  suspending_ = false;
}

std::optional<int> JobLaunch::left_by(int rank) const {
  const auto value = server_ ? server_->value(rendezvous::left_by_key(rank)) : std::nullopt;
  if (!value) return {};
  const auto peer = parse_int(as_text(*value));
  if (!peer || *peer < 0 || *peer >= plan_.size()) return {};
  return static_cast<int>(*peer);
}

net::Task<void> JobLaunch::await_cause() {
  cause_.expires_after(kTimeToLeave);
  const auto [error] = co_await cause_.async_wait(net::use_tuple);
  if (!error) act(supervisor_.on_awaited());
}

void JobLaunch::act(Supervisor::Action action, int signal) {
  if (const auto news = supervisor_.take_news()) output_->say(*news);
  switch (action) {
    case Supervisor::Action::kNone:
      break;
    case Supervisor::Action::kAwait:
      net::asio::co_spawn(loop_, await_cause(), net::asio::detached);
      break;
    case Supervisor::Action::kEnd:
      end_all(grace_, signal == SIGINT ? 0 : signal);
      break;
    case Supervisor::Action::kKill:
      output_->discard_stalled();
      end_all(0);
      break;
  }
  changed_.cancel();
}

void JobLaunch::end_all(double grace, int signal) {
  for (size_t host = 0; host < links_.size(); ++host) {
    if (!supervisor_.is_done(static_cast<int>(host))) links_[host]->end(grace, signal);
  }
  net::asio::co_spawn(loop_, end_in_time(grace + kBeyondGrace), net::asio::detached);
}

// Agents end their ranks by themselves once their link is gone, so nobody need wait for one that
// does not answer. But one that waits for a stalled terminal to take the last output is no such.
net::Task<void> JobLaunch::end_in_time(double seconds) {
  give_up_.expires_after(
      std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::duration<double>(seconds)));
  const auto [error] = co_await give_up_.async_wait(net::use_tuple);
  if (error) co_return;
  if (output_->is_stalled()) {
    co_await output_->drain();
    if (!supervisor_.is_done()) co_await end_in_time(seconds);
    co_return;
  }
  for (size_t host = 0; host < links_.size(); ++host) {
    if (supervisor_.is_done(static_cast<int>(host))) continue;
    output_->say(cat("host ", plan_.hosts[host].name, " has not confirmed that its ranks ended"));
    links_[host]->close();
    failed_hosts_.push_back(static_cast<int>(host));
    act(supervisor_.on_lost(static_cast<int>(host), unavailable("it does not answer")));
  }
}

void JobLaunch::drop_links() {
  for (const auto& link : links_) link->close();
}

// Shows first what the ranks were doing.
net::Task<void> JobLaunch::time_out(double seconds) {
  const std::vector<std::string> texts = co_await inspection_.run(true);
  for (size_t host = 0; host < texts.size(); ++host) {
    if (texts[host].empty()) continue;
    output_->say(cat("where the ranks of host ", plan_.hosts[host].name, " are:\n",
                     std::string_view(texts[host]).substr(0, texts[host].size() - 1)));
  }
  act(supervisor_.on_timeout(seconds));
}

RankContext JobLaunch::context_of(int rank) const {
  const auto host = static_cast<size_t>(plan_.slots[static_cast<size_t>(rank)].host);
  const std::string folder = executable_folder();
  RankContext context{.package_folder = find_python_package(folder),
                      .package_python = find_python(folder)};
  // A bare name stands for no environment of its own.
  if (context.package_python.find('/') == std::string::npos) context.package_python.clear();
  for (const auto& [name, value] : links_[host]->versions()) {
    if (name == kInterpreter) context.interpreter = value;
  }
  context.lacks_input = reads_input(0) && !reads_input(rank);
  return context;
}

void JobLaunch::tell_the_end() {
  std::string report = supervisor_.report();
  if (report.empty()) return;
  const int rank = supervisor_.failed_rank();
  const std::string words = rank < 0 ? "" : output_->last_errors(rank);
  if (rank >= 0) report += advice_on(words, context_of(rank));
  const std::string killed = supervisor_.killed_ranks();
  if (!killed.empty() && grace_ > 0) {
    report += cat("; ", killed, " did not end within ", grace_, " s (--kill-grace) of ",
                  signal_name(end_signal_), " and ", killed.starts_with("ranks ") ? "were" : "was",
                  " killed");
  }
  // What a single rank wrote stands right above.
  if (words.empty() || plan_.size() == 1) return output_->say(report);
  const std::string whose =
      killed.empty() ? "its last lines" : cat("the last lines of rank ", rank);
  output_->say(cat(report, "; ", whose, " on standard error:\n",
                   std::string_view(words).substr(0, words.size() - 1)));
}

}  // namespace hvd::launcher
