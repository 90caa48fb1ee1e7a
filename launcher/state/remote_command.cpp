#include "launcher/state/remote_command.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

#include "base/text.h"
#include "launcher/plan/installation.h"

namespace hvd::launcher {

std::vector<std::string> remote_command_line(const JobRecord& record, const std::string& horovodrun,
                                             const std::string& state_folder,
                                             std::vector<std::string> words) {
  words.insert(words.begin(), {"env", cat("HOROVOD_STATE_DIR=", state_folder), horovodrun});
  const std::string& host = record.launcher.host;
  if (!record.allocation.empty() && !record.node.empty()) {
    words.insert(words.begin(), {"srun", cat("--jobid=", record.allocation), "--overlap", "-N1",
                                 "-n1", cat("--nodelist=", record.node), "--"});
    return words;
  }
  // The words of ssh are a line for the shell there.
  std::vector<std::string> quoted;
  quoted.reserve(words.size());
  for (const std::string& word : words) quoted.push_back(shell_quote(word));
  return {"ssh", "-oBatchMode=yes", "-oConnectTimeout=10", "--", host, join(quoted, " ")};
}

Status run_there(const JobRecord& record, const std::string& state_folder,
                 std::vector<std::string> words) {
  std::vector<std::string> line = remote_command_line(record, executable_folder() + "/horovodrun",
                                                      state_folder, std::move(words));
  std::vector<char*> arguments;
  arguments.reserve(line.size() + 1);
  for (std::string& word : line) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  // Standard input belongs to the shell loop that runs the command.
  const int nothing = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
  if (nothing >= 0) ::dup2(nothing, STDIN_FILENO);
  ::execvp(arguments[0], arguments.data());
  return system_error(
      cat("cannot run ", arguments[0], " to reach ", printable(record.launcher.host)), errno);
}

}  // namespace hvd::launcher
