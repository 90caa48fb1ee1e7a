#include "base/machine_identity.h"

#include <sys/stat.h>

#include <cerrno>
#include <fstream>

#include "base/text.h"

namespace hvd {

Result<std::string> machine_identity() {
  std::string boot;
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::getline(file, boot);
  struct stat space {};
  if (::stat("/proc/self/ns/net", &space) != 0) {
    return system_error("cannot read /proc/self/ns/net", errno);
  }
  return cat(boot, "/", space.st_dev, "/", space.st_ino);
}

}  // namespace hvd
