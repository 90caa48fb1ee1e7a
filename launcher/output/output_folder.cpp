#include "launcher/output/output_folder.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <vector>

#include "base/check.h"
#include "base/files/own_file.h"
#include "base/log/log.h"
#include "base/text.h"

namespace hvd::launcher {
namespace {

namespace fs = std::filesystem;

constexpr char kLock[] = ".horovodrun.lock";

// Returns the owner of the lock, as the owner has written it into the file.
std::string owner_of(int lock) {
  char text[300];
  const ssize_t size = ::pread(lock, text, sizeof text, 0);
  const std::string_view owner(text, size > 0 ? static_cast<size_t>(size) : 0);
  return owner.empty() ? "another job" : printable(trim(owner));
}

void write_owner(int lock) {
  char host[256] = "";
  ::gethostname(host, sizeof host - 1);
  const std::string owner = cat("the job of horovodrun with pid ", ::getpid(), " on ", host, "\n");
  if (::ftruncate(lock, 0) != 0) return;
  // Ignore a failure: only messages of other jobs need the text.
  [[maybe_unused]] const ssize_t written = ::pwrite(lock, owner.data(), owner.size(), 0);
}

// Errors of file systems without locks: NFS without its lock service, Lustre without -o flock.
bool lacks_locks(int error) {
  return error == ENOLCK || error == ENOSYS || error == EOPNOTSUPP || error == EINVAL;
}

Result<std::string> move_aside(const fs::path& folder) {
  std::error_code error;
  std::vector<fs::path> ranks;
  for (fs::directory_iterator each(folder, error), end; !error && each != end;
       each.increment(error)) {
    if (is_of_rank(each->path().filename().string())) ranks.push_back(each->path());
  }
  if (error) return system_error(cat("cannot list ", folder.string()), error.value());
  if (ranks.empty()) return std::string();
  // Avoid colons: rsync and scp take the text before a colon as the name of a host.
  const std::string name = time_text("before-%Y-%m-%dT%H.%M.%S", TimeZone::kLocal);
  fs::path aside = folder / name;
  for (int number = 2; !fs::create_directory(aside, error); ++number) {
    if (error) return system_error(cat("cannot make directory ", aside.string()), error.value());
    aside = folder / cat(name, ".", number);
  }
  for (const fs::path& rank : ranks) {
    fs::rename(rank, aside / rank.filename(), error);
    if (error) {
      return system_error(
          cat("cannot move ", rank.string(), " of an earlier run to ", aside.string()),
          error.value());
    }
  }
  return cat("the output of an earlier run is now in ", aside.string());
}

}  // namespace

bool is_of_rank(std::string_view name) {
  constexpr std::string_view kRank = "rank.";
  if (!name.starts_with(kRank) || name.size() == kRank.size()) return false;
  return name.find_first_not_of("0123456789", kRank.size()) == std::string_view::npos;
}

Result<OutputFolder> OutputFolder::take(const std::string& path) {
  OutputFolder taken;
  if (path.empty()) return taken;
  std::error_code error;
  fs::create_directories(path, error);
  if (error) return system_error(cat("cannot make directory ", path), error.value());
  const std::string file = cat(path, "/", kLock);
  HVD_ASSIGN_OR_RETURN(taken.lock_, open_own_file(file, O_RDWR));
  if (::flock(taken.lock_.get(), LOCK_EX | LOCK_NB) == 0) {
    write_owner(taken.lock_.get());
  } else if (errno == EWOULDBLOCK) {
    return failed_precondition(cat("--output-filename ", path, ": ", owner_of(taken.lock_.get()),
                                   " writes there; give each job a directory of its own, such as ",
                                   path, "/$SLURM_JOB_ID, or wait for the end of that job"));
  } else if (lacks_locks(errno)) {
    taken.warning_ =
        cat(system_error(cat("--output-filename ", path, " cannot be locked"), errno).message(),
            "; another job that writes there is not noticed");
  } else {
    return system_error(cat("cannot lock ", file), errno);
  }
  HVD_ASSIGN_OR_RETURN(taken.moved_, move_aside(path));
  return taken;
}

}  // namespace hvd::launcher
