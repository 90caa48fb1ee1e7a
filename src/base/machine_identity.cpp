#include "base/machine_identity.h"

#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>

#include "base/proc_file.h"
#include "base/text.h"

namespace hvd {

std::string own_host_name() {
  std::array<char, 256> name{};
  return ::gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "";
}

std::string boot_id() {
  return std::string(trim(read_proc_file("/proc/sys/kernel/random/boot_id")));
}

std::string host_identity() {
  std::string identity = boot_id();
  for (const char* path : {"/proc/self/ns/pid", "/proc/self/ns/mnt"}) {
    struct stat space {};
    if (identity.empty() || ::stat(path, &space) != 0) return {};
    identity += cat("/", space.st_dev, "/", space.st_ino);
  }
  return identity;
}

Result<std::string> machine_identity() {
  struct stat space {};
  if (::stat("/proc/self/ns/net", &space) != 0) {
    return system_error("cannot read /proc/self/ns/net", errno);
  }
  return cat(boot_id(), "/", space.st_dev, "/", space.st_ino);
}

}  // namespace hvd
