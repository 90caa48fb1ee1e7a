#include "launcher/agent/preflight/kept_folder.h"

#include <cerrno>
#include <cstdio>
#include <utility>

#include "base/secrets/secret.h"
#include "base/text.h"
#include "launcher/agent/host/leftovers.h"
#include "launcher/agent/host/safe_folder.h"

namespace hvd::launcher {
namespace {

constexpr int kMostAttempts = 3;

// Like lock_unused_folder(), but the error states that the folder is damaged and that a job uses it.
Result<UniqueFd> lock_damaged(const std::string& path) {
  auto lock = lock_unused_folder(path);
  if (lock.ok()) return lock;
  return failed_precondition(
      cat(printable(path), " is damaged, and a running job uses it: end that job first"));
}

}  // namespace

KeptFolder::~KeptFolder() { remove_parts(); }

bool KeptFolder::find(const std::string& name, const std::vector<std::string>& folders,
                      const IsWhole& is_whole) {
  for (const std::string& folder : folders) {
    const auto parent = safe_folder(folder);
    if (!parent.ok()) continue;
    const std::string path = cat(*parent, "/", prefix_, name);
    if (!safe_folder(path).ok() || !is_whole(path)) continue;
    // Lock after the check: a lock during the check would make a damaged folder look used. Some file systems have no
    // locks.
    UniqueFd lock = lock_folder(path);
    // Skip a folder that another agent is removing, or that another user can change.
    if ((!lock && errno == EWOULDBLOCK) || !safe_folder(path).ok()) continue;
    path_ = path;
    use(std::move(lock));
    return true;
  }
  return false;
}

Status KeptFolder::expect(const std::string& name, const std::vector<std::string>& folders,
                          uint64_t bytes) {
  std::string why;
  for (const std::string& folder : folders) {
    const auto parent = make_safe_folder(folder, bytes);
    if (!parent.ok()) {
      why += cat(why.empty() ? "" : "; ", parent.status().message());
      continue;
    }
    path_ = cat(*parent, "/", prefix_, name);
    if (const auto unused = lock_damaged(path_); !unused.ok()) {
      why += cat(why.empty() ? "" : "; ", unused.status().message());
      continue;
    }
    remove_unlocked_folders(*parent, unfinished_);
    const Digest random = Secret::random().derive("name");
    parts_.emplace(cat(*parent, "/", unfinished_, to_hex(random).substr(0, 16)), advice_);
    return {};
  }
  return failed_precondition(printable(why, 600));
}

Status KeptFolder::take(const StagePart& part) {
  const Status status = parts_->take(part);
  if (!parts_lock_) parts_lock_ = lock_folder(parts_->directory());
  return status;
}

Status KeptFolder::write(const StagePart& part) {
  const Status status = parts_->write(part);
  if (!parts_lock_) parts_lock_ = lock_folder(parts_->directory());
  return status;
}

Status KeptFolder::keep(const std::string& files, const IsWhole& is_whole) {
  int attempt = 0;
  while (::rename(files.c_str(), path_.c_str()) != 0) {
    if (errno != ENOTEMPTY && errno != EEXIST && errno != ENOTDIR) {
      return system_error(cat("cannot rename ", files, " to ", path_), errno);
    }
    // Another agent has just created the folder, or the folder is damaged.
    if (safe_folder(path_).ok() && is_whole(path_)) break;
    const auto lock = lock_damaged(path_);
    // Another agent has replaced the folder meanwhile.
    if (!lock.ok() && safe_folder(path_).ok() && is_whole(path_)) break;
    HVD_RETURN_IF_ERROR(lock.status());
    if (::rename(path_.c_str(), cat(parts(), "/damaged", attempt).c_str()) != 0 &&
        errno != ENOENT) {
      return system_error(cat("cannot rename ", path_), errno);
    }
    if (++attempt == kMostAttempts) {
      return failed_precondition(cat(printable(path_), " is damaged anew at each attempt"));
    }
  }
  use(lock_folder(path_));
  return {};
}

void KeptFolder::remove_parts() {
  if (parts_) parts_->remove();
  parts_lock_.reset();
}

void KeptFolder::use(UniqueFd lock) {
  lock_ = std::move(lock);
  remove_unlocked_folders(path_.substr(0, path_.rfind('/')), unfinished_);
  remove_unused_packages(path_, prefix_);
}

}  // namespace hvd::launcher
