// Recognises an exception that ends ranks on host after host: the program or its data is the cause then, not a host.
// ElasticCore owns one. Pure.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace hvd::launcher {

class RepeatedException {
 public:
  // The most commits between two failures by one exception; a third host that fails by it needs no such limit.
  static constexpr int kFewCommits = 3;

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
  // The number of commits of a rank in this generation.
  void committed(int32_t generation, int32_t commits);

  struct Verdict {
    int exit_code = 0;
    int process = 0;
    std::string sentence;
  };
  // Call when all ranks of the last failure's generation have reported their commits.
  std::optional<Verdict> verdict() const;

 private:
  struct Series {
    std::string exception;
    int exit_code = 0;
    std::vector<Failure> failures;  // each in a later generation than the one before
  };
  std::optional<Verdict> verdict_on(const Series& series) const;
  int64_t commits_between(const Failure& first, const Failure& second) const;

  std::vector<Series> series_;
  std::map<int32_t, int32_t> commits_;  // by generation: the most of a rank
};

}  // namespace hvd::launcher
