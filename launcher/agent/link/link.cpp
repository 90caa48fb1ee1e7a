#include "launcher/agent/link/link.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

#include "base/check.h"
#include "base/text.h"

namespace hvd::launcher {

namespace {

Result<UniqueFd> duplicate(int fd) {
  UniqueFd copy(::fcntl(fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1));
  if (!copy) return system_error(cat("descriptor ", fd, " cannot carry the link"), errno);
  const int flags = ::fcntl(copy.get(), F_GETFL);
  if (flags < 0 || ::fcntl(copy.get(), F_SETFL, flags | O_NONBLOCK) != 0) {
    return system_error(cat("descriptor ", fd, " cannot carry the link"), errno);
  }
  return copy;
}

}  // namespace

Result<Link> taken_over(int input, int output) {
  Link link;
  HVD_ASSIGN_OR_RETURN(link.input, duplicate(input));
  HVD_ASSIGN_OR_RETURN(link.output, duplicate(output));
  return link;
}

Result<Link> stream_link() {
  auto link = taken_over(STDIN_FILENO, STDOUT_FILENO);
  if (!link.ok()) return link;
  const UniqueFd null(::open("/dev/null", O_RDWR | O_CLOEXEC));
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO}) {
    if (null)
      ::dup2(null.get(), fd);
    else
      ::close(fd);  // for a root directory without /dev
  }
  return link;
}

}  // namespace hvd::launcher
