// The record of one job: who runs it, how long, and how it ended. Holds the command line and no variables.
// A launcher writes it as JSON (record_writer.h), and commands in other terminals read it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace hvd::launcher {

// Identifies a process of this machine, or of another one that uses the same state directory.
struct ProcessIdentity {
  std::string host;           // name of its machine
  std::string boot;           // boot_id()
  int64_t pid_namespace = 0;  // inode: equal pids of two containers are two processes
  int64_t pid = 0;
  int64_t start = 0;  // in clock ticks since the boot

  static ProcessIdentity own();
  // Whether both are in one pid namespace of one boot: `pid` then means the same to both.
  bool is_beside(const ProcessIdentity& other) const;
};

struct JobRecord {
  ProcessIdentity launcher;
  int64_t writer = 0;        // the process beside the launcher that writes this record: its pid
  int64_t writer_start = 0;  // in clock ticks since the boot
  std::string name;          // --name, or empty
  std::vector<std::string> command;
  std::string directory;           // the launcher's working directory
  std::string allocation;          // SLURM_JOB_ID, or empty
  std::string allocation_name;     // SLURM_JOB_NAME, or empty
  std::string node;                // SLURMD_NODENAME, or empty: the launcher is on no node of it
  std::string state = "starting";  // "starting", "running" or "ended"
  int64_t began = 0;               // times: seconds since 1970
  int64_t written = 0;             // the last sign of the launcher
  int64_t ended = 0;
  int32_t ranks = 0;         // 0: not known yet
  bool is_constant = false;  // no later rank has a number above these
  int32_t launches = 0;      // how often all ranks have started
  int32_t exit_code = 0;
  std::string cause;        // a sentence on the end, or empty
  int64_t lost_output = 0;  // bytes that the writer has not got, at the end
  bool has_output =
      false;  // the output is kept (log_files.h), in this folder or, with `log`, in another one
  std::string
      log;  // the state directory, on the launcher's machine, whose folder of this job has the output
  int32_t kill_grace = 0;  // seconds between the end signal and SIGKILL of ranks
  std::string metrics;     // where its metrics are served, such as "127.0.0.1:9400", or empty
  std::string place;       // the state directory that it was read from; not in its JSON

  bool has_ended() const { return state == "ended"; }
};

std::string to_json(const JobRecord& record);
// Refuses text that is no record. A record of a later release may have more members.
Result<JobRecord> parse_job_record(std::string_view text);

enum class JobLife { kRuns, kEnded, kUnknown };
// `observer`: the process that asks, at `now`. A launcher beside it runs if its process does; another one
// if its last sign is within three minutes of `now`.
JobLife life_of(const JobRecord& record, const ProcessIdentity& observer, int64_t now);

// When the process began, in clock ticks since the boot; 0: there is none.
int64_t start_of(int64_t pid);
// The parent of a process; 0: it has none, or there is no such process.
int64_t parent_of(int64_t pid);
// Whether a signal, as of Ctrl-Z, or a debugger has stopped it.
bool is_stopped(int64_t pid);

// A name is short, and looks neither like a pid nor like a flag. An error says what it may contain.
Status check_job_name(std::string_view name);

}  // namespace hvd::launcher
