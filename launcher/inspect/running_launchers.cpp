#include "launcher/inspect/running_launchers.h"

#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <utility>

#include "base/text.h"
#include "launcher/inspect/inspection.h"
#include "launcher/state/job_choice.h"
#include "net/abstract_names.h"
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

}  // namespace

std::vector<RunningLauncher> running_launchers(const std::string& pid) {
  const std::string prefix = inspection_prefix();
  std::vector<RunningLauncher> launchers;
  for (const std::string& name : net::listening_names(prefix)) {
    const std::string rest = name.substr(prefix.size());
    std::string owner = rest.substr(0, rest.find('/'));
    if (!pid.empty() && owner != pid) continue;
    auto found = net::connect_to_listener(name, SOCK_STREAM);
    // Every user can bind such a name.
    if (!found || !net::is_trusted_peer(found->socket.get())) continue;
    launchers.push_back({std::move(owner), std::move(found->socket)});
  }
  return launchers;
}

Result<std::vector<RunningLauncher>> choose_launchers(const std::string& job,
                                                      const std::string& command) {
  HVD_ASSIGN_OR_RETURN(const std::string pid, launcher_here(job, command, true));
  std::vector<RunningLauncher> launchers = running_launchers(pid);
  if (!launchers.empty()) return launchers;
  if (pid.empty()) return not_found(kNoJob);
  return not_found(
      cat("no horovodrun of yours runs with pid ", printable(pid), "; horovodrun ps lists them"));
}

Status several_run(const std::string& command, const std::vector<RunningLauncher>& launchers,
                   const std::string& more) {
  std::vector<std::string> pids;
  pids.reserve(launchers.size());
  for (const RunningLauncher& one : launchers) pids.push_back(one.pid);
  return invalid_argument(cat("several are running; write horovodrun ", command, " ID", more,
                              ", with one of ", join(pids, ", ")));
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

}  // namespace hvd::launcher
