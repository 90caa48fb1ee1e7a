#include "rendezvous/token_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>

#include "base/text.h"
#include "base/unique_fd.h"

namespace hvd::rendezvous {
namespace {

// What fits a Secret, with room for a line end.
constexpr size_t kMaxTokenFileBytes = 2 * 1024 + 16;
constexpr size_t kLeastDigits = 32;

}  // namespace

Result<Secret> read_token_file(const std::string& path) {
  const std::string shown = cat("token file ", printable(path));
  const auto advice = cat("; make one with: (umask 077; openssl rand -hex 32 > ",
                          shell_quote(path), ")");
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat info {};
  if (!fd || ::fstat(fd.get(), &info) != 0) {
    const int error = errno;
    const Status why = system_error(cat("cannot read ", shown), error);
    return Status(why.code(), why.message() + (error == ENOENT ? advice : ""));
  }
  if (!S_ISREG(info.st_mode)) return invalid_argument(cat(shown, " is not a regular file"));
  if (info.st_mode & 077) {
    constexpr char kOctal[] = "01234567";
    const std::string mode{'0', kOctal[info.st_mode >> 6 & 7], kOctal[info.st_mode >> 3 & 7],
                           kOctal[info.st_mode & 7]};
    return permission_denied(cat(shown, " is open to others (mode ", mode, "); run: chmod 600 ",
                                 shell_quote(path)));
  }
  std::array<char, kMaxTokenFileBytes> buffer;
  const ssize_t size = ::read(fd.get(), buffer.data(), buffer.size());
  if (size < 0) return system_error(cat("cannot read ", shown), errno);
  const std::string_view token = trim({buffer.data(), static_cast<size_t>(size)});
  if (token.empty()) return invalid_argument(cat(shown, " is empty", advice));
  if (token.size() < kLeastDigits) {
    return invalid_argument(cat(shown, " holds fewer than ", kLeastDigits,
                                " characters, which can be guessed", advice));
  }
  auto secret = Secret::from_hex(token);
  if (!secret.ok()) {
    return invalid_argument(cat(shown, " does not hold hexadecimal digits alone", advice));
  }
  return secret;
}

}  // namespace hvd::rendezvous
