#include <unistd.h>

#include <cerrno>
#include <climits>

#include "base/text.h"
#include "launcher/agent/cipher.h"

namespace hvd::launcher {

Result<std::unique_ptr<Cipher>> make_cipher(const std::string&, const std::string&) {
  return Status(Code::kUnimplemented, "this program speaks no TLS; start horovod-agent-tls");
}

Status speak_tls(char** command) {
  char self[PATH_MAX];
  const ssize_t size = ::readlink("/proc/self/exe", self, sizeof self);
  const std::string path = cat(std::string_view(self, size > 0 ? static_cast<size_t>(size) : 0), "-tls");
  ::execv(path.c_str(), command);
  return system_error(cat("--join https://… needs ", path, ", which speaks TLS; put it beside this "
                          "program"), errno);
}

}  // namespace hvd::launcher
