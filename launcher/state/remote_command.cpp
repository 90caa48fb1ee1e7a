#include "launcher/state/remote_command.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

#include "base/settings.h"
#include "base/text.h"
#include "launcher/plan/installation.h"

namespace hvd::launcher {
namespace {

// The environment of a command that another machine has sent.
constexpr char kSent[] = "HOROVOD_COMMAND_SENT";

}  // namespace

std::vector<std::string> remote_command_line(const JobRecord& record, const std::string& horovodrun,
                                             const std::string& state_folder,
                                             std::vector<std::string> words, bool on_terminal) {
  words.insert(words.begin(),
               {"env", cat("HOROVOD_STATE_DIR=", state_folder), cat(kSent, "=1"), horovodrun});
  const std::string& host = record.launcher.host;
  if (!record.allocation.empty() && !record.node.empty()) {
    words.insert(words.begin(), {"srun", cat("--jobid=", record.allocation), "--overlap",
                                 "--mpi=none", "-N1", "-n1", cat("--nodelist=", record.node),
                                 on_terminal ? "--pty" : "--quit-on-interrupt", "--"});
    return words;
  }
  // The words of ssh are a line for the shell there.
  std::vector<std::string> quoted;
  quoted.reserve(words.size());
  for (const std::string& word : words) quoted.push_back(shell_quote(word));
  return {"ssh", on_terminal ? "-t" : "-T", "-oBatchMode=yes", "-oConnectTimeout=10", "--",
          host,  join(quoted, " ")};
}

Status run_there(const JobRecord& record, const StateView& view, std::vector<std::string> words) {
  // Behind ssh or srun, another host's name would lead to yet another machine.
  if (environment_variable(kSent) || record.launcher.host == view.observer.host) {
    return unavailable(cat(described(record, view),
                           " runs in a container, or on another machine than the one of its name; "
                           "run horovodrun ",
                           words[0], " there"));
  }
  // The keys of top come from a terminal.
  const bool on_terminal =
      words[0] == "top" && ::isatty(STDIN_FILENO) == 1 && ::isatty(STDOUT_FILENO) == 1;
  std::vector<std::string> line = remote_command_line(record, executable_folder() + "/horovodrun",
                                                      view.path, std::move(words), on_terminal);
  std::vector<char*> arguments;
  arguments.reserve(line.size() + 1);
  for (std::string& word : line) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  // Standard input belongs to the shell loop that runs the command.
  const int nothing = on_terminal ? -1 : ::open("/dev/null", O_RDONLY | O_CLOEXEC);
  if (nothing >= 0) ::dup2(nothing, STDIN_FILENO);
  ::execvp(arguments[0], arguments.data());
  return system_error(
      cat("cannot run ", arguments[0], " to reach ", printable(record.launcher.host)), errno);
}

}  // namespace hvd::launcher
