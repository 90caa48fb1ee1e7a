#include "base/machine_identity.h"

#include <sys/stat.h>

#include <cerrno>

#include "base/proc_file.h"
#include "base/text.h"

namespace hvd {

std::string boot_id() {
  return std::string(trim(read_proc_file("/proc/sys/kernel/random/boot_id")));
}

Result<std::string> machine_identity() {
  struct stat space {};
  if (::stat("/proc/self/ns/net", &space) != 0) {
    return system_error("cannot read /proc/self/ns/net", errno);
  }
  return cat(boot_id(), "/", space.st_dev, "/", space.st_ino);
}

}  // namespace hvd
