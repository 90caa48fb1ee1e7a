#include "launcher/plan/text_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

#include "base/text.h"
#include "base/unique_fd.h"

namespace hvd::launcher {
namespace {

constexpr size_t kMaxSize = 64 << 20;

}  // namespace

Result<std::string> read_text_file(const std::string& path, std::string_view what) {
  const std::string cannot = path == "-" ? cat("cannot read ", what, " from standard input")
                                         : cat("cannot read ", what, " ", path);
  const UniqueFd file(path == "-" ? ::fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 3)
                                  : ::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file) return system_error(cannot, errno);
  std::string text;
  char buffer[65536];
  for (;;) {
    const ssize_t size = ::read(file.get(), buffer, sizeof buffer);
    if (size < 0 && errno == EINTR) continue;
    if (size < 0) return system_error(cannot, errno);
    if (size == 0) return text;
    text.append(buffer, static_cast<size_t>(size));
    if (text.size() > kMaxSize) {
      return invalid_argument(cat(cannot, ": it is larger than ", kMaxSize >> 20, " MiB"));
    }
  }
}

}  // namespace hvd::launcher
