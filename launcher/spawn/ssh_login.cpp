#include "launcher/spawn/ssh_login.h"

#include <pwd.h>
#include <unistd.h>

#include "base/settings.h"

namespace hvd::launcher {

SshUser SshUser::current() {
  SshUser user;
  if (const passwd* entry = ::getpwuid(::geteuid()); entry != nullptr) {
    user.name = entry->pw_name;
    user.home = entry->pw_dir;
  } else {
    user.name = std::to_string(::geteuid());
    user.home = environment_variable("HOME").value_or("/");
  }
  user.directory = user.home + "/.ssh";
  user.system_config = "/etc/ssh/ssh_config";
  return user;
}

}  // namespace hvd::launcher
