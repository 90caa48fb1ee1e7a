// The state directory of a user: one folder for each job, with its record (job_record.h). Only the job's launcher and
// its child process write to a folder. They replace records by rename and use no locks, so the directory may be on a
// network file system. Calls may block for as long as the file system does. The records and logs of detached jobs are
// in a second directory of this form. It is on a local disk, because blocked writes of its log hold back a detached
// job.
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

// Returns the absolute path for a value of HOROVOD_STATE_DIR, where "~" is the user's home; empty: no state is kept.
std::string state_folder_path(const std::string& value, const std::string& home);

// Returns the directory of detached jobs for a value of HOROVOD_SPOOL_DIR: "/tmp/horovodrun-1000".
std::string local_state_path(const std::string& parent);
// Refuses a directory that another user owns or may enter. kNotFound if it does not exist.
Status check_local_state(const std::string& path);
// Creates the directory of detached jobs, and in it the first record of a detached job.
Status begin_local_record(const std::string& path, const JobRecord& record);

// Creates the directory and this job's folder in it, if missing. Refuses directories of other users.
Result<UniqueFd> make_job_folder(const std::string& path, const ProcessIdentity& launcher);
// Removes the job's folder if it is empty. Returns false if it is not empty.
bool remove_empty_job_folder(const std::string& path, const ProcessIdentity& launcher);
std::string job_folder_name(const ProcessIdentity& launcher);
// Opens the folder of a job; refuses a folder of another user.
Result<UniqueFd> open_job_folder(const std::string& path, const ProcessIdentity& launcher);

// `is_full`: set if the disk is full.
Status write_record(const UniqueFd& folder, const JobRecord& record, bool* is_full = nullptr);
// Overwrites the record in place. This needs no space unless the file system copies on write.
Status write_over(const UniqueFd& folder, const JobRecord& record);
Result<JobRecord> read_record(const UniqueFd& folder);

// Writes the file FOLDER.json beside the job's folder FOLDER. Prometheus finds the job's metrics by this file
// (file_sd). The file is outside of the folder because file_sd accepts patterns only in file names. Other users may
// read the file.
Status write_target(const std::string& path, const JobRecord& record);
void remove_target(const std::string& path, const ProcessIdentity& launcher);

// Returns all records, oldest first. A missing directory is not an error. `unreadable`: number of folders with an
// unreadable record.
Result<std::vector<JobRecord>> read_records(const std::string& path, size_t* unreadable = nullptr);

// Sorts records, oldest first.
void sort_by_age(std::vector<JobRecord>& records);

// Removes jobs older than kKeptDays, and the oldest jobs beyond kMostJobs. Keeps each job whose launcher runs on this
// machine, or has given a sign of life within the last three minutes. Also removes the file_sd files of launchers
// without such a sign.
void remove_old_jobs(const std::string& path, int64_t now, size_t most = kMostJobs);

bool is_removed(const UniqueFd& folder);
// Opens a directory below a directory, but not through a symbolic link.
UniqueFd open_folder_in(const UniqueFd& folder, const std::string& name);
// Returns the names of the folder's entries, without "." and "..".
std::vector<std::string> entries_of(const UniqueFd& folder);

}  // namespace hvd::launcher
