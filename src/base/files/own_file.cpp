#include "base/files/own_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "base/text.h"

namespace hvd {
namespace {

constexpr mode_t kFileMode = 0666;
constexpr mode_t kFolderMode = 0777;

Status failed(int folder, const std::string& name, const std::string& shown) {
  const int error = errno;
  struct stat about {};
  const bool is_link =
      ::fstatat(folder, name.c_str(), &about, AT_SYMLINK_NOFOLLOW) == 0 && S_ISLNK(about.st_mode);
  Status status = permission_denied(
      cat("cannot write ", shown,
          ": it is a symbolic link, which another user may have made; remove it, or name another "
          "place"));
  if (!is_link) status = system_error(cat("cannot write ", shown), error);
  errno = is_link ? ELOOP : error;
  return status;
}

bool is_trusted(const struct stat& about) {
  return about.st_uid == ::geteuid() || about.st_uid == 0;
}

Status check_owner(const UniqueFd& opened, const std::string& shown) {
  struct stat about {};
  if (::fstat(opened.get(), &about) != 0) {
    return system_error(cat("cannot write ", shown), errno);
  }
  if (is_trusted(about)) return {};
  Status status =
      permission_denied(cat("cannot write ", shown, ": it belongs to another user, of uid ",
                            about.st_uid, "; name another place"));
  errno = EPERM;
  return status;
}

// Returns the path of a link's target. Empty if the link belongs neither to this user nor to root.
std::string target_of(int folder, const std::string& name) {
  const UniqueFd link(::openat(folder, name.c_str(), O_PATH | O_NOFOLLOW | O_CLOEXEC));
  struct stat about {};
  if (!link || ::fstat(link.get(), &about) != 0 || !is_trusted(about)) return {};
  char target[4096];
  const ssize_t size = ::readlinkat(link.get(), "", target, sizeof target);
  if (size <= 0 || size == sizeof target) return {};
  const std::string path(target, static_cast<size_t>(size));
  return path[0] == '/' ? path : name.substr(0, name.rfind('/') + 1) + path;
}

Result<UniqueFd> open_at(int folder, const std::string& name, int flags, const std::string& shown) {
  const int access = (flags & O_ACCMODE) == O_RDWR ? O_RDWR : O_WRONLY;
  // No O_TRUNC: the file is truncated after the check of its owner.
  const int how = access | (flags & O_APPEND) | O_CREAT | O_NONBLOCK | O_CLOEXEC;
  // The owner of a new file is not checked: a file server may assign the file to another user.
  UniqueFd file(::openat(folder, name.c_str(), how | O_EXCL, kFileMode));
  if (file) return file;
  file.reset(::openat(folder, name.c_str(), how | O_NOFOLLOW, kFileMode));
  if (!file && errno == ELOOP) {
    const std::string target = target_of(folder, name);
    errno = ELOOP;
    if (!target.empty()) file.reset(::openat(folder, target.c_str(), how, kFileMode));
  }
  if (!file) return failed(folder, name, shown);
  HVD_RETURN_IF_ERROR(check_owner(file, shown));
  ::fcntl(file.get(), F_SETFL, flags & O_APPEND);  // a write may now wait for a FIFO's reader
  struct stat about {};
  const bool is_cut =
      (flags & O_TRUNC) != 0 && ::fstat(file.get(), &about) == 0 && S_ISREG(about.st_mode);
  if (is_cut && ::ftruncate(file.get(), 0) != 0) {
    return system_error(cat("cannot write ", shown), errno);
  }
  return file;
}

}  // namespace

Result<UniqueFd> open_own_file(const std::string& path, int flags, std::string_view what) {
  return open_at(AT_FDCWD, path, flags, cat(what, path));
}

Result<UniqueFd> open_own_file_in(const UniqueFd& folder, const std::string& name, int flags,
                                  const std::string& path) {
  return open_at(folder.get(), name, flags, cat("to ", path));
}

Result<UniqueFd> open_own_folder(const std::string& path) {
  const bool is_new = ::mkdir(path.c_str(), kFolderMode) == 0;
  if (!is_new && errno != EEXIST) return system_error(cat("cannot make directory ", path), errno);
  UniqueFd folder(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!folder) return failed(AT_FDCWD, path, cat("to ", path));
  if (!is_new) HVD_RETURN_IF_ERROR(check_owner(folder, cat("to ", path)));
  return folder;
}

}  // namespace hvd
