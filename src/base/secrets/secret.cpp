#include "base/secrets/secret.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <openssl/crypto.h>
#include <poll.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <array>
#include <cerrno>

#include "base/check.h"
#include "base/text.h"
#include "base/unique_fd.h"

namespace hvd {
namespace {

// The digits of the longest Secret, and space for a line end.
constexpr size_t kMaxTokenBytes = 2 * 1024 + 16;
constexpr size_t kLeastDigits = 32;

// An open file, and its name in errors.
struct OpenedFile {
  int fd;
  std::string shown;
  std::string quoted;  // the name, quoted for the shell
};

bool is_anonymous_pipe(const OpenedFile& source, const struct stat& info) {
  struct statfs system {};
  return S_ISFIFO(info.st_mode) && ::fstatfs(source.fd, &system) == 0 &&
         system.f_type == PIPEFS_MAGIC;
}

std::string octal(mode_t mode) {
  std::string text = "0";
  for (int shift = 6; shift >= 0; shift -= 3) text += static_cast<char>('0' + (mode >> shift & 7));
  return text;
}

Status check_private(const OpenedFile& source, const struct stat& info) {
  const mode_t mode = info.st_mode;
  const bool is_own = info.st_uid == ::geteuid(), is_roots = info.st_uid == 0;
  if ((is_own && (mode & 077) == 0) || (is_roots && (mode & 027) == 0)) return {};
  if (!is_own && !is_roots) {
    return permission_denied(cat(source.shown, " belongs to user ", info.st_uid,
                                 ", and this program "
                                 "runs as user ",
                                 ::geteuid(),
                                 "; give a copy that belongs to this "
                                 "user, with mode 0600"));
  }
  return permission_denied(
      cat(source.shown, " is open to others (mode ", octal(mode), "); run: chmod ",
          is_own ? "600 " : "640 ", source.quoted,
          is_roots ? " (in a Kubernetes Secret volume: defaultMode: 0440)" : ""));
}

Result<std::string> read_all(const OpenedFile& source, bool is_pipe, size_t limit,
                             Deadline deadline) {
  std::string text;
  std::array<char, 4096> buffer;
  for (;;) {
    pollfd poll{.fd = source.fd, .events = POLLIN, .revents = 0};
    const int ready = is_pipe ? ::poll(&poll, 1, deadline.poll_timeout()) : 1;
    if (ready == 0) {
      return deadline_exceeded(cat(source.shown,
                                   " is a pipe that was not closed by its writers within ",
                                   kPipeSeconds, " s; close each copy of its write end"));
    }
    const ssize_t size = ready < 0 ? -1 : ::read(source.fd, buffer.data(), buffer.size());
    if (size < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (size < 0) return system_error(cat("cannot read ", source.shown), errno);
    if (size == 0) return text;
    text.append(buffer.data(), static_cast<size_t>(size));
    if (text.size() > limit) {
      return invalid_argument(cat(source.shown, " holds more than ", limit, " bytes"));
    }
  }
}

Result<std::string> read_private(const OpenedFile& source, size_t limit, Deadline deadline) {
  struct stat info {};
  if (::fstat(source.fd, &info) != 0) {
    return system_error(cat("cannot read ", source.shown), errno);
  }
  const bool is_pipe = is_anonymous_pipe(source, info);
  if (!is_pipe && !S_ISREG(info.st_mode)) {
    return invalid_argument(cat(source.shown, " is not a regular file or an anonymous pipe"));
  }
  if (!is_pipe) HVD_RETURN_IF_ERROR(check_private(source, info));
  return read_all(source, is_pipe, limit, deadline);
}

Result<Secret> to_secret(std::string_view text, const std::string& shown,
                         const std::string& advice) {
  const std::string_view token = trim(text);
  if (token.empty()) return invalid_argument(cat(shown, " is empty", advice));
  if (token.size() < kLeastDigits) {
    return invalid_argument(cat(shown, " holds fewer than ", kLeastDigits,
                                " characters, which can be guessed", advice));
  }
  auto secret = Secret::from_hex(token);
  if (secret.ok()) return secret;
  return invalid_argument(cat(shown, " does not hold hexadecimal digits alone", advice));
}

Result<Secret> read_token_fd(int fd, Deadline deadline) {
  const OpenedFile source{fd, cat("token descriptor ", fd), "that file"};
  const auto text = read_private(source, kMaxTokenBytes, deadline);
  if (fd > STDERR_FILENO) ::close(fd);
  if (!text.ok()) return text.status();
  return to_secret(*text, source.shown, "; make a token by: openssl rand -hex 32");
}

Result<Secret> read_token_file(const std::string& path, Deadline deadline) {
  const std::string shown = cat("token file ", printable(path));
  const std::string advice =
      cat("; make one with: (umask 077; openssl rand -hex 32 > ", shell_quote(path), ")");
  const auto text = read_private_file(path, shown, kMaxTokenBytes, deadline);
  if (text.ok()) return to_secret(*text, shown, advice);
  const bool is_missing = ::access(path.c_str(), F_OK) != 0 && errno == ENOENT;
  return Status(text.status().code(), cat(text.status().message(), is_missing ? advice : ""));
}

}  // namespace

Secret Secret::random() {
  Bytes bytes(32);
  fill_random(bytes);
  return Secret(std::move(bytes));
}

Result<Secret> Secret::from_bytes(ByteView bytes) {
  if (bytes.empty()) return invalid_argument("the secret is empty");
  if (bytes.size() > 1024) return invalid_argument("the secret is longer than 1024 bytes");
  return Secret(Bytes(bytes.begin(), bytes.end()));
}

Result<Secret> Secret::from_hex(std::string_view hex) {
  auto bytes = hvd::from_hex(hex);
  if (!bytes.ok()) return invalid_argument("the secret is not written in hexadecimal digits");
  return from_bytes(*bytes);
}

Secret::~Secret() {
  if (!bytes_.empty()) OPENSSL_cleanse(bytes_.data(), bytes_.size());
}

std::string Secret::hex() const { return to_hex(bytes_); }

Digest Secret::sign(ByteView message) const { return HmacKey(bytes_).sign(message); }

Digest Secret::derive(std::string_view purpose) const {
  const Digest extracted = HmacKey(Digest{}).sign(bytes_);
  constexpr std::string_view kFirstBlock("\x01", 1);
  return HmacKey(extracted).sign({purpose, kFirstBlock});
}

bool equal_in_constant_time(ByteView a, ByteView b) {
  return a.size() == b.size() && CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

void fill_random(std::span<std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t count = ::getrandom(bytes.data(), bytes.size(), 0);
    if (count < 0 && errno == EINTR) continue;
    HVD_CHECK(count > 0);
    bytes = bytes.subspan(static_cast<size_t>(count));
  }
}

void write_hex(ByteView bytes, char* digits) {
  constexpr char kDigits[] = "0123456789abcdef";
  for (const std::byte byte : bytes) {
    *digits++ = kDigits[std::to_integer<unsigned>(byte) >> 4];
    *digits++ = kDigits[std::to_integer<unsigned>(byte) & 15];
  }
}

std::string to_hex(ByteView bytes) {
  std::string hex;
  hex.resize(2 * bytes.size());
  write_hex(bytes, hex.data());
  return hex;
}

std::string random_hex(size_t bytes) {
  Bytes random(bytes);
  fill_random(random);
  return to_hex(random);
}

Result<Bytes> from_hex(std::string_view hex) {
  const auto digit = [](char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return -1;
  };
  if (hex.size() % 2 != 0) return invalid_argument("an odd number of hexadecimal digits");
  Bytes bytes;
  bytes.reserve(hex.size() / 2);
  for (size_t i = 0; i < hex.size(); i += 2) {
    const int high = digit(hex[i]), low = digit(hex[i + 1]);
    if (high < 0 || low < 0) return invalid_argument("not a hexadecimal digit");
    bytes.push_back(static_cast<std::byte>(high << 4 | low));
  }
  return bytes;
}

Result<std::string> read_private_file(const std::string& path, std::string_view shown, size_t limit,
                                      Deadline deadline) {
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!fd) return system_error(cat("cannot read ", shown), errno);
  return read_private({fd.get(), std::string(shown), shell_quote(path)}, limit, deadline);
}

Result<Secret> read_token(const std::string& path, std::optional<int> fd, Deadline deadline) {
  if (path.empty() == !fd) {
    return invalid_argument(
        "the job's token comes from --token-file FILE or from --token-fd N; "
        "give one of them");
  }
  return fd ? read_token_fd(*fd, deadline) : read_token_file(path, deadline);
}

Status create_token_file(const std::string& path) {
  const std::string context = cat("cannot create token file ", printable(path));
  const size_t slash = path.rfind('/');
  const std::string folder = slash == std::string::npos ? "." : path.substr(0, slash + 1);
  const std::string name = slash == std::string::npos ? path : path.substr(slash + 1);
  const UniqueFd directory(::open(folder.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  struct stat info {};
  if (!directory || ::fstat(directory.get(), &info) != 0) return system_error(context, errno);
  if ((info.st_uid != ::geteuid() && info.st_uid != 0) || (info.st_mode & 022) != 0) {
    return permission_denied(cat(context, ": other users can write to its directory ",
                                 printable(folder), " (owner ", info.st_uid, ", mode ",
                                 octal(info.st_mode), "); name a file in a directory of your own"));
  }
  const UniqueFd file(
      ::openat(directory.get(), name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (!file) return system_error(context, errno);
  const std::string line = Secret::random().hex() + "\n";
  if (::write(file.get(), line.data(), line.size()) == static_cast<ssize_t>(line.size())) return {};
  const int error = errno;
  ::unlinkat(directory.get(), name.c_str(), 0);
  return system_error(context, error);
}

}  // namespace hvd
