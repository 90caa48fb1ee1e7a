// horovod-pmix FOLDER HOST_NAME HOST [standby]: an agent's helper. Writes its library's version, reads the order
// on standard input, writes the ranks' environments, and serves until its standard input ends. In standby, the
// server starts only with the order, which may not come.
#include <fcntl.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <filesystem>

#include "base/text.h"
#include "launcher/pmix/conversation.h"
#include "launcher/pmix/pmix_server.h"

namespace {

using namespace hvd;
using namespace hvd::launcher;

int fail(const Status& status) {
  std::fprintf(stderr, "horovod-pmix: %s\n", status.message().c_str());
  return 1;
}

bool send(const PmixTexts& texts) {
  const std::string bytes = pack_texts(texts);
  size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t size = ::write(STDOUT_FILENO, bytes.data() + done, bytes.size() - done);
    if (size < 0 && errno == EINTR) continue;
    if (size <= 0) return false;
    done += static_cast<size_t>(size);
  }
  return true;
}

// Nothing at the end of the input.
std::optional<PmixTexts> receive() {
  std::string bytes;
  char buffer[4096];
  for (;;) {
    const ssize_t size = ::read(STDIN_FILENO, buffer, sizeof buffer);
    if (size < 0 && errno == EINTR) continue;
    if (size <= 0) return std::nullopt;
    bytes.append(buffer, static_cast<size_t>(size));
    if (auto texts = take_texts(bytes)) return texts;
  }
}

struct Arguments {
  std::string folder, host_name;
  size_t host = 0;
  bool is_standby = false;
};

Status start(const Arguments& arguments) {
  return start_pmix_server(arguments.folder, arguments.host_name, arguments.host);
}

Status serve(const Arguments& arguments) {
  if (!arguments.is_standby) HVD_RETURN_IF_ERROR(start(arguments));
  if (!send({pmix_version()})) return {};
  const auto texts = receive();
  if (!texts) return {};  // the job ended before it began, or needs no PMIx
  HVD_ASSIGN_OR_RETURN(const PmixOrder order, parse_pmix_order(*texts));
  if (arguments.is_standby) HVD_RETURN_IF_ERROR(start(arguments));
  HVD_ASSIGN_OR_RETURN(const auto environments, serve_job(order, arguments.folder));
  if (send(to_texts(environments))) receive();
  return {};
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 4 || argc > 5 || !parse_int(argv[3])) {
    return fail(invalid_argument("horovod-agent starts this program for the ranks of a job"));
  }
  // The ranks go first; this ends when the agent closes its input.
  for (const int number : {SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGPIPE, SIGUSR1, SIGUSR2, SIGXFSZ})
    ::signal(number, SIG_IGN);
  ::prctl(PR_SET_NAME, "horovod-pmix");
  const std::string folder = argv[1];
  if (::mkdir(folder.c_str(), 0700) != 0) return fail(system_error(folder, errno));
  // A later job removes a folder that nobody has locked. Open until the end of the process.
  if (const int lock = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC); lock >= 0) {
    ::flock(lock, LOCK_SH);
  }
  const Status status = serve({.folder = folder,
                               .host_name = argv[2],
                               .host = static_cast<size_t>(*parse_int(argv[3])),
                               .is_standby = argc == 5});
  end_pmix_server();
  std::error_code error;
  std::filesystem::remove_all(folder, error);
  // Threads of abandoned fences end with the process.
  std::fflush(nullptr);
  ::_exit(status.ok() ? 0 : fail(status));
}
