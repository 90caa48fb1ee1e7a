// Keeps the record of a running job (job_record.h) up to date, from before its first launch to its end. A child process
// writes the files: an unresponsive file system blocks only the child, which may then outlive the launcher. The child
// also records the end of a killed launcher. In an idle job, it wakes once a minute.
#pragma once

#include <sys/types.h>

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "base/clock.h"
#include "base/unique_fd.h"
#include "launcher/output/launch_events.h"
#include "launcher/output/log_queue.h"
#include "launcher/plan/launch_settings.h"
#include "launcher/state/job_record.h"

namespace hvd::launcher {

// The output kept with a record.
enum class Kept : uint8_t {
  kNothing,
  kOutput,   // all output passed to output()
  kStreams,  // also the launcher's standard output and error, which no terminal shows
};

class RecordWriter {
 public:
  // Starts the child process. Returns null, after a message to the user, if the process cannot start. `is_quiet`:
  // prints no message if the directory cannot keep a record.
  static std::unique_ptr<RecordWriter> start(std::string path, JobRecord record, Kept kept,
                                             bool is_quiet);
  ~RecordWriter();
  RecordWriter(const RecordWriter&) = delete;

  // Returns null if output is not kept.
  LogQueue* output() { return output_.get(); }
  void running(int ranks);
  void set_cause(const std::string& cause);
  // Records a sentence that the launcher has printed.
  void add_message(std::string_view sentence);
  // Waits at most one second for each of three steps: sending the output, sending its newest lines, and writing the end
  // to disk. Call last.
  void end(int exit_code);

 private:
  RecordWriter(std::string path, JobRecord record, UniqueFd socket,
               std::unique_ptr<LogQueue> output, Kept kept, pid_t child, bool is_quiet)
      : path_(std::move(path)),
        record_(std::move(record)),
        socket_(std::move(socket)),
        output_(std::move(output)),
        kept_(kept),
        child_(child),
        is_quiet_(is_quiet) {}
  // Returns false, after a message, if the child process has ended.
  bool send();
  void send_output();
  // Returns whether all output was sent.
  bool send_output_until(Deadline deadline);
  std::string cause_before_launches(int exit_code) const;
  // Prints the messages of the child process. Returns false if the child has ended.
  bool receive(int flags);

  const std::string path_;
  JobRecord record_;
  // Receives sentences for the user from the child process, and sends records as JSON to the child.
  UniqueFd socket_;
  std::unique_ptr<LogQueue> output_;
  const Kept kept_;
  const pid_t child_;
  const bool is_quiet_;
  bool is_gone_ = false;  // the child process has ended
  std::string message_;   // the launcher's last sentence
};

// Returns whether `horovodrun logs` can show the output of the job.
bool keeps_output(const LaunchSettings& settings);
// Returns the record of this process's job at its start.
JobRecord new_record(const LaunchSettings& settings, std::span<const std::string> command);
// Callbacks that notify the process in the terminal, with --detach. Each may be empty.
struct DetachedEvents {
  std::function<void()> on_recorded;  // called when the log begins to receive the output
  std::function<void()> on_running;   // called when all ranks run
};

// Runs a job, and records it unless the settings disable records. The record and log of a detached job are in the
// directory of detached jobs. Returns what `run` returns.
int record_job(const LaunchSettings& settings, std::span<const std::string> command,
               const DetachedEvents& detached, const std::function<int(const LaunchEvents&)>& run);

}  // namespace hvd::launcher
