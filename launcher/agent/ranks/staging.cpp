#include "launcher/agent/ranks/staging.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <iterator>
#include <set>
#include <tuple>
#include <vector>

#include "base/files/whole_io.h"
#include "base/secrets/secret.h"
#include "base/settings.h"
#include "base/text.h"

namespace hvd::launcher {

namespace {

bool is_inside(const std::string& path) {
  if (path.starts_with('/')) return false;
  for (const std::string& word : split(path, '/')) {
    if (word == "..") return false;
  }
  return true;
}

std::string joined(const std::string& directory, const std::string& path) {
  return path.empty() || path == "." ? directory : cat(directory, "/", path);
}

}  // namespace

std::string staging_directory() {
  const std::string named = environment_variable("TMPDIR").value_or("");
  return cat(named.starts_with('/') ? named : "/tmp", "/horovod-stage-", random_hex(16));
}

void remove_staging(const std::string& directory) {
  std::error_code ignored;
  std::filesystem::remove_all(directory, ignored);
}

std::string describe_written_files(const std::string& directory, const timespec& since) {
  constexpr size_t kMostNames = 3;
  namespace fs = std::filesystem;
  size_t count = 0;
  std::set<std::string> first;
  std::error_code error;
  fs::recursive_directory_iterator each(directory, fs::directory_options::skip_permission_denied,
                                        error);
  for (; !error && each != fs::recursive_directory_iterator(); each.increment(error)) {
    struct stat info {};
    if (::lstat(each->path().c_str(), &info) != 0) continue;
    if (S_ISDIR(info.st_mode) && each->path().filename() == "__pycache__")
      each.disable_recursion_pending();
    const auto changed = std::tie(info.st_ctim.tv_sec, info.st_ctim.tv_nsec);
    const bool is_file = S_ISREG(info.st_mode) || S_ISLNK(info.st_mode);
    if (!is_file || changed <= std::tie(since.tv_sec, since.tv_nsec)) continue;
    ++count;
    first.insert(each->path().string().substr(directory.size() + 1));
    if (first.size() > kMostNames) first.erase(std::prev(first.end()));
  }
  if (count == 0) return {};
  const size_t others = count - first.size();
  return cat("the copy of the code (--stage) is removed with ", count,
             count == 1 ? " file" : " files", " that the program wrote there: ",
             join(std::vector<std::string>(first.begin(), first.end()), ", "),
             others == 0 ? "" : cat(" and ", others, " more"),
             "; write to a folder that all hosts share, or to another absolute path");
}

Status Staging::failed_at(const std::string& path, int error) const {
  const Status status = system_error(cat("cannot write ", path), error);
  return {status.code(), cat(status.message(), "; ", advice_)};
}

Status Staging::take(const StagePart& part) {
  taken_ += part.path.size() + part.bytes.size();
  if (failure_.ok()) failure_ = add(part);
  return failure_;
}

Status Staging::add(const StagePart& part) {
  if (part.kind != StageKind::kEnd) {
    digest_ = next_digest(digest_, part);
    return write(part);
  }
  HVD_RETURN_IF_ERROR(make_directory());
  file_.reset();
  is_whole_ = part.bytes == as_text(digest_);
  struct stat info {};
  // chmod sets the directory's ctime by the clock of the file system, which also sets the times of the ranks' files.
  ::chmod(directory_.c_str(), 0700);
  if (is_whole_ && ::stat(directory_.c_str(), &info) == 0) whole_since_ = info.st_ctim;
  return is_whole_ ? Status()
                   : internal_error(
                         "the staged files differ from the launcher's list: a file may have "
                         "changed during the copy");
}

Status Staging::make_directory() {
  if (!is_there_ && ::mkdir(directory_.c_str(), 0700) != 0) {
    return failed_at(directory_, errno);
  }
  is_there_ = true;
  return {};
}

Status Staging::write(const StagePart& part) {
  if (!is_inside(part.path)) {
    return invalid_argument(cat("'", printable(part.path), "' is outside of the staged directory"));
  }
  HVD_RETURN_IF_ERROR(make_directory());
  const std::string path = joined(directory_, part.path);
  const auto failed = [&] { return failed_at(path, errno); };
  if (part.kind == StageKind::kDirectory) {
    return ::mkdir(path.c_str(), part.mode | 0700) == 0 || errno == EEXIST ? Status() : failed();
  }
  if (part.kind == StageKind::kLink) {
    return ::symlink(part.bytes.c_str(), path.c_str()) == 0 ? Status() : failed();
  }
  if (part.kind != StageKind::kFile && (part.kind != StageKind::kMore || !file_)) {
    return invalid_argument("a part of the staged code has an unknown kind");
  }
  if (part.kind == StageKind::kFile) {
    const int is_new = std::exchange(path_, path) == path ? 0 : O_EXCL;
    file_.reset(::open(path.c_str(), O_WRONLY | O_CREAT | is_new | O_CLOEXEC | O_NOFOLLOW,
                       part.mode | 0600));
    if (!file_) return failed();
  }
  return write_all(file_.get(), part.bytes) ? Status() : failed();
}

Status Staging::enter(HostJob& job, const Environment& environment) const {
  if (!job.is_staged) return {};
  if (!is_whole_) return internal_error("the job's code has not been staged");
  const std::string code = joined(directory_, job.staged_path);
  if (!job.working_directory.starts_with('/')) {
    job.working_directory = joined(directory_, job.working_directory);
  }
  const std::string more(value_of(overlay(environment, job.environment), "PYTHONPATH"));
  job.environment = overlay(
      job.environment,
      {{"PYTHONPATH", more.empty() ? code : cat(code, ":", more)}, {"HOROVOD_STAGE_DIR", code}});
  return {};
}

void Staging::remove() {
  if (const std::string directory = release(); !directory.empty()) remove_staging(directory);
}

std::string Staging::release() {
  file_.reset();
  return std::exchange(is_there_, false) ? directory_ : std::string();
}

}  // namespace hvd::launcher
