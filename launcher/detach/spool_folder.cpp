#include "launcher/detach/spool_folder.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <ctime>

#include "base/text.h"

namespace hvd::launcher {
namespace {

constexpr int64_t kKeptSeconds = 7 * 24 * 3600;

constexpr int64_t kSecond = 1'000'000'000;

int64_t changed_at(const struct stat& status) {
  return status.st_mtim.tv_sec * kSecond + status.st_mtim.tv_nsec;
}

}  // namespace

int64_t last_change(const UniqueFd& spool) {
  struct stat status {};
  int64_t last = ::fstat(spool.get(), &status) == 0 ? changed_at(status) : 0;
  for (const std::string& name : entries_of(spool)) {
    if (::fstatat(spool.get(), name.c_str(), &status, AT_SYMLINK_NOFOLLOW) == 0)
      last = std::max(last, changed_at(status));
  }
  return last;
}

std::string spool_folder_path(const std::string& parent) {
  return cat(parent, "/horovodrun-", ::geteuid());
}

Result<UniqueFd> open_spool_folder(const std::string& parent, bool makes) {
  const std::string path = spool_folder_path(parent);
  if (makes && ::mkdir(path.c_str(), S_IRWXU) != 0 && errno != EEXIST) {
    return system_error(cat("cannot make directory ", path,
                            " for the output of detached jobs; "
                            "name another parent directory in HOROVOD_SPOOL_DIR"),
                        errno);
  }
  UniqueFd folder(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!folder && errno == ENOENT) return not_found(cat("there is no directory ", path));
  struct stat status {};
  const bool is_open = folder && ::fstat(folder.get(), &status) == 0;
  const bool is_private =
      is_open && status.st_uid == ::geteuid() && (status.st_mode & (S_IRWXG | S_IRWXO)) == 0;
  if (is_private) return folder;
  return permission_denied(
      cat(path,
          ", for the output of detached jobs, is not a directory that only you can use; remove "
          "it, or name another parent directory in HOROVOD_SPOOL_DIR"));
}

std::vector<std::string> spool_names(const UniqueFd& folder) {
  std::vector<std::string> names = entries_of(folder);
  std::erase_if(names, [](const std::string& name) { return !parse_int(name); });
  std::ranges::sort(names);
  return names;
}

bool is_spool_in_use(const UniqueFd& spool) {
  const UniqueFd state(
      ::openat(spool.get(), kStateFile, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  return state && ::flock(state.get(), LOCK_SH | LOCK_NB) != 0;
}

void remove_spool(const std::string& parent, const std::string& name, const UniqueFd& spool) {
  const auto folder = open_spool_folder(parent, false);
  if (!folder.ok() || ::flock(spool.get(), LOCK_EX | LOCK_NB) != 0) return;
  for (const std::string& entry : entries_of(spool)) ::unlinkat(spool.get(), entry.c_str(), 0);
  ::unlinkat(folder->get(), name.c_str(), AT_REMOVEDIR);
  ::rmdir(spool_folder_path(parent).c_str());  // fails while there are other spools
}

void remove_old_spools(const std::string& parent) {
  const auto folder = open_spool_folder(parent, false);
  if (!folder.ok()) return;
  for (const std::string& name : spool_names(*folder)) {
    const UniqueFd spool = open_folder_in(*folder, name);
    if (!spool || is_spool_in_use(spool)) continue;
    const int64_t age = std::time(nullptr) - last_change(spool) / kSecond;
    if (age > kKeptSeconds) remove_spool(parent, name, spool);
  }
}

}  // namespace hvd::launcher
