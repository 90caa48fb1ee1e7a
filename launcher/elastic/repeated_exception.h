// Recognises an exception that ends one rank after another with no commit between: the program or its data is the
// cause then, not a host. Generations owns one and tells it of failures and commits.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace hvd::launcher {

class RepeatedException {
 public:
  struct Failure {
    int process = 0;
    int slot = 0;
    int32_t generation = 0;
    std::string host;
    std::string whose;     // "rank 3 on host b"
    std::string sentence;  // says how the rank ended
  };
  // `exception`: the line that names the one that ended the rank, or empty.
  void failed(const std::string& exception, int exit_code, const Failure& failure);
  // A rank has committed in this generation: the failures before it do not count.
  void committed(int32_t generation);

  struct Verdict {
    int exit_code = 0;
    int process = 0;
    std::string sentence;
  };
  // When an exception has come again, and no rank that has asked knows of a commit between.
  std::optional<Verdict> verdict() const;

 private:
  struct Repetition {
    std::string exception;
    int exit_code = 0;
    Failure first;
    std::optional<Failure> again;
  };
  std::optional<Repetition> repetition_;  // empty after a commit
};

}  // namespace hvd::launcher
