#include "launcher/agent/pmix/lone_mpi.h"

#include <fstream>
#include <utility>

#include "base/text.h"

namespace hvd::launcher {
namespace {

constexpr double kFirstSeconds = 0.25;
// A process has thousands of lines in its maps, and the signs of a large host come all at once.
constexpr int kMostSigns = 8;

}  // namespace

std::string mpi_library_in(pid_t pid) {
  std::ifstream maps(cat("/proc/", pid, "/maps"));
  for (std::string line; std::getline(maps, line);) {
    const size_t slash = line.rfind('/');
    if (slash == std::string::npos) continue;
    const std::string_view name = std::string_view(line).substr(slash + 1);
    // Spectrum MPI and Cray MPICH have libmpi_ibm.so and libmpi_cray.so.
    if (name.starts_with("libmpi.so") || name.starts_with("libmpi_") ||
        name.starts_with("libmpich.so")) {
      return line.substr(line.find('/'));
    }
  }
  return {};
}

void LoneMpi::begin() {
  pause_ = kFirstSeconds;
  next_ = Deadline::after_seconds(pause_);
}

void LoneMpi::on_sign(pid_t pid) {
  if (signs_ < kMostSigns && !next_.is_never()) {
    ++signs_;
    look(pid);
  }
}

void LoneMpi::on_deadline(pid_t pid) {
  pause_ *= 2;
  next_ = Deadline::after_seconds(pause_);
  look(pid);
}

void LoneMpi::look(pid_t pid) {
  const std::string library = pid > 0 ? mpi_library_in(pid) : "";
  if (library.empty()) return;
  next_ = Deadline::never();
  on_found_(library);
}

}  // namespace hvd::launcher
