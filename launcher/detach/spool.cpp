#include "launcher/detach/spool.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "base/text.h"
#include "launcher/detach/spool_folder.h"

namespace hvd::launcher {
namespace {

// A state has always this size.
constexpr size_t kStateSize = 16;
constexpr mode_t kOwnFile = S_IRUSR | S_IWUSR;

bool write_state(const UniqueFd& file, const std::string& words) {
  std::string text = words;
  text.resize(kStateSize - 1, ' ');
  text += '\n';
  return ::pwrite(file.get(), text.data(), text.size(), 0) == static_cast<ssize_t>(kStateSize);
}

// The process with this id is this one, and what lies there belongs to one that has ended.
Result<UniqueFd> make_folder(const std::string& parent, const std::string& name) {
  Status status;
  for (int tries = 0; tries < 10; ++tries) {
    HVD_ASSIGN_OR_RETURN(const UniqueFd spools, open_spool_folder(parent, true));
    if (::mkdirat(spools.get(), name.c_str(), S_IRWXU) == 0) {
      UniqueFd folder = open_folder_in(spools, name);
      // No cleaner of temporary files, such as systemd-tmpfiles, enters a directory that is locked.
      if (folder && ::flock(folder.get(), LOCK_SH) == 0) return folder;
    }
    status =
        system_error(cat("cannot make directory ", spool_folder_path(parent), "/", name), errno);
    const UniqueFd old = open_folder_in(spools, name);
    if (old && is_spool_in_use(old)) {
      return already_exists(
          cat(spool_folder_path(parent), "/", name,
              " belongs to a launcher that runs in another pid namespace, such as "
              "a container; name another parent directory in HOROVOD_SPOOL_DIR"));
    }
    if (old) remove_spool(parent, name, old);
  }
  return status;
}

}  // namespace

Result<std::unique_ptr<Spool>> Spool::make(const std::string& parent, LogLimits limits) {
  const std::string name = cat(::getpid());
  HVD_ASSIGN_OR_RETURN(UniqueFd folder, make_folder(parent, name));
  // The state file gets its name once it is locked: an unlocked one says that the launcher has ended.
  constexpr const char* kUnnamed = "new";
  UniqueFd state(::openat(folder.get(), kUnnamed, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, kOwnFile));
  if (!state || ::flock(state.get(), LOCK_EX) != 0 || !write_state(state, "running") ||
      ::renameat(folder.get(), kUnnamed, folder.get(), kStateFile) != 0) {
    const Status status = system_error(
        cat("cannot write to ", spool_folder_path(parent), "/", name, "/", kStateFile), errno);
    state.reset();
    remove_spool(parent, name, folder);
    return status;
  }
  return std::unique_ptr<Spool>(new Spool(std::move(folder), std::move(state), limits));
}

void Spool::write(bool is_error, std::string_view lines) {
  files_.write({.is_error = static_cast<uint8_t>(is_error), .bytes = std::string(lines)});
}

void Spool::end(int exit_code) {
  files_.finish();
  const std::string words = cat("ended ", exit_code);
  // A file system that copies on write needs space for it.
  while (!write_state(state_, words) && files_.drop_oldest()) continue;
}

}  // namespace hvd::launcher
