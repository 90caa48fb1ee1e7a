// horovod-agent: started on each host of a job, by the launcher and not by hand.
#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdio>
#include <string_view>

#include "base/settings.h"
#include "horovod/version.h"
#include "launcher/agent/agent.h"
#include "launcher/agent/guardian.h"
#include "launcher/agent/link.h"
#include "launcher/agent/poll_loop.h"

namespace {

using namespace hvd;
using namespace hvd::launcher;

int fail(std::string_view sentence) {
  std::fprintf(stderr, "horovod-agent: %.*s\n", static_cast<int>(sentence.size()),
               sentence.data());
  return 2;
}

// Whatever else was inherited (a login shell's, another program's) is not for the job.
void close_inherited() {
  if (::syscall(SYS_close_range, STDERR_FILENO + 1, ~0u, 0) == 0) return;
  const long limit = ::sysconf(_SC_OPEN_MAX);
  for (int fd = STDERR_FILENO + 1; fd < (limit > 0 && limit < 65536 ? limit : 65536); ++fd) {
    ::close(fd);
  }
}

std::string file_name(std::string_view path) {
  return std::string(path.substr(path.rfind('/') + 1));
}

int run_agent(std::string build) {
  auto link = stream_link();
  if (!link.ok()) return fail(link.error().message());
  auto loop = PollLoop::make();
  if (!loop.ok()) return fail(loop.error().message());
  return Agent(std::move(*loop), std::move(*link), std::move(build), environment()).run();
}

}  // namespace

int main(int argc, char** argv) {
  const std::string_view argument = argc > 1 ? argv[1] : "";
  if (argument == "--version") {
    std::printf("horovod-agent %s\n", HVD_VERSION);
    return 0;
  }
  if (argc > 1) return fail("unknown argument; horovodrun starts this program, nobody else need");
  if (::isatty(STDIN_FILENO)) {
    return fail("this program starts and watches the ranks of a job on one host for horovodrun, "
                "which starts it by itself");
  }
  close_inherited();
  return run_guarded([build = file_name(argv[0])] { return run_agent(build); });
}
