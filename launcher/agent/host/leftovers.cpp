#include "launcher/agent/host/leftovers.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <ctime>
#include <filesystem>

#include "base/text.h"

namespace hvd::launcher {
namespace {

namespace fs = std::filesystem;

constexpr time_t kLeastAge = 60;  // the creator of a younger folder may not have locked it yet
constexpr time_t kUnusedAge = 30 * 24 * 3600;
constexpr std::string_view kAgent = "horovod-agent-";

bool is_own_and_old(const struct stat& about, time_t age) {
  return about.st_uid == ::geteuid() && ::time(nullptr) - about.st_mtime >= age;
}

template <typename Act>
void for_each(const std::string& folder, std::string_view prefix, Act act) {
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error)) {
    if (entry->path().filename().string().starts_with(prefix)) act(entry->path().string());
  }
}

UniqueFd open_folder(const std::string& path) {
  return UniqueFd(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
}

void remove_unlocked_folder(const std::string& path, time_t age) {
  const UniqueFd folder = open_folder(path);
  struct stat about {};
  if (!folder || ::fstat(folder.get(), &about) != 0 || !is_own_and_old(about, age)) return;
  if (::flock(folder.get(), LOCK_EX | LOCK_NB) != 0) return;
  std::error_code ignored;
  fs::remove_all(path, ignored);
}

}  // namespace

UniqueFd lock_folder(const std::string& path) {
  UniqueFd folder = open_folder(path);
  if (folder && ::flock(folder.get(), LOCK_SH | LOCK_NB) != 0) folder.reset();
  return folder;
}

Result<UniqueFd> lock_unused_folder(const std::string& path) {
  UniqueFd folder = open_folder(path);
  if (folder && ::flock(folder.get(), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
    return failed_precondition(cat(printable(path), " is in use"));
  }
  return folder;
}

void remove_unlocked_folders(const std::string& parent, std::string_view prefix) {
  for_each(parent, prefix,
           [](const std::string& path) { remove_unlocked_folder(path, kLeastAge); });
}

void remove_unused_packages(const std::string& path, std::string_view prefix) {
  ::utimensat(AT_FDCWD, path.c_str(), nullptr, 0);
  for_each(fs::path(path).parent_path(), prefix, [&](const std::string& other) {
    if (other != path) remove_unlocked_folder(other, kUnusedAge);
  });
}

void remove_unused_agents(const std::string& path) {
  const fs::path own(path);
  if (!own.is_absolute() || !own.filename().string().starts_with(kAgent)) return;
  ::utimensat(AT_FDCWD, path.c_str(), nullptr, 0);
  for_each(own.parent_path(), kAgent, [&](const std::string& other) {
    struct stat about {};
    if (other == path || ::lstat(other.c_str(), &about) != 0 || !S_ISREG(about.st_mode)) return;
    if (is_own_and_old(about, kUnusedAge)) ::unlink(other.c_str());
  });
}

}  // namespace hvd::launcher
