#include "base/process/pipe.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

#include "base/check.h"

namespace hvd {

Status move_above_standard(UniqueFd& descriptor) {
  if (descriptor.get() > STDERR_FILENO) return {};
  const int moved = ::fcntl(descriptor.get(), F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
  if (moved < 0) return system_error("cannot duplicate a descriptor", errno);
  descriptor.reset(moved);
  return {};
}

Result<Pipe> open_pipe() {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return system_error("cannot make a pipe", errno);
  Pipe pipe{UniqueFd(ends[0]), UniqueFd(ends[1])};
  HVD_RETURN_IF_ERROR(move_above_standard(pipe.read));
  HVD_RETURN_IF_ERROR(move_above_standard(pipe.write));
  return pipe;
}

void open_standard_streams() {
  for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; ++fd) {
    // open() takes the lowest free number, which is `fd`, since all lower numbers are open.
    if (::fcntl(fd, F_GETFD) < 0) (void)::open("/dev/null", O_RDWR);
  }
}

}  // namespace hvd
