#include "launcher/agent/host/safe_folder.h"

#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>

#include "base/text.h"

namespace hvd::launcher {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kSentAgent = "horovod-agent-";

bool is_sticky(const std::string& path) {
  struct stat about {};
  return ::stat(path.c_str(), &about) == 0 && (about.st_mode & S_ISVTX) != 0;
}

// Returns whether `owner` is root or this user. In a user namespace without root, the owner of / is
// as trustworthy as root.
bool is_trusted(uid_t owner) {
  struct stat root {};
  return owner == 0 || owner == ::geteuid() || (::stat("/", &root) == 0 && owner == root.st_uid);
}

bool only_owner_changes(const struct stat& about) {
  const bool is_others = (about.st_mode & (S_IWGRP | S_IWOTH)) != 0;
  return is_trusted(about.st_uid) && (!is_others || (about.st_mode & S_ISVTX) != 0);
}

bool is_symbolic_link(const std::string& path) {
  struct stat about {};
  return ::lstat(path.c_str(), &about) == 0 && S_ISLNK(about.st_mode);
}

// Adds the folder, or this user's own folder in a shared folder such as /tmp.
void add_folder(std::vector<std::string>& folders, std::string_view folder) {
  if (!folder.starts_with('/')) return;
  const std::string path(folder);
  folders.push_back(is_sticky(path) ? cat(path, "/horovod-", ::geteuid()) : path);
}

}  // namespace

std::vector<std::string> agent_folders(const std::string& chosen, const std::string& agent,
                                       const Environment& environment) {
  std::vector<std::string> folders;
  const auto add = [&](const std::string& folder) { add_folder(folders, folder); };
  const auto add_below = [&](const char* variable, const char* name) {
    const std::string value(value_of(environment, variable));
    if (!value.empty()) add(value + name);
  };
  add(chosen);
  const fs::path own(agent);
  if (own.filename().string().starts_with(kSentAgent)) add(own.parent_path().string());
  add_below("XDG_RUNTIME_DIR", "/horovod");
  add_below("HOME", "/.cache/horovod");
  for (const char* folder : {"/tmp", "/var/tmp", "/dev/shm"}) add(folder);
  return folders;
}

std::vector<std::string> environment_folders(const std::string& chosen,
                                             const Environment& environment) {
  std::vector<std::string> folders;
  if (!chosen.empty()) {
    add_folder(folders, chosen);
    return folders;
  }
  for (const char* variable : {"SLURM_TMPDIR", "TMPDIR"}) {
    add_folder(folders, value_of(environment, variable));
  }
  add_folder(folders, "/var/tmp");
  return folders;
}

Result<std::string> safe_folder(const std::string& path) {
  const auto unsafe = [](const std::string& part) {
    return permission_denied(
        cat(printable(part), " belongs to another user or is writable by others"));
  };
  // Another user can replace this user's folder in /tmp by a link at any time.
  if (path.ends_with(cat("/horovod-", ::geteuid())) && is_symbolic_link(path)) return unsafe(path);
  std::error_code error;
  const fs::path real = fs::canonical(path, error);
  if (error) return not_found(cat(printable(path), " cannot be entered"));
  // Check from / downwards, because then no other user can replace an entry of a checked folder.
  fs::path part;
  for (const fs::path& word : real) {
    part /= word;
    struct stat about {};
    if (::lstat(part.c_str(), &about) != 0 || !S_ISDIR(about.st_mode) ||
        !only_owner_changes(about)) {
      return unsafe(part.string());
    }
  }
  return real.string();
}

Result<std::string> make_safe_folder(const std::string& path, uint64_t bytes) {
  std::error_code error;
  if (!fs::is_directory(path, error)) {
    const mode_t mask = ::umask(077);
    fs::create_directories(path, error);
    ::umask(mask);
    if (error) return not_found(cat(printable(path), " cannot be made: ", error.message()));
  }
  HVD_ASSIGN_OR_RETURN(std::string real, safe_folder(path));
  if (::access(real.c_str(), W_OK | X_OK) != 0) {
    return permission_denied(cat(printable(path), " is not writable"));
  }
  struct statvfs about {};
  if (::statvfs(real.c_str(), &about) != 0) {
    return system_error(cat("cannot look at ", printable(path)), errno);
  }
  if ((about.f_flag & ST_NOEXEC) != 0) {
    return failed_precondition(cat(printable(path), " does not let libraries be loaded (noexec)"));
  }
  const uint64_t free = static_cast<uint64_t>(about.f_bavail) * about.f_frsize;
  if (free < bytes) {
    return failed_precondition(cat(printable(path), " has ", free >> 20, " MiB free of the ",
                                   (bytes >> 20) + 1, " MiB that it needs"));
  }
  return real;
}

}  // namespace hvd::launcher
