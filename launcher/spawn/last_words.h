// Keeps the newest lines of a process's standard error, and its exit status, for error messages. Bounded.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace hvd::launcher {

class LastWords {
 public:
  // Receives each complete line once, in order. Returns false to drop the line.
  using Filter = std::function<bool(std::string_view line)>;

  explicit LastWords(Filter filter = {}) : filter_(std::move(filter)) {}
  void add(std::string_view text);
  void set_exit_code(int code) { code_ = code; }
  void set_signal(std::string name) { signal_ = std::move(name); }
  bool ended() const { return code_ || !signal_.empty(); }
  std::optional<int> exit_code() const { return code_; }
  // Returns the last lines of the output, joined by "; ". Empty without output.
  std::string last_lines() const;
  // Returns last_lines(), and the exit status after a failure: "no such file; ended with exit code 127".
  std::string text() const;

 private:
  Filter filter_;
  std::string tail_;
  size_t filtered_ = 0;  // bytes of tail_ that the filter has kept
  std::optional<int> code_;
  std::string signal_;
};

}  // namespace hvd::launcher
