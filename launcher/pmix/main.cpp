// horovod-pmix FOLDER: an agent's helper. Reads the order on standard input, writes its addresses for PMIx and PMI-1,
// then a message for each rank that connects and for each fence. Serves until its standard input ends.
#include <sys/prctl.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>

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

// Returns the order; nullopt at the end of the input.
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

Status serve(const std::string& folder) {
  const auto texts = receive();
  if (!texts) return {};  // the job has ended
  HVD_ASSIGN_OR_RETURN(const PmixOrder order, parse_pmix_order(*texts));
  HVD_RETURN_IF_ERROR(start_pmix_server(order, folder));
  receive();
  end_pmix_server();
  return {};
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    return fail(invalid_argument("horovod-agent starts this program for the ranks of a job"));
  }
  // Ignore signals: ranks end first, and this process ends when the agent closes its input.
  for (const int number : {SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGPIPE, SIGUSR1, SIGUSR2, SIGXFSZ})
    ::signal(number, SIG_IGN);
  ::prctl(PR_SET_NAME, "horovod-pmix");
  const Status status = serve(argv[1]);
  // Exit without waiting for threads of abandoned fences.
  std::fflush(nullptr);
  ::_exit(status.ok() ? 0 : fail(status));
}
