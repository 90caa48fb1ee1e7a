// The first failure since the present generation of an elastic job began: why the job ends if no rank is left.
// ElasticCore owns one. No I/O, no clock.
#pragma once

#include <string>

#include "base/text.h"
#include "launcher/plan/exit_codes.h"

namespace hvd::launcher {

class FirstFailure {
 public:
  // Later failures do not count. `process`: which failed, or -1.
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
  // The exit code of the job, also if it ends for another cause.
  int exit_code() const { return exit_code_ != 0 ? exit_code_ : kExitLauncher; }
  // "SENTENCE; because", or "because" alone.
  std::string before(const std::string& because) const {
    return is_noted() ? cat(sentence_, "; ", because) : because;
  }

 private:
  int exit_code_ = 0;
  std::string sentence_;
  int process_ = -1;
};

}  // namespace hvd::launcher
