#include "launcher/agent/ranks/staging.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>

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

namespace {

bool write_all(int file, std::string_view bytes) {
  for (size_t done = 0; done < bytes.size();) {
    const ssize_t size = ::write(file, bytes.data() + done, bytes.size() - done);
    if (size < 0 && errno == EINTR) continue;
    if (size < 0) return false;
    done += static_cast<size_t>(size);
  }
  return true;
}

}  // namespace

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
