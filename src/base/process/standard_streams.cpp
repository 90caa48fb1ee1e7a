#include "base/process/standard_streams.h"

#include <fcntl.h>
#include <unistd.h>

namespace hvd {

void open_standard_streams() {
  for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; ++fd) {
    // The lowest free number is the one that is looked at, since those below are open by now.
    if (::fcntl(fd, F_GETFD) < 0) (void)::open("/dev/null", O_RDWR);
  }
}

}  // namespace hvd
