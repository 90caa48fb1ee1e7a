#include "launcher/inspect/look_inside.h"

#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <fstream>
#include <vector>

#include "base/check.h"
#include "base/secrets/secret.h"
#include "base/text.h"
#include "launcher/inspect/inspection.h"
#include "launcher/output/report.h"
#include "launcher/protocol/protocol.h"
#include "net/endpoint.h"
#include "net/packet_socket.h"
#include "net/socket_address.h"

namespace hvd::launcher {
namespace {

// Their process ids, by the names of their sockets.
std::vector<std::string> running_launchers() {
  const std::string prefix = inspection_prefix();
  std::vector<std::string> pids;
  std::ifstream table("/proc/net/unix");
  for (std::string line; std::getline(table, line);) {
    const size_t at = line.find(" " + prefix);
    // Only those that listen are in state 01; a connection has the same name.
    if (at == std::string::npos || line.find(" 00010000 ") == std::string::npos) continue;
    pids.push_back(line.substr(at + 1 + prefix.size()));
  }
  return pids;
}

Result<UniqueFd> send_question(const std::string& pid, const std::string& question) {
  HVD_ASSIGN_OR_RETURN(const net::Endpoint endpoint,
                       net::parse_endpoint(cat("unix:", inspection_prefix(), pid)));
  const auto address = *net::numeric_address(endpoint);
  UniqueFd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (::connect(socket.get(), address.get(), address.size) != 0) {
    return not_found(
        cat("no horovodrun of yours runs with pid ", printable(pid), "; horovodrun ps lists them"));
  }
  if (!net::is_trusted_peer(socket.get()))
    return permission_denied("another user has taken its name");
  const std::string request = question + "\n";
  for (size_t sent = 0; sent < request.size();) {
    const ssize_t size =
        ::send(socket.get(), request.data() + sent, request.size() - sent, MSG_NOSIGNAL);
    if (size < 0) return system_error("the launcher does not answer", errno);
    sent += static_cast<size_t>(size);
  }
  return socket;
}

// False at the end.
Result<bool> read_more(const UniqueFd& socket, std::string& text) {
  std::array<char, 64 << 10> buffer;
  ssize_t size = 0;
  do {
    size = ::read(socket.get(), buffer.data(), buffer.size());
  } while (size < 0 && errno == EINTR);
  if (size < 0) return system_error("the launcher does not answer", errno);
  text.append(buffer.data(), static_cast<size_t>(size));
  return size > 0;
}

Result<std::string> ask(const std::string& pid, const std::string& question) {
  HVD_ASSIGN_OR_RETURN(const UniqueFd socket, send_question(pid, question));
  std::string text;
  for (;;) {
    HVD_ASSIGN_OR_RETURN(const bool is_more, read_more(socket, text));
    if (!is_more) return text;
  }
}

// 0 or an exit code. At once, whatever the stream is.
int show(const Said& said) {
  FILE* const stream = said.is_error != 0 ? stderr : stdout;
  const bool is_written =
      std::fwrite(said.bytes.data(), 1, said.bytes.size(), stream) == said.bytes.size();
  return is_written && std::fflush(stream) == 0 ? 0 : kExitLauncher;
}

// Until the command has ended: what it says, as it comes.
int show_records(const UniqueFd& socket) {
  std::string bytes;
  for (;;) {
    const auto message = take_record(bytes);
    if (!message.ok()) return refuse(message.status());
    if (!*message) {
      const auto is_more = read_more(socket, bytes);
      if (!is_more.ok() || !*is_more) {
        return refuse(aborted("the job has ended before the command did"));
      }
    } else if (const auto* said = std::get_if<Said>(&**message)) {
      if (const int code = show(*said); code != 0) return code;
    } else if (const auto* ran = std::get_if<Ran>(&**message)) {
      std::fputs(ran->why.c_str(), stderr);
      return ran->code;
    }
  }
}

constexpr const char* kNobody = "no horovodrun of yours is running on this machine";

Status several(const std::string& question, const std::vector<std::string>& pids) {
  return invalid_argument(cat("several are running; write horovodrun ", question,
                              " PID, with one of ", join(pids, ", ")));
}

int run_beside_ranks(std::span<const std::string> words) {
  Run order;
  std::string pid;
  while (!words.empty() && order.command.empty()) {
    const std::string word = words[0];
    words = words.subspan(1);
    constexpr std::string_view kRank = "--rank";
    if (pid.empty() && parse_int(word)) {
      pid = word;
    } else if (word == kRank && !words.empty()) {
      order.ranks = words[0];
      words = words.subspan(1);
    } else if (word == kRank) {
      return refuse(invalid_argument("--rank needs a value, as in --rank 0,3-5"));
    } else if (word.starts_with(cat(kRank, "="))) {
      order.ranks = word.substr(kRank.size() + 1);
    } else if (word.starts_with('-') && word != "--") {
      return refuse(invalid_argument(
          cat("horovodrun exec has no flag '", printable(word), "'; it has --rank LIST")));
    } else {
      if (word != "--") order.command.push_back(word);
      order.command.insert(order.command.end(), words.begin(), words.end());
      break;
    }
  }
  if (order.command.empty()) {
    return refuse(
        invalid_argument("write horovodrun exec [PID of a launcher] [--rank 0,3-5] COMMAND; "
                         "to run a program that is called exec, put flags before it"));
  }
  const std::vector<std::string> pids = running_launchers();
  if (pid.empty() && pids.empty()) return refuse(not_found(kNobody));
  if (pid.empty() && pids.size() > 1) return refuse(several("exec", pids));
  const auto socket =
      send_question(pid.empty() ? pids[0] : pid, cat("exec ", to_hex(encode(order))));
  return socket.ok() ? show_records(*socket) : refuse(socket.status());
}

}  // namespace

bool asks_about_jobs(std::span<const std::string> arguments) {
  return !arguments.empty() &&
         (arguments[0] == "ps" || arguments[0] == "stack" || arguments[0] == "exec");
}

int answer_about_jobs(std::span<const std::string> arguments) {
  const std::string& question = arguments[0];
  if (question == "exec") return run_beside_ranks(arguments.subspan(1));
  std::vector<std::string> pids = running_launchers();
  if (arguments.size() > 2 || (arguments.size() == 2 && !parse_int(arguments[1]))) {
    return refuse(invalid_argument(cat("write horovodrun ", question,
                                       " [PID of a launcher]; to run "
                                       "the program ",
                                       question, ", put flags before it")));
  }
  if (arguments.size() == 2) pids = {arguments[1]};
  if (pids.empty()) return refuse(not_found(kNobody));
  if (pids.size() > 1 && question == "stack") return refuse(several(question, pids));
  for (const std::string& pid : pids) {
    const auto text = ask(pid, question);
    if (!text.ok()) return refuse(text.status());
    if (std::fputs(text->c_str(), stdout) < 0) return kExitLauncher;
  }
  return std::fflush(stdout) == 0 ? 0 : kExitLauncher;
}

}  // namespace hvd::launcher
