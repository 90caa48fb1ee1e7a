// Holds lines for a short time, and combines equal lines of several ranks into one line (--fold). Keeps the order of
// each rank's lines, and drops no line. LineRouter owns this object. Pure.
#pragma once

#include <chrono>
#include <deque>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"

namespace hvd::launcher {

// The time that a line waits for equal lines.
constexpr std::chrono::milliseconds kFoldFor{100};
// Maximum number of waiting bytes.
constexpr size_t kMaxFolded = 1 << 20;

struct FoldedLine {
  std::string line;        // with its line end
  std::vector<int> ranks;  // ascending
  // Ranks, each with the number of its output bytes to confirm as shown together with this line.
  std::vector<std::pair<int, size_t>> consumed;
  Clock::time_point since;
};

class LineFolder {
 public:
  explicit LineFolder(int size)
      : last_(static_cast<size_t>(size)), cut_(static_cast<size_t>(size)) {}

  // Call when the job has got more ranks.
  void grow(int size) {
    last_.resize(static_cast<size_t>(size));
    cut_.resize(static_cast<size_t>(size));
  }
  // Adds a line. A line that ends with "\r" waits for further bytes up to kFoldFor: the rank's next byte may be the
  // "\n" that belongs to the line.
  void add(int rank, std::string_view line, Clock::time_point now);
  // Confirms these bytes when the rank's newest held line is shown. Returns false if no line of the rank is held.
  bool consume(int rank, size_t size);
  // Moves the first line to `out` if it has waited long enough, all ranks have printed it, too much is held, or `all`
  // is set. Otherwise returns false.
  bool take(Clock::time_point now, bool all, FoldedLine& out);
  bool is_empty() const { return lines_.empty() && cuts_ == 0; }

 private:
  using Number = uint64_t;
  struct Cut {
    std::string line;
    size_t consumed = 0;
    Clock::time_point since;
  };

  void append(int rank, std::string_view line, Clock::time_point since);
  void settle(int rank, std::string_view end);
  void settle_all();
  bool is_any_due(Clock::time_point now) const;
  FoldedLine& at(Number number) { return lines_[static_cast<size_t>(number - first_)]; }

  std::deque<FoldedLine> lines_;
  Number first_ = 1;                                   // number of the line lines_.front()
  std::map<std::string, Number, std::less<>> latest_;  // by text: the newest held line
  std::vector<Number> last_;                           // by rank: number of its newest line
  std::vector<Cut> cut_;  // by rank: the unfinished line after all its complete lines
  size_t cuts_ = 0;       // number of elements of cut_ that hold a line
  size_t held_ = 0;
};

// Returns "0-3,5", for example.
std::string ranks_text(const std::vector<int>& ranks);
// Returns "rank 3 on b" or "ranks 0-2 on a and b", with at most three hosts. `host_of` is indexed by rank.
std::string ranks_on_hosts(const std::vector<int>& ranks, const std::vector<std::string>& host_of);

}  // namespace hvd::launcher
