#include "launcher/state/state_folder.h"

#include <dirent.h>
#include <fcntl.h>
#include <pwd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/files/whole_io.h"
#include "base/settings.h"
#include "base/text.h"

namespace hvd::launcher {
namespace {

constexpr char kRecord[] = "record.json";
constexpr char kNewRecord[] = "record.new";
constexpr std::string_view kEnding = ".job";
constexpr std::string_view kTarget = ".metrics.json";
constexpr std::string_view kNewTarget = ".metrics.json.new";
constexpr size_t kMostRecord = 256 << 10;
constexpr int64_t kDay = 24 * 3600;
// A running launcher changes its folder once a minute.
constexpr int64_t kFresh = 180;

std::string name_of_user(uid_t uid) {
  const passwd* entry = ::getpwuid(uid);
  return entry == nullptr ? cat("user ", uid) : printable(entry->pw_name);
}

Status not_private(const std::string& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) == 0 && status.st_uid != ::geteuid()) {
    return permission_denied(cat(printable(path), " belongs to ", name_of_user(status.st_uid),
                                 "; name another directory in HOROVOD_STATE_DIR"));
  }
  return permission_denied(
      cat(printable(path),
          " is not a directory that only you can write to; name another one in HOROVOD_STATE_DIR"));
}

bool is_own(const UniqueFd& folder, mode_t others) {
  struct stat status {};
  return folder && ::fstat(folder.get(), &status) == 0 && status.st_uid == ::geteuid() &&
         (status.st_mode & others) == 0;
}

// Returns kNotFound if the directory does not exist.
Result<UniqueFd> open_state_folder(const std::string& path) {
  UniqueFd folder(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!folder && errno == ENOENT) return not_found(cat("there is no directory ", printable(path)));
  if (!folder) return system_error(cat("cannot read ", printable(path)), errno);
  if (!is_own(folder, S_IWGRP | S_IWOTH)) return not_private(path);
  return folder;
}

Result<UniqueFd> own_folder_in(const UniqueFd& folder, const std::string& path,
                               const std::string& name) {
  UniqueFd own = open_folder_in(folder, name);
  if (!own) return system_error(cat("cannot open ", printable(path), "/", printable(name)), errno);
  if (!is_own(own, S_IRWXG | S_IRWXO)) return not_private(cat(path, "/", name));
  return own;
}

// Replaces the file atomically: a reader sees the complete old text or the complete new text.
Status write_whole(const UniqueFd& folder, const std::string& beside, const std::string& name,
                   const std::string& text, mode_t mode, bool* is_full = nullptr) {
  const auto failure = [&](int error) {
    ::unlinkat(folder.get(), beside.c_str(), 0);
    if (is_full != nullptr) *is_full = error == ENOSPC || error == EDQUOT;
    return system_error("cannot write the record of this job", error);
  };
  const UniqueFd file(::openat(folder.get(), beside.c_str(),
                               O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, mode));
  if (!file) return failure(errno);
  ::fchmod(file.get(), mode);  // regardless of the umask
  const bool is_written = write_all(file.get(), text) &&
                          ::renameat(folder.get(), beside.c_str(), folder.get(), name.c_str()) == 0;
  return is_written ? Status() : failure(errno);
}

// Makes the path absolute, because the process that writes records has another working directory.
std::string absolute_path(const std::string& path) {
  std::error_code error;
  const auto whole = std::filesystem::absolute(path, error);
  return error ? path : whole.lexically_normal().string();
}

// Returns the name of the file_sd file beside the job's folder.
std::string target_name(const ProcessIdentity& launcher) {
  std::string name = job_folder_name(launcher);
  name.resize(name.size() - kEnding.size());
  return name.append(kTarget);
}

// A running launcher writes its target once a minute.
void remove_old_targets(const UniqueFd& folder, int64_t now) {
  for (const std::string& name : entries_of(folder)) {
    struct stat status {};
    if (!name.ends_with(kTarget) && !name.ends_with(kNewTarget)) continue;
    if (::fstatat(folder.get(), name.c_str(), &status, AT_SYMLINK_NOFOLLOW) != 0) continue;
    if (S_ISREG(status.st_mode) && now - status.st_mtim.tv_sec > kFresh)
      ::unlinkat(folder.get(), name.c_str(), 0);
  }
}

std::vector<std::string> job_folders(const UniqueFd& folder) {
  std::vector<std::string> names = entries_of(folder);
  std::erase_if(names, [](const std::string& name) { return !name.ends_with(kEnding); });
  return names;
}

// Refuses a directory of root in another user's home: the user could not use root's files.
Status check_home(const std::string& path) {
  const std::string home = environment_variable("HOME").value_or("");
  struct stat status {};
  if (::geteuid() != 0 || home.empty() || !path.starts_with(home + "/")) return {};
  if (::stat(home.c_str(), &status) != 0 || status.st_uid == 0) return {};
  return permission_denied(cat("root keeps no records in ", printable(home), ", which belongs to ",
                               name_of_user(status.st_uid)));
}

// Returns the error for a folder that cannot be created below another user's folder.
Status cannot_make(std::filesystem::path folder, int error) {
  const std::string what = cat("cannot make directory ", printable(folder.string()));
  struct stat status {};
  do folder = folder.parent_path();
  while (::stat(folder.c_str(), &status) != 0 && folder.has_relative_path());
  if (error != EACCES || status.st_uid == ::geteuid()) return system_error(what, error);
  return system_error(
      cat(what, ": ", printable(folder.string()), " belongs to ", name_of_user(status.st_uid)),
      error);
}

void remove_job(const UniqueFd& folder, const std::string& name) {
  const UniqueFd job = open_folder_in(folder, name);
  if (!is_own(job, S_IRWXG | S_IRWXO)) return;
  for (const std::string& entry : entries_of(job)) ::unlinkat(job.get(), entry.c_str(), 0);
  ::unlinkat(folder.get(), name.c_str(), AT_REMOVEDIR);
}

}  // namespace

std::string state_folder_path(const std::string& value, const std::string& home) {
  if (value == "none") return "";
  const bool is_below_home = value == "~" || value.starts_with("~/");
  if (is_below_home && home.empty()) return "";
  return absolute_path(is_below_home ? cat(home, value.substr(1)) : value);
}

std::string job_folder_name(const ProcessIdentity& launcher) {
  std::string host = launcher.host;
  std::ranges::replace(host, '/', '_');
  return cat(host, "_", launcher.boot, "_", launcher.pid, "_", launcher.start, kEnding);
}

std::string local_state_path(const std::string& parent) {
  return absolute_path(cat(parent, "/horovodrun-", ::geteuid()));
}

Status check_local_state(const std::string& path) {
  const UniqueFd folder(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!folder && errno == ENOENT) return not_found(cat("there is no directory ", printable(path)));
  if (is_own(folder, S_IRWXG | S_IRWXO)) return {};
  return permission_denied(
      cat(printable(path),
          ", for the output of detached jobs, is not a directory that only you can use; remove "
          "it, or name another parent directory in HOROVOD_SPOOL_DIR"));
}

Status begin_local_record(const std::string& path, const JobRecord& record) {
  if (::mkdir(path.c_str(), S_IRWXU) != 0 && errno != EEXIST) {
    return system_error(cat("cannot make directory ", printable(path),
                            " for the output of detached jobs; "
                            "name another parent directory in HOROVOD_SPOOL_DIR"),
                        errno);
  }
  HVD_RETURN_IF_ERROR(check_local_state(path));
  HVD_ASSIGN_OR_RETURN(const UniqueFd folder, make_job_folder(path, record.launcher));
  const Status written = write_record(folder, record);
  if (!written.ok()) remove_empty_job_folder(path, record.launcher);
  return written.with_context(printable(path));
}

Result<UniqueFd> make_job_folder(const std::string& path, const ProcessIdentity& launcher) {
  const std::filesystem::path whole(path);
  HVD_RETURN_IF_ERROR(check_home(path));
  std::error_code error;
  std::filesystem::create_directories(whole.parent_path(), error);
  if (error) return cannot_make(whole.parent_path(), error.value());
  if (::mkdir(path.c_str(), S_IRWXU) != 0 && errno != EEXIST) return cannot_make(whole, errno);
  HVD_ASSIGN_OR_RETURN(const UniqueFd folder, open_state_folder(path));
  const std::string name = job_folder_name(launcher);
  if (::mkdirat(folder.get(), name.c_str(), S_IRWXU) != 0 && errno != EEXIST)
    return system_error(cat("cannot make directory ", printable(path), "/", printable(name)),
                        errno);
  return own_folder_in(folder, path, name);
}

Result<UniqueFd> open_job_folder(const std::string& path, const ProcessIdentity& launcher) {
  HVD_ASSIGN_OR_RETURN(const UniqueFd folder, open_state_folder(path));
  return own_folder_in(folder, path, job_folder_name(launcher));
}

bool remove_empty_job_folder(const std::string& path, const ProcessIdentity& launcher) {
  return ::rmdir(cat(path, "/", job_folder_name(launcher)).c_str()) == 0;
}

Status write_record(const UniqueFd& folder, const JobRecord& record, bool* is_full) {
  return write_whole(folder, kNewRecord, kRecord, to_json(record) + "\n", S_IRUSR | S_IWUSR,
                     is_full);
}

Status write_over(const UniqueFd& folder, const JobRecord& record) {
  const std::string text = to_json(record) + "\n";
  const UniqueFd file(::openat(folder.get(), kRecord, O_WRONLY | O_NOFOLLOW | O_CLOEXEC));
  const auto size = static_cast<ssize_t>(text.size());
  if (file && ::pwrite(file.get(), text.data(), text.size(), 0) == size &&
      ::ftruncate(file.get(), size) == 0)
    return {};
  return system_error("cannot write the record of this job", errno);
}

Status write_target(const std::string& path, const JobRecord& record) {
  HVD_ASSIGN_OR_RETURN(const UniqueFd folder, open_state_folder(path));
  const std::string name = target_name(record.launcher);
  using Json = nlohmann::json;
  const Json groups = Json::array({Json::object({{"targets", Json::array({record.metrics})}})});
  const std::string text = groups.dump(-1, ' ', false, Json::error_handler_t::replace);
  return write_whole(folder, name + ".new", name, text + "\n",
                     S_IRUSR | S_IWUSR | S_IRGRP | S_IROTH);
}

void remove_target(const std::string& path, const ProcessIdentity& launcher) {
  const auto folder = open_state_folder(path);
  if (folder.ok()) ::unlinkat(folder->get(), target_name(launcher).c_str(), 0);
}

Result<JobRecord> read_record(const UniqueFd& folder) {
  const UniqueFd file(
      ::openat(folder.get(), kRecord, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  if (!file) return system_error("cannot read a record", errno);
  std::string text;
  if (!read_all(file.get(), text, kMostRecord)) return system_error("cannot read a record", errno);
  return parse_job_record(text);
}

Result<std::vector<JobRecord>> read_records(const std::string& path, size_t* unreadable) {
  std::vector<JobRecord> records;
  const auto folder = open_state_folder(path);
  if (folder.status().code() == Code::kNotFound) return records;
  if (!folder.ok()) return folder.status();
  for (const std::string& name : job_folders(*folder)) {
    const UniqueFd job = open_folder_in(*folder, name);
    if (!is_own(job, S_IRWXG | S_IRWXO)) continue;
    auto record = read_record(job);
    // A launcher that has just begun, or found no space, has a folder without a record.
    if (record.status().code() == Code::kNotFound) continue;
    if (record.ok())
      records.emplace_back(*std::move(record)).place = path;
    else if (unreadable != nullptr)
      ++*unreadable;
  }
  sort_by_age(records);
  return records;
}

void sort_by_age(std::vector<JobRecord>& records) {
  std::ranges::sort(records, [](const JobRecord& one, const JobRecord& other) {
    return std::pair(one.began, one.launcher.pid) < std::pair(other.began, other.launcher.pid);
  });
}

void remove_old_jobs(const std::string& path, int64_t now, size_t most) {
  const auto folder = open_state_folder(path);
  if (!folder.ok()) return;
  remove_old_targets(*folder, now);
  std::vector<std::pair<int64_t, std::string>> jobs;  // by the time of the last change
  for (const std::string& name : job_folders(*folder)) {
    struct stat status {};
    if (::fstatat(folder->get(), name.c_str(), &status, AT_SYMLINK_NOFOLLOW) == 0)
      jobs.emplace_back(status.st_mtim.tv_sec, name);
  }
  std::ranges::sort(jobs);
  const ProcessIdentity observer = ProcessIdentity::own();
  // Also test whether the launcher runs, because every job looks old after a jump of the clock.
  const auto runs = [&](const std::string& name) {
    const UniqueFd job = open_folder_in(*folder, name);
    const auto record = read_record(job);
    return record.ok() && record->launcher.is_beside(observer) &&
           life_of(*record, observer, now) == JobLife::kRuns;
  };
  for (size_t i = 0; i < jobs.size(); ++i) {
    const int64_t age = now - jobs[i].first;
    const bool is_beyond = jobs.size() - i > most && age > kFresh;
    if ((is_beyond || age > kKeptDays * kDay) && !runs(jobs[i].second))
      remove_job(*folder, jobs[i].second);
  }
}

bool is_removed(const UniqueFd& folder) {
  struct stat status {};
  return ::fstat(folder.get(), &status) != 0 || status.st_nlink == 0;
}

UniqueFd open_folder_in(const UniqueFd& folder, const std::string& name) {
  return UniqueFd(
      ::openat(folder.get(), name.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
}

std::vector<std::string> entries_of(const UniqueFd& folder) {
  std::vector<std::string> names;
  // Open the directory once more: a descriptor of dup() would share its read position.
  UniqueFd own = open_folder_in(folder, ".");
  const std::unique_ptr<DIR, int (*)(DIR*)> entries(::fdopendir(own.get()), ::closedir);
  if (!entries) return names;
  static_cast<void>(own.release());
  while (const dirent* entry = ::readdir(entries.get())) {
    const std::string name = entry->d_name;
    if (name != "." && name != "..") names.push_back(name);
  }
  return names;
}

}  // namespace hvd::launcher
