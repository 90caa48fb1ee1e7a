#include "launcher/observe/views/running_launchers.h"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include "base/clock.h"
#include "base/text.h"
#include "launcher/observe/views/inspection.h"
#include "launcher/output/report.h"
#include "launcher/state/job_choice.h"
#include "net/packet_socket.h"

namespace hvd::launcher {
namespace {

Status has_ended(const RunningLauncher& launcher) {
  return unavailable(cat("horovodrun with pid ", launcher.pid, " has ended"));
}

Status no_answer(const RunningLauncher& launcher, int error_number) {
  if (error_number == EPIPE || error_number == ECONNRESET) return has_ended(launcher);
  return system_error(cat("horovodrun with pid ", launcher.pid, " does not answer"), error_number);
}

std::string remedy(const std::string& pid) {
  return cat("it may be stopped, as by Ctrl-Z: fg or kill -CONT ", pid, " continues it");
}

}  // namespace

std::vector<RunningLauncher> running_launchers(const std::string& pid) {
  const std::string prefix = inspection_prefix();
  std::vector<RunningLauncher> launchers;
  for (const std::string& name : net::listening_names(prefix)) {
    const std::string rest = name.substr(prefix.size());
    std::string owner = rest.substr(0, rest.find('/'));
    if (!pid.empty() && owner != pid) continue;
    auto found = net::connect_to_listener(name, SOCK_STREAM);
    // Other users can also bind such a name.
    if (!found || !net::is_trusted_peer(found->socket.get())) continue;
    launchers.push_back({std::move(owner), std::move(found->socket)});
  }
  return launchers;
}

Result<std::vector<RunningLauncher>> choose_launchers(const std::string& job,
                                                      std::span<const std::string> arguments) {
  std::vector<RunningLauncher> launchers;
  if (parse_int(job)) launchers = running_launchers(job);  // works without records
  if (!launchers.empty()) return launchers;
  HVD_ASSIGN_OR_RETURN(const std::string pid, launcher_here(job, arguments));
  launchers = running_launchers(pid);
  if (!launchers.empty()) return launchers;
  if (pid.empty()) {
    HVD_RETURN_IF_ERROR(go_to_running_job(arguments));
    return not_found(kNoJob);
  }
  return not_found(
      cat("no horovodrun of yours runs with pid ", printable(pid), "; horovodrun ps lists them"));
}

Status several_run(const std::string& command, const std::vector<RunningLauncher>& launchers,
                   const std::string& more) {
  const auto view = view_state();  // without records, the rows contain only numbers
  std::string rows;
  for (const RunningLauncher& one : launchers) {
    std::string row = cat("\n  ", one.pid);
    const auto read_row = [&](const JobRecord& record) {
      const bool is_it = record.launcher.is_beside(view->observer) &&
                         cat(record.launcher.pid) == one.pid &&
                         view->life_of(record) == JobLife::kRuns;
      if (is_it) row = row_of(record, *view);
    };
    if (view.ok()) std::ranges::for_each(view->records, read_row);
    rows += row;
  }
  return several_run(command, more, rows);
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

void await_answer(const RunningLauncher& launcher) {
  pollfd entry{.fd = launcher.socket.get(), .events = POLLIN, .revents = 0};
  for (bool has_notified = false;;) {
    const int limit = has_notified ? -1 : Deadline::after_seconds(kAnswerSeconds).poll_timeout();
    const int ready = ::poll(&entry, 1, limit);
    if (ready > 0 || (ready < 0 && errno != EINTR)) return;
    if (ready == 0 && is_stopped(parse_int(launcher.pid).value_or(0))) {
      has_notified = true;
      print_message(silence_of(launcher.pid).message());
    }
  }
}

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

std::vector<Result<std::string>> ask_each(const std::vector<RunningLauncher>& launchers,
                                          const std::string& question, double seconds) {
  const size_t count = launchers.size();
  std::vector<Result<std::string>> answers;
  std::vector<std::string> texts(count);
  std::vector<pollfd> open(count);
  size_t left = count;
  for (size_t i = 0; i < count; ++i) {
    answers.emplace_back(silence_of(launchers[i].pid));
    open[i] = {.fd = launchers[i].socket.get(), .events = POLLIN, .revents = 0};
  }
  const auto close = [&](size_t i, Result<std::string> answer) {
    answers[i] = std::move(answer);
    open[i].fd = -1;
    --left;
  };
  for (size_t i = 0; i < count; ++i) {
    if (Status sent = send_question(launchers[i], question); !sent.ok()) close(i, std::move(sent));
  }
  auto deadline = Deadline::after_seconds(seconds);
  while (left > 0 && !deadline.passed()) {
    if (::poll(open.data(), open.size(), deadline.poll_timeout()) <= 0) continue;
    // Data from any launcher restarts the time limit of all, because the launchers may answer one after the other.
    deadline = Deadline::after_seconds(seconds);
    for (size_t i = 0; i < count; ++i) {
      if (open[i].fd < 0 || open[i].revents == 0) continue;
      const auto is_more = read_more(launchers[i], texts[i]);
      if (!is_more.ok())
        close(i, is_more.status());
      else if (!*is_more)
        close(i, texts[i].empty() ? Result<std::string>(has_ended(launchers[i])) : texts[i]);
    }
  }
  return answers;
}

Status silence_of(const std::string& pid) {
  return deadline_exceeded(cat("horovodrun with pid ", pid, " does not answer; ", remedy(pid)));
}

std::string silent_row(const std::string& pid) {
  return cat("horovodrun, pid ", pid, ": no answer; ", remedy(pid), "\n");
}

}  // namespace hvd::launcher
