// Keeps the record of a running job (job_record.h) up to date, from before its first launch to its end. A child
// process writes the files: a file system that does not answer blocks that process alone, which may outlive the launcher
// then. It also records the end of a launcher that was killed. An idle job wakes it once a minute.
#pragma once

#include <sys/types.h>

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "base/clock.h"
#include "base/unique_fd.h"
#include "launcher/output/log_queue.h"
#include "launcher/plan/launch_settings.h"
#include "launcher/state/job_record.h"
#include "launcher/state/launch_events.h"

namespace hvd::launcher {

// The output that a record has beside it.
enum class Kept : uint8_t {
  kNothing,
  kOutput,  // all that output() gets
  kStreams,  // also all that this process writes to its standard output and error, which nothing else shows
};

class RecordWriter {
 public:
  // Starts the process. Null after a sentence for the user: the job runs without a record. `is_quiet`: says nothing when
  // the directory cannot keep a record.
  static std::unique_ptr<RecordWriter> start(std::string path, JobRecord record, Kept kept,
                                             bool is_quiet);
  ~RecordWriter();
  RecordWriter(const RecordWriter&) = delete;

  // Null when no output is kept.
  LogQueue* output() { return output_.get(); }
  void running(int ranks);
  void set_cause(const std::string& cause);
  // A sentence that the launcher has printed.
  void add_message(std::string_view sentence);
  // Waits for a second at most until the output is sent, for another one until its newest lines are, and for one until
  // the end is on disk. Call last.
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
  // False after a sentence, when the process has ended.
  bool send();
  void send_output();
  // Whether all of it was sent.
  bool send_output_until(Deadline deadline);
  std::string cause_before_launches(int exit_code) const;
  // Prints what the process has sent. False when it has ended.
  bool receive(int flags);

  const std::string path_;
  JobRecord record_;
  UniqueFd socket_;  // a packet is a record, as JSON; the other way, a sentence for the user
  std::unique_ptr<LogQueue> output_;
  const Kept kept_;
  const pid_t child_;
  const bool is_quiet_;
  bool is_gone_ = false;  // the process
  std::string message_;   // the launcher's last sentence
};

// Whether `horovodrun logs` gets the output of the job.
bool keeps_output(const LaunchSettings& settings);
// The record of this process's job, as it begins.
JobRecord new_record(const LaunchSettings& settings, std::span<const std::string> command);
// Events for the process in the terminal, with --detach. Each function may be empty.
struct DetachedEvents {
  std::function<void()> on_recorded;  // the log takes the output from here on
  std::function<void()> on_running;   // all ranks run
};

// Runs a job, with a record of it where the settings do not say none; that of a detached job has its log beside it, in
// the directory of detached jobs, whatever they say. Returns what `run` returns.
int record_job(const LaunchSettings& settings, std::span<const std::string> command,
               const DetachedEvents& detached, const std::function<int(const LaunchEvents&)>& run);

}  // namespace hvd::launcher
