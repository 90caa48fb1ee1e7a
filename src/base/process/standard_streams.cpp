#include "base/process/standard_streams.h"

#include <fcntl.h>
#include <unistd.h>

namespace hvd {

void open_standard_streams() {
  for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; ++fd) {
    // open() takes the lowest free number, which is `fd`, since all lower numbers are open.
    if (::fcntl(fd, F_GETFD) < 0) (void)::open("/dev/null", O_RDWR);
  }
}

}  // namespace hvd
