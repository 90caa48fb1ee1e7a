// The end of the training of an elastic job: the ranks that have ended with exit code 0, a rank that failed after its
// return from hvd.elastic.run, and the time of the next reminder about ranks that still run. A failure after the return
// ends no other rank; it becomes the job's failure when all ranks have ended. ElasticCore owns this object. No I/O, no
// clock.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/text.h"
#include "launcher/elastic/deadlines.h"
#include "launcher/hosts/host_table.h"
#include "launcher/plan/exit_codes.h"

namespace hvd::launcher {

// The first failure in the current generation of an elastic job, and the reason of the job's end if no rank is left.
// ElasticCore owns this object.
class FirstFailure {
 public:
  // Ignores later failures. `process`: the process that failed, or -1.
  void note(int exit_code, const std::string& sentence, int process) {
    if (is_noted()) return;
    exit_code_ = exit_code;
    sentence_ = sentence;
    process_ = process;
  }
  void clear() { *this = {}; }

  bool is_noted() const { return !sentence_.empty(); }
  const std::string& sentence() const { return sentence_; }
  int process() const { return process_; }
  // Returns the exit code that the job gets from this failure; kExitLauncher if the failure has none.
  int exit_code() const { return exit_code_ != 0 ? exit_code_ : kExitLauncher; }
  // Returns "SENTENCE; because", or only `because` without a failure.
  std::string before(const std::string& because) const {
    return is_noted() ? cat(sentence_, "; ", because) : because;
  }

 private:
  int exit_code_ = 0;
  std::string sentence_;
  int process_ = -1;
};

using Ranks = std::vector<RankRun*>;

class TrainingEnd {
 public:
  // `hosts` must outlive this object.
  explicit TrainingEnd(const HostTable& hosts) : hosts_(hosts) {}

  // Returns whether the training can end without these ranks: all of them have returned from hvd.elastic.run, or all
  // other ranks have.
  bool is_behind(const Ranks& ranks) const;
  // Returns whether ranks have returned and none trains now. No further rank is then started.
  bool has_come() const;
  void finished(const RankRun& process, Clock::time_point now);
  // Call when a rank failed after its return from hvd.elastic.run. `process`: -1 if the job itself failed. Ignores
  // later failures.
  void failed(int exit_code, const std::string& sentence, int process, Clock::time_point now);
  // Call when another generation begins: the training has not ended.
  void clear();

  const FirstFailure& failure() const { return failure_; }
  // Returns "rank 1 on host a, rank 2 on host b"; empty: no rank has ended with exit code 0.
  const std::string& finished() const { return finished_; }
  // Returns why the job fails. Valid when all ranks have ended.
  std::string sentence() const;
  // Returns a sentence about the ranks that still work, once a minute.
  std::optional<std::string> reminder(Clock::time_point now);
  // Returns the next time at which reminder() returns a sentence.
  Clock::time_point next() const { return reminder_.next(); }

 private:
  const HostTable& hosts_;
  std::string finished_;
  FirstFailure failure_;
  Reminder reminder_;
};

// Recognises an exception that ends ranks on host after host. Its cause is then the program or its data, not a host.
// ElasticCore owns this object. Pure.
class RepeatedException {
 public:
  // Maximum number of commits between two failures by one exception that count as repeated. Failures on three different
  // hosts count as repeated for any number of commits.
  static constexpr int kFewCommits = 3;

  struct Failure {
    int process = 0;
    int slot = 0;
    int32_t generation = 0;
    std::string host;
    std::string whose;     // "rank 3 on host b"
    std::string sentence;  // describes how the rank ended
  };
  // `exception`: the line with the name of the exception that ended the rank, or empty.
  void failed(const std::string& exception, int exit_code, const Failure& failure);
  // Takes the number of commits that a rank has made in this generation.
  void committed(int32_t generation, int32_t commits);

  struct Verdict {
    int exit_code = 0;
    int process = 0;
    std::string sentence;
  };
  // Returns how to end the job if an exception has repeated. Call when all ranks of the last failure's generation have
  // reported their commits.
  std::optional<Verdict> verdict() const;

 private:
  struct Series {
    std::string exception;
    int exit_code = 0;
    std::vector<Failure> failures;  // each in a later generation than the previous
  };
  std::optional<Verdict> verdict_on(const Series& series) const;
  int64_t commits_between(const Failure& first, const Failure& second) const;

  std::vector<Series> series_;
  std::map<int32_t, int32_t> commits_;  // key: generation; value: the maximum over its ranks
};

}  // namespace hvd::launcher
