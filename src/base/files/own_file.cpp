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

Status check_owner(const UniqueFd& opened, const std::string& shown) {
  struct stat about {};
  if (::fstat(opened.get(), &about) != 0) {
    return system_error(cat("cannot write ", shown), errno);
  }
  if (about.st_uid == ::geteuid() || about.st_uid == 0) return {};
  Status status =
      permission_denied(cat("cannot write ", shown, ": it belongs to another user, of uid ",
                            about.st_uid, "; name another place"));
  errno = EPERM;
  return status;
}

Result<UniqueFd> open_at(int folder, const std::string& name, int flags, const std::string& shown) {
  const int access = (flags & O_ACCMODE) == O_RDWR ? O_RDWR : O_WRONLY;
  // Emptied after the look at its owner.
  const int how = access | (flags & O_APPEND) | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC;
  UniqueFd file(::openat(folder, name.c_str(), how, kFileMode));
  if (!file) return failed(folder, name, shown);
  HVD_RETURN_IF_ERROR(check_owner(file, shown));
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
  if (::mkdir(path.c_str(), kFolderMode) != 0 && errno != EEXIST) {
    return system_error(cat("cannot make directory ", path), errno);
  }
  UniqueFd folder(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!folder) return failed(AT_FDCWD, path, cat("to ", path));
  HVD_RETURN_IF_ERROR(check_owner(folder, cat("to ", path)));
  return folder;
}

}  // namespace hvd
