// The state directory of a user: one folder for each job, with its record (job_record.h). Only the job's launcher
// writes to a folder, whole files by rename, and there are no locks: the directory may be on a network
// file system. Calls may block for as long as the file system does. The records and logs of detached jobs are in a
// second directory of this form, which is on a local disk: their launcher waits for what it cannot write.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/unique_fd.h"
#include "launcher/state/job_record.h"

namespace hvd::launcher {

constexpr int64_t kKeptDays = 14;
constexpr size_t kMostJobs = 500;

// The absolute path for a value of HOROVOD_STATE_DIR, in which "~" stands for the user's home; empty: no state is kept.
std::string state_folder_path(const std::string& value, const std::string& home);

// The directory of detached jobs, for a value of HOROVOD_SPOOL_DIR: "/tmp/horovodrun-1000".
std::string local_state_path(const std::string& parent);
// Refuses one that another user owns or may enter. kNotFound when there is none.
Status check_local_state(const std::string& path);
// Makes that directory, and in it the first record of a detached job.
Status begin_local_record(const std::string& path, const JobRecord& record);

// Makes the directory and this job's folder in it, where they do not exist. Refuses directories of other users.
Result<UniqueFd> make_job_folder(const std::string& path, const ProcessIdentity& launcher);
// Removes the job's folder where it is empty. False: it is not.
bool remove_empty_job_folder(const std::string& path, const ProcessIdentity& launcher);
// The name of the job's folder.
std::string job_folder_name(const ProcessIdentity& launcher);
// Opens the folder of a job; refuses one of another user.
Result<UniqueFd> open_job_folder(const std::string& path, const ProcessIdentity& launcher);

// `is_full`: set when there is no room.
Status write_record(const UniqueFd& folder, const JobRecord& record, bool* is_full = nullptr);
// Overwrites the record, which takes no room where the file system does not copy on write.
Status write_over(const UniqueFd& folder, const JobRecord& record);
Result<JobRecord> read_record(const UniqueFd& folder);

// A file beside the job's folder by which Prometheus finds its metrics (file_sd), named as the folder, with ".json". It is
// no file in the folder: file_sd takes patterns for names of files, not of folders. Other users may read it.
Status write_target(const std::string& path, const JobRecord& record);
void remove_target(const std::string& path, const ProcessIdentity& launcher);

// All records, oldest first. No directory is no error. `unreadable`: folders whose record cannot be read.
Result<std::vector<JobRecord>> read_records(const std::string& path, size_t* unreadable = nullptr);

// Oldest first.
void sort_by_age(std::vector<JobRecord>& records);

// Removes jobs that are older than kKeptDays, and the oldest ones beyond kMostJobs; never one that gave a sign within
// the last three minutes. Also removes the targets of launchers that have given none.
void remove_old_jobs(const std::string& path, int64_t now, size_t most = kMostJobs);

// Whether somebody has removed an open directory.
bool is_removed(const UniqueFd& folder);
// Opens a directory below a directory; not through a symbolic link.
UniqueFd open_folder_in(const UniqueFd& folder, const std::string& name);
// The names of its entries, without "." and "..".
std::vector<std::string> entries_of(const UniqueFd& folder);

}  // namespace hvd::launcher
