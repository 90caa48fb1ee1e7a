// The record of one job: its launcher, its duration, and its end. Contains the command line, but no variables. A
// launcher writes the record as JSON (record_writer.h), and commands in other terminals read it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace hvd::launcher {

// Identifies a process of this machine, or of another machine that uses the same state directory.
struct ProcessIdentity {
  std::string host;           // name of its machine
  std::string boot;           // boot_id()
  int64_t pid_namespace = 0;  // inode: equal pids of two containers are two processes
  int64_t pid = 0;
  int64_t start = 0;  // start time in clock ticks since boot

  static ProcessIdentity own();
  // Returns whether `pid` identifies the same process for both: they have the same boot and the same pid namespace.
  bool is_beside(const ProcessIdentity& other) const;
};

struct JobRecord {
  ProcessIdentity launcher;
  int64_t writer = 0;        // pid of the launcher's child process that writes this record
  int64_t writer_start = 0;  // start time in clock ticks since boot
  std::string name;          // --name, or empty
  std::vector<std::string> command;
  std::string directory;        // the launcher's working directory
  std::string allocation;       // SLURM_JOB_ID, or empty
  std::string allocation_name;  // SLURM_JOB_NAME, or empty
  std::string node;  // SLURMD_NODENAME; empty if the launcher runs outside of an allocation
  std::string state = "starting";  // "starting", "running" or "ended"
  int64_t began = 0;               // times: seconds since 1970
  int64_t written = 0;             // when the launcher last reported that it runs
  int64_t ended = 0;
  int32_t ranks = 0;         // 0: unknown
  bool is_constant = false;  // the job is not elastic: its ranks have the numbers below `ranks`
  int32_t launches = 0;      // number of starts of all ranks
  int32_t exit_code = 0;
  std::string cause;        // a sentence about the end, or empty
  int64_t lost_output = 0;  // bytes of output that did not reach the writer before the end
  bool has_output =
      false;  // the output is kept (log_files.h), in the folder of this record or, with `log`, in another folder
  std::string
      log;  // the state directory on the launcher's machine that has the job's folder with the output
  int32_t kill_grace = 0;  // seconds between the end signal and SIGKILL of ranks
  std::string metrics;     // address of the job's metrics, such as "127.0.0.1:9400", or empty
  std::string place;       // the state directory from which the record was read; not in its JSON

  bool has_ended() const { return state == "ended"; }
};

std::string to_json(const JobRecord& record);
// Returns an error if the text is not a record. Records of later releases may have more members.
Result<JobRecord> parse_job_record(std::string_view text);

enum class JobLife { kRuns, kEnded, kUnknown };
// `observer`: the calling process. A launcher in the observer's pid namespace runs if its process exists. Any other
// launcher runs if `now` is within three minutes of its last sign of life.
JobLife life_of(const JobRecord& record, const ProcessIdentity& observer, int64_t now);

// Returns whether a signal, for example that of Ctrl-Z, or a debugger has stopped the process.
bool is_stopped(int64_t pid);

// Checks a name: it must be short, and must not look like a pid or a flag. An error lists the valid characters.
Status check_job_name(std::string_view name);

}  // namespace hvd::launcher
